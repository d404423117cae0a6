/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What is kept of an entry for the next, and that it is never an old one.
 */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define HOME "/run/corral-jail"
/* The test's jail has no mount point for it. */
#define DRESSED "/etc/hostname is not shown in the jail"

static struct jail_view view;
static struct jail_error error;
static char said[4096];
static enum jail_mode mode = JAIL_RW;

static void note(const char *text)
{
	strncat(said, text, sizeof(said) - strlen(said) - 2);
	strcat(said, "\n");
}

static const struct jail_log notes = {.info = note, .debug = note};

static int enter(uint32_t job)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "wait=0"};
	struct jail_plan plan;
	int result;

	said[0] = '\0';
	CHECK(jail_plan_parse(&plan, 5, words, &error) == 0);
	CHECK(jail_plan_choose_mode(&plan, mode, &error) == 0);
	result = jail_enter(&plan, job, &notes, &view, &error);
	jail_plan_free(&plan);
	return result;
}

/* A task of that job, in a process of its own. */
static void as_task(uint32_t job, void (*look)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		CHECK(enter(job) == 0);
		CHECK(jail_strip(&view, &error) == 0);
		if (look)
			look();
		jail_view_close(&view);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void nothing_was_dressed(void)
{
	CHECK(!strstr(said, DRESSED));
	CHECK_HAS(said, "entered the jail");
}

static void all_was_dressed(void)
{
	CHECK_HAS(said, DRESSED);
}

/* Jails that are kept in this mount namespace, each with slurmstepd's root beside it. */
static int kept(void)
{
	int count = count_mounts_with(" " HOME "/", " nsfs ");

	CHECK(count % 2 == 0);
	return count / 2;
}

static void the_second_takes_what_the_first_made(void)
{
	make_pod();
	as_task(1, all_was_dressed);
	CHECK(kept() == 1);
	as_task(2, nothing_was_dressed);
	as_task(2, nothing_was_dressed);
	CHECK(kept() == 1);
	mode = JAIL_RO;
	as_task(2, all_was_dressed);
	CHECK(kept() == 2);
	mode = JAIL_RW;
	as_task(2, nothing_was_dressed);
}

static void leave_traces(void)
{
	make_file("/tmp/trace", "");
	make_file("/dev/shm/trace", "");
	make_file("/run/lock/trace", "");
	make_directory("/run/trace", 0755);
	/* /dev is shared by all steps of the node. */
	CHECK(mkdir("/dev/trace", 0755) < 0 && errno == EROFS);
}

static void find_no_traces(void)
{
	CHECK(!there_is("/tmp/trace") && !there_is("/dev/shm/trace") && !there_is("/run/lock/trace") && !there_is("/run/trace"));
	CHECK(there_is("/run/munge/socket") && there_is("/dev/null") && there_is("/proc/self") && there_is(SPOOL "/conf-cache/slurm.conf"));
	CHECK(!there_is(SPOOL "/corral/tmp/1") && !there_is(SPOOL "/corral/tmp/2"));
}

static void jobs_meet_nothing_of_each_other(void)
{
	make_pod();
	as_task(1, leave_traces);
	as_task(2, find_no_traces);
}

static void find_volume(void)
{
	CHECK(there_is("/data/iam-volume"));
}

static void find_no_volume(void)
{
	CHECK(!there_is("/data/iam-volume"));
}

static void a_new_volume_is_seen_at_once(void)
{
	make_pod();
	as_task(1, find_no_volume);
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	make_file(JAIL "/data/iam-volume", "");
	as_task(1, find_volume);
	/* That of the pod as it was is gone, and with it its hold on volumes. */
	CHECK(kept() == 1);
	as_task(1, nothing_was_dressed);
	CHECK(umount(JAIL "/data") == 0);
	as_task(1, find_no_volume);
	CHECK(kept() == 1);
}

static void find_device(void)
{
	CHECK(there_is("/dev/nvidia7"));
}

static void a_new_device_is_seen_at_once(void)
{
	make_pod();
	make_dev();
	make_directory(POD "/dev/shm", 0755);
	show_dev();
	as_task(1, NULL);
	CHECK(mknod("/dev/nvidia7", S_IFCHR | 0666, makedev(1, 3)) == 0);
	as_task(1, find_device);
}

static void find_new_spool(void)
{
	CHECK(there_is(SPOOL "/conf-cache/new") && !there_is(SPOOL "/conf-cache/slurm.conf"));
}

static void mounts_of_others_come_and_go(void)
{
	char path[64];

	make_pod();
	as_task(1, all_was_dressed);
	/* More than the kernel lists at once. */
	make_directory("/run/many", 0755);
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/run/many/%d", i);
		make_directory(path, 0755);
		CHECK(mount("many", path, "tmpfs", 0, "size=4k") == 0);
	}
	as_task(1, NULL);
	as_task(1, nothing_was_dressed);
	CHECK(kept() == 1);
	/* The last one is another one. */
	make_directory(JAIL "/etc/more", 0755);
	CHECK(umount(path) == 0 && mount("more", JAIL "/etc/more", "tmpfs", 0, "size=4k") == 0);
	as_task(1, all_was_dressed);
	as_task(1, nothing_was_dressed);
	CHECK(mount(NULL, JAIL "/etc/more", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
	as_task(1, all_was_dressed);
	as_task(1, nothing_was_dressed);
	CHECK(kept() == 1);
}

static void another_directory_in_its_place_is_seen_at_once(void)
{
	make_pod();
	as_task(1, NULL);
	CHECK(rename(SPOOL, SPOOL "-before") == 0);
	make_directory(SPOOL, 0755);
	make_directory(SPOOL "/conf-cache", 0755);
	make_file(SPOOL "/conf-cache/new", "");
	as_task(1, find_new_spool);
}

static void find_proc(void)
{
	CHECK(there_is("/proc/self") && there_is("/opt/corral/iam-bundle"));
}

/* As another node does: it is a mount point in the template alone. */
static void a_mount_point_that_was_removed_elsewhere(void)
{
	make_pod();
	make_file("/opt/corral/iam-bundle", "");
	as_task(1, find_proc);
	CHECK(rmdir(JAIL "/proc") == 0);
	CHECK(enter(1) == -1);
	CHECK_HAS(error.text, "/proc ");
	_exit(0);
}

static void a_mount_point_that_was_made_anew_elsewhere(void)
{
	make_pod();
	make_file("/opt/corral/iam-bundle", "");
	as_task(1, find_proc);
	CHECK(rmdir(JAIL "/proc") == 0);
	make_directory(JAIL "/proc", 0755);
	as_task(1, find_proc);
	as_task(1, nothing_was_dressed);
	CHECK(rename(JAIL "/opt", JAIL "/away") == 0);
	make_directory(JAIL "/opt", 0755);
	make_directory(JAIL "/opt/corral", 0755);
	as_task(1, find_proc);
	CHECK(kept() == 1);
}

static void who_comes_before_the_first_job_hides_it_all_the_same(void)
{
	make_pod();
	as_task(0, NULL);
	as_task(1, find_no_traces);
	as_task(2, find_no_traces);
}

static void another_jail_at_the_same_path(void)
{
	make_pod();
	as_task(1, NULL);
	CHECK(rename(JAIL "/etc/corral-jail", JAIL "/etc/was-a-jail") == 0);
	CHECK(enter(1) == -1);
	CHECK_HAS(error.text, "no marker file");
	_exit(0);
}

static void what_is_kept_can_be_forgotten(void)
{
	make_pod();
	as_task(1, NULL);
	CHECK(kept() == 1);
	jail_templates_forget();
	CHECK(kept() == 0 && !there_is(HOME));
	jail_templates_forget();
	as_task(1, all_was_dressed);
	CHECK(kept() == 1);
}

static void without_a_place_to_keep_it(void)
{
	make_pod();
	make_file(HOME, "");
	as_task(1, find_no_traces);
	as_task(2, find_no_traces);
	CHECK(kept() == 0);
}

static void who_was_interrupted_left_a_file(void)
{
	DIR *list;
	struct dirent *entry;
	char path[PATH_MAX];

	make_pod();
	as_task(1, NULL);
	list = opendir(HOME);
	CHECK(list);
	while ((entry = readdir(list))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), HOME "/%s", entry->d_name);
		CHECK(umount2(path, MNT_DETACH) == 0 && there_is(path));
	}
	closedir(list);
	as_task(1, all_was_dressed);
	CHECK(kept() == 1);
	as_task(1, nothing_was_dressed);
}

static void as_one_of_two_jobs(int number)
{
	as_task(1 + (uint32_t)number % 2, NULL);
}

static void fifty_steps_at_once_make_one(void)
{
	make_pod();
	fifty_at_once(as_one_of_two_jobs);
	CHECK(kept() == 1);
	as_task(1, nothing_was_dressed);
}

/* Which is mounted while others look: the first steps of a pod come together. */
static void the_place_of_what_is_kept_never_counts(void)
{
	struct jail_plan plan = {.jail = JAIL};
	struct jail_digest first = JAIL_DIGEST;
	/* How many looks have ended. Nobody mounts and unmounts it within one: slurmd keeps it. */
	_Atomic unsigned *looks = mmap(NULL, sizeof(*looks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t other;

	CHECK(looks != MAP_FAILED);
	make_pod();
	make_directory(HOME, 0700);
	CHECK(jail_digest_add_mounts(&plan, HOME, &first) == 0);
	other = fork();
	CHECK(other >= 0);
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 2000; i++) {
			CHECK(mount("kept", HOME, "tmpfs", 0, "size=4k") == 0);
			for (unsigned seen = *looks; *looks - seen < 2;)
				usleep(10);
			CHECK(umount2(HOME, MNT_DETACH) == 0);
			for (unsigned seen = *looks; *looks - seen < 2;)
				usleep(10);
		}
		_exit(0);
	}
	while (waitpid(other, &status, WNOHANG) == 0) {
		struct jail_digest digest = JAIL_DIGEST;

		CHECK(jail_digest_add_mounts(&plan, HOME, &digest) == 0 && digest.value == first.value);
		++*looks;
	}
	CHECK(status == 0);
}

static void all(void)
{
	CASE(the_second_takes_what_the_first_made);
	CASE(jobs_meet_nothing_of_each_other);
	CASE(a_new_volume_is_seen_at_once);
	CASE(a_new_device_is_seen_at_once);
	CASE(mounts_of_others_come_and_go);
	CASE(another_directory_in_its_place_is_seen_at_once);
	CASE(a_mount_point_that_was_removed_elsewhere);
	CASE(a_mount_point_that_was_made_anew_elsewhere);
	CASE(who_comes_before_the_first_job_hides_it_all_the_same);
	CASE(another_jail_at_the_same_path);
	CASE(what_is_kept_can_be_forgotten);
	CASE(without_a_place_to_keep_it);
	CASE(who_was_interrupted_left_a_file);
	CASE(the_place_of_what_is_kept_never_counts);
	CASE(fifty_steps_at_once_make_one);
}

/* As before Linux 6.8: nobody lists mounts. */
static void older_kernel(void)
{
	const uint32_t listmount = 458;
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, listmount, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(steps) / sizeof(steps[0]), .filter = steps};

	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	CHECK(syscall(listmount, NULL, NULL, 0, 0) == -1 && errno == ENOSYS);
}

int main(void)
{
	if (needs_root())
		return 0;
	all();
	older_kernel();
	all();
	return finish();
}
