/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include "check.h"

#define BASE POD "/spool/corral/tmp"

static void made_once_and_shared(void)
{
	struct jail_error error;
	struct stat first, second, base;
	int directory;

	make_pod();
	umask(077);
	directory = jail_job_open(BASE, 7, 01777, &error);
	CHECK(directory >= 0 && fstat(directory, &first) == 0);
	close(directory);
	CHECK((first.st_mode & 07777) == 01777);
	directory = jail_job_open(BASE, 7, 01777, &error);
	CHECK(directory >= 0 && fstat(directory, &second) == 0);
	close(directory);
	CHECK(first.st_ino == second.st_ino);
	CHECK(stat(BASE, &base) == 0 && (base.st_mode & 07777) == 0700);
	CHECK(there_is(BASE "/7"));
}

static void link_in_its_place_is_refused(void)
{
	struct jail_error error;

	make_pod();
	CHECK(jail_job_open(BASE, 1, 01777, &error) >= 0);
	CHECK(symlink("/etc", BASE "/2") == 0);
	CHECK(jail_job_open(BASE, 2, 01777, &error) == -1);
	CHECK_HAS(error.text, BASE "/2");
}

static void full_scratch_is_said(void)
{
	struct jail_error error;

	make_pod();
	make_file(POD "/spool/corral", "");
	CHECK(jail_job_open(BASE, 1, 01777, &error) == -1);
	CHECK_HAS(error.text, "Not a directory");
}

static void a_full_disk_is_said(void)
{
	struct jail_error error;

	make_pod();
	make_directory(POD "/spool/corral", 0755);
	CHECK(mount("tmpfs", POD "/spool/corral", "tmpfs", 0, "nr_inodes=2") == 0);
	CHECK(jail_job_open(BASE, 1, 01777, &error) == -1);
	CHECK_HAS(error.text, "No space left on device");
	CHECK_HAS(error.text, "check the node's local scratch");
	CHECK(umount2(POD "/spool/corral", MNT_DETACH) == 0);
	CHECK(jail_job_open(BASE, 1, 01777, &error) >= 0);
}

static void removed_without_following(void)
{
	struct jail_error error;

	make_pod();
	CHECK(jail_job_open(BASE, 7, 01777, &error) >= 0);
	CHECK(jail_job_open(BASE, 8, 01777, &error) >= 0);
	make_directory(POD "/precious", 0755);
	make_file(POD "/precious/file", "");
	make_directory(BASE "/7/a", 0);
	make_directory(BASE "/7/a/b", 0755);
	make_file(BASE "/7/a/b/c", "");
	CHECK(symlink(POD "/precious", BASE "/7/link") == 0);
	CHECK(symlink(POD "/precious/file", BASE "/7/a/link") == 0);
	CHECK(jail_job_remove(BASE, 7, &error) == 0);
	CHECK(!there_is(BASE "/7"));
	CHECK(there_is(POD "/precious/file"));
	CHECK(there_is(BASE "/8"));
}

static void another_file_system_is_not_entered(void)
{
	struct jail_error error;

	make_pod();
	CHECK(jail_job_open(BASE, 7, 01777, &error) >= 0);
	make_directory(BASE "/7/other", 0755);
	make_file(BASE "/7/file", "");
	CHECK(mount("tmpfs", BASE "/7/other", "tmpfs", 0, NULL) == 0);
	make_file(BASE "/7/other/kept", "");
	CHECK(jail_job_remove(BASE, 7, &error) == -1);
	CHECK_HAS(error.text, "could not be removed wholly");
	CHECK(there_is(BASE "/7/other/kept"));
	CHECK(!there_is(BASE "/7/file"));
}

static void nothing_to_remove(void)
{
	struct jail_error error;

	make_pod();
	CHECK(jail_job_remove(BASE, 7, &error) == 0);
	CHECK(jail_job_open(BASE, 1, 01777, &error) >= 0);
	CHECK(jail_job_remove(BASE, 7, &error) == 0);
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(made_once_and_shared);
	CASE(link_in_its_place_is_refused);
	CASE(full_scratch_is_said);
	CASE(a_full_disk_is_said);
	CASE(removed_without_following);
	CASE(another_file_system_is_not_entered);
	CASE(nothing_to_remove);
	return finish();
}
