/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * A job's overlay over the jail: its own, shared by its steps, gone with it.
 */
#include "check.h"

#include <errno.h>
#include <sys/statvfs.h>

#define BASE POD "/overlays"

static struct jail_plan plan;
static struct jail_view view;
static struct jail_error error;

static void prepare(void)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "overlay=" BASE, "wait=0"};

	make_pod();
	make_file(JAIL "/data/hidden", "");
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	make_file(JAIL "/data/volume", "");
	CHECK(jail_plan_parse(&plan, 6, words, &error) == 0);
	CHECK(jail_plan_choose_mode(&plan, JAIL_OVERLAY, &error) == 0);
}

static void sees_the_jail(void)
{
	CHECK(there_is("/iam-jail") && there_is("/data/volume"));
}

/* What a step of the job does, in a process of its own. */
static void in_step(uint32_t job, void (*work)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (jail_overlay_mount(&plan, job, &error) < 0 || jail_enter(&plan, job, NULL, &view, &error) < 0 || jail_strip(&view, &error) < 0) {
			fprintf(stderr, "%s\n", error.text);
			_exit(1);
		}
		jail_view_close(&view);
		work();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void of_no_jail_there_is_none(void)
{
	prepare();
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	CHECK(jail_overlay_mount(&plan, 7, &error) == -1);
	CHECK_HAS(error.text, "has no marker file");
	make_file(JAIL "/etc/corral-jail", "{}\n");
	in_step(7, sees_the_jail);
}

static void writes(void)
{
	CHECK(there_is("/iam-jail") && there_is("/data/volume") && !there_is("/data/hidden"));
	make_file("/new", "");
	make_file("/etc/corral-jail", "{}\n");
	CHECK(unlink("/iam-jail") == 0);
	make_file("/data/kept", "");
}

static void sees_it(void)
{
	CHECK(there_is("/new") && !there_is("/iam-jail") && there_is("/data/kept"));
}

static void sees_nothing_of_it(void)
{
	CHECK(!there_is("/new") && there_is("/iam-jail"));
}

static void belongs_to_the_job(void)
{
	int before;

	prepare();
	before = count_mounts();
	in_step(7, writes);
	CHECK(there_is(JAIL "/iam-jail") && !there_is(JAIL "/new"));
	CHECK(there_is(JAIL "/data/kept"));
	in_step(7, sees_it);
	CHECK(count_mounts() == before + 1);
	in_step(8, sees_nothing_of_it);
	CHECK(count_mounts() == before + 2);
	CHECK(jail_overlay_remove(&plan, 7, &error) == 0);
	CHECK(jail_overlay_remove(&plan, 8, &error) == 0);
	CHECK(count_mounts() == before);
	CHECK(!there_is(BASE "/7") && !there_is(BASE "/8"));
	CHECK(jail_overlay_remove(&plan, 9, &error) == 0);
	jail_plan_free(&plan);
}

static void root_is_closed(void)
{
	struct stat status;

	prepare();
	in_step(7, sees_nothing_of_it);
	CHECK(stat(BASE, &status) == 0 && (status.st_mode & 07777) == 0700);
	CHECK(stat(BASE "/7", &status) == 0 && (status.st_mode & 07777) == 0700);
	CHECK(jail_overlay_remove(&plan, 7, &error) == 0);
	jail_plan_free(&plan);
}

static void room_that_can_not_be_written(void)
{
	prepare();
	make_directory(BASE, 0700);
	CHECK(mount("tmpfs", BASE, "tmpfs", MS_RDONLY, NULL) == 0);
	CHECK(jail_overlay_mount(&plan, 7, &error) == -1);
	CHECK_HAS(error.text, "Read-only file system");
	jail_plan_free(&plan);
}

static void without_its_mount_there_is_no_entry(void)
{
	prepare();
	CHECK(jail_enter(&plan, 7, NULL, &view, &error) == -1);
	CHECK_HAS(error.text, "the job's overlay");
	jail_plan_free(&plan);
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(belongs_to_the_job);
	CASE(root_is_closed);
	CASE(room_that_can_not_be_written);
	CASE(without_its_mount_there_is_no_entry);
	CASE(of_no_jail_there_is_none);
	return finish();
}
