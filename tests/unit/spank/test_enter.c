/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Entering for real, in a pod made of tmpfs. What is planted in the jail is what a user with sudo could plant.
 */
#include "check.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <linux/capability.h>
#include <linux/magic.h>

static struct jail_plan plan;
static struct jail_view view;
static struct jail_error error;
static char said[4096];

static void note(const char *text)
{
	strncat(said, text, sizeof(said) - strlen(said) - 2);
	strcat(said, "\n");
}

static const struct jail_log notes = {.info = note, .debug = note};

static enum jail_mode mode = JAIL_RW;

static int enter_with(char *extra)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "wait=0", extra};
	int result;

	CHECK(jail_plan_parse(&plan, extra ? 6 : 5, words, &error) == 0);
	CHECK(jail_plan_choose_mode(&plan, mode, &error) == 0);
	result = jail_ipc_join(&plan, 42, &error);
	if (result == 0)
		result = jail_enter(&plan, 42, &notes, &view, &error);
	jail_plan_free(&plan);
	return result;
}

static void refuses(const char *part)
{
	CHECK(enter_with(NULL) == -1);
	CHECK_HAS(error.text, part);
	CHECK(!view.entered);
	CHECK(jail_verify(&view, &error) == -1);
	CHECK(jail_strip(&view, &error) == -1);
}

static bool writable(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void the_step_sees_the_pods_programs(void)
{
	make_pod();
	CHECK(enter_with(NULL) == 0);
	CHECK_HAS(said, "entered the jail " JAIL " in ");
	CHECK(jail_verify(&view, &error) == 0);
	CHECK(there_is("/iam-jail") && there_is("/" JAIL_IN_VIEW "/iam-jail"));
	CHECK(!there_is(POD "/iam-pod"));
	CHECK(!there_is("/usr/iam-jail") && there_is("/usr/bin"));
	CHECK(!writable("/new") && errno == EROFS);
	CHECK(writable(SPOOL "/new"));
	jail_view_close(&view);
}

static void the_task_sees_the_jail_alone(void)
{
	make_pod();
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/iam-jail") && there_is("/usr/iam-jail") && !there_is("/usr/bin"));
	CHECK(there_is("/run/munge/socket") && !there_is("/run/pods-own"));
	CHECK(there_is(SPOOL "/conf-cache/slurm.conf") && !writable(SPOOL "/conf-cache/slurm.conf") && errno == EROFS);
	CHECK(there_is(SPOOL "/job00042/slurm_script") && !writable(SPOOL "/job00042/slurm_script") && errno == EROFS);
	CHECK(!there_is(SPOOL "/job00043") && !there_is(SPOOL "/node_42.0") && !there_is(SPOOL "/corral"));
	CHECK(!writable(SPOOL "/new") && errno == EROFS);
	CHECK(!writable("/run/munge/socket") && errno == EROFS);
	CHECK(!writable("/opt/corral/x") && errno == EROFS);
	CHECK(!writable("/sys/x") && errno == EROFS);
	CHECK(!writable("/proc/sys/kernel/core_pattern") && errno == EROFS);
	CHECK(writable("/tmp/mine") && writable("/dev/shm/mine"));
	CHECK(there_is("/dev/null") && there_is("/dev/pts") && !there_is("/dev/kmsg") && !there_is("/dev/vda") && !there_is("/dev/mem"));
	CHECK(writable("/dev/null"));
	jail_view_close(&view);
}

/* A device file is the pod's own: were it not for all any more, nothing would run on the node. Each has the mode here that it has already. */
static void root_of_the_jail_takes_no_device_from_others(void)
{
	static const char *const places[] = {"/dev/null", "/dev/tty", "/dev/net/tun", "/dev/pts/ptmx"};
	struct stat before;
	int terminal;

	make_pod();
	make_dev();
	make_directory(POD "/dev/net", 0755);
	CHECK(mknod(POD "/dev/tty", S_IFCHR | 0666, makedev(5, 0)) == 0);
	CHECK(mknod(POD "/dev/net/tun", S_IFCHR | 0666, makedev(1, 3)) == 0);
	show_dev();
	CHECK(enter_with("dev=net") == 0);
	for (int task = 0; task < 2; task++) {
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			CHECK(stat(places[i], &before) == 0 && S_ISCHR(before.st_mode));
			CHECK(chmod(places[i], before.st_mode & 07777) == -1 && errno == EROFS);
		}
		CHECK(writable("/dev/null") && writable("/dev/net/tun"));
		terminal = posix_openpt(O_RDWR | O_NOCTTY);
		CHECK(terminal >= 0 && unlockpt(terminal) == 0 && ioctl(terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY) >= 0);
		CHECK(jail_strip(&view, &error) == 0);
	}
	jail_view_close(&view);
}

/*
 * cgroup v2 as a container has it, one file system at /sys/fs/cgroup: the machine's own where it has one, shown in this mount namespace alone,
 * and never written to.
 */
static void show_cgroup2(struct stat *shown)
{
	static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	struct statfs status;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (statfs(places[i], &status) == 0 && status.f_type == CGROUP2_SUPER_MAGIC) {
			CHECK(mount(places[i], "/sys/fs/cgroup", NULL, MS_BIND, NULL) == 0);
			CHECK(mount(NULL, "/sys/fs/cgroup", NULL, MS_BIND | MS_REMOUNT, NULL) == 0);
			CHECK(stat("/sys/fs/cgroup", shown) == 0);
			return;
		}
	CHECK(mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0);
	CHECK(stat("/sys/fs/cgroup", shown) == 0);
}

static bool shows(const struct stat *cgroups, bool read_only)
{
	struct statvfs status;
	struct stat seen;

	return stat("/sys/fs/cgroup", &seen) == 0 && seen.st_dev == cgroups->st_dev && seen.st_ino == cgroups->st_ino &&
	       statvfs("/sys/fs/cgroup", &status) == 0 && ((status.f_flag & ST_RDONLY) != 0) == read_only;
}

/* It makes those of steps at the pod's path after it has entered; the steps themselves must not. */
static void slurmstepd_writes_cgroups_and_its_task_reads_them(void)
{
	struct statvfs status;
	struct stat cgroups;

	make_pod();
	show_cgroup2(&cgroups);
	CHECK(enter_with(NULL) == 0);
	CHECK(shows(&cgroups, false));
	CHECK(statvfs("/sys", &status) == 0 && (status.f_flag & ST_RDONLY));
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(shows(&cgroups, true));
	jail_view_close(&view);
}

/* Children that end while a thread of theirs may still live end without the leak check. */
static void slurmstepd_stays_when_its_task_leaves(void)
{
	int status;
	pid_t child;

	make_pod();
	CHECK(enter_with(NULL) == 0);
	child = fork();
	if (child == 0)
		_exit(jail_strip(&view, &error) == 0 && there_is("/usr/iam-jail") ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!there_is("/usr/iam-jail"));
	jail_view_close(&view);
}

/* Who comes into a mount namespace stands on what lies uppermost at its root. */
static bool jail_is_uppermost_in(int namespace)
{
	return setns(namespace, CLONE_NEWNS) == 0 && jail_verify(&view, &error) == 0 && there_is("/iam-jail") && !there_is("/iam-pod");
}

static void the_pods_root_lies_over_neither_view(void)
{
	int own, pure;

	make_pod();
	CHECK(enter_with(NULL) == 0);
	own = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(jail_strip(&view, &error) == 0);
	pure = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(own >= 0 && pure >= 0);
	CHECK(jail_is_uppermost_in(own));
	CHECK(!there_is("/usr/iam-jail"));
	CHECK(jail_is_uppermost_in(pure));
	CHECK(there_is("/usr/iam-jail"));
	jail_view_close(&view);
}

/* A thread takes the pod's root away: its task waits, and a task that would come to the pod is refused. */
static void a_task_does_not_go_where_the_pod_still_is(void)
{
	int pod;

	make_pod();
	pod = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(pod >= 0);
	CHECK(enter_with(NULL) == 0);
	view.pure = pod;
	CHECK(jail_strip(&view, &error) == -1);
	CHECK_HAS(error.text, "not the jail");
	/* Without the leak check, which wants a /proc. */
	_exit(0);
}

static void slurmd_sees_none_of_it(void)
{
	int before, status;
	pid_t child;

	make_pod();
	before = count_mounts();
	child = fork();
	if (child == 0)
		_exit(enter_with(NULL) == 0 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(count_mounts() == before);
	CHECK(there_is(SPOOL "/corral/tmp/42"));
}

static void steps_of_a_job_share_tmp_and_shm(void)
{
	int status;
	pid_t child;

	make_pod();
	child = fork();
	if (child == 0)
		_exit(enter_with(NULL) == 0 && writable("/tmp/hello") && writable("/dev/shm/hello") ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK(there_is("/tmp/hello") && there_is("/dev/shm/hello"));
	jail_view_close(&view);
}

static void shm_of_the_pod(void)
{
	make_pod();
	CHECK(enter_with("shm=pod") == 0);
	CHECK(there_is("/dev/shm") && !there_is("/run/shm/corral"));
	jail_view_close(&view);
}

/* Capabilities of a set-uid program of the jail work; of a volume below it they do not. */
static void set_uid_is_the_jails_own(void)
{
	struct statvfs status;

	make_pod();
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(statvfs("/", &status) == 0 && !(status.f_flag & ST_NOSUID));
	CHECK(statvfs("/data", &status) == 0 && (status.f_flag & ST_NOSUID) && (status.f_flag & ST_NODEV));
	jail_view_close(&view);
}

static void a_jail_without_set_uid_stays_so(void)
{
	struct statvfs status;

	make_pod();
	CHECK(mount(JAIL, JAIL, NULL, MS_BIND, NULL) == 0);
	CHECK(mount(NULL, JAIL, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL) == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(statvfs("/", &status) == 0 && (status.f_flag & ST_NOSUID));
	jail_view_close(&view);
}

static void read_only(void)
{
	make_pod();
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	mode = JAIL_RO;
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(!writable("/new") && errno == EROFS);
	CHECK(!writable("/data/new") && errno == EROFS);
	CHECK(writable("/tmp/new") && writable("/dev/shm/new"));
	jail_view_close(&view);
}

static void before_the_first_job(void)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "wait=0"};

	make_pod();
	CHECK(jail_plan_parse(&plan, 4, words, &error) == 0);
	CHECK(jail_enter(&plan, 0, &notes, &view, &error) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is(SPOOL "/conf-cache/slurm.conf") && !there_is(SPOOL "/job00042") && !there_is(SPOOL "/corral"));
	jail_view_close(&view);
	jail_plan_free(&plan);
}

static void a_slurm_that_has_its_configuration_elsewhere(void)
{
	make_pod();
	CHECK(unlink(SPOOL "/conf-cache/slurm.conf") == 0 && rmdir(SPOOL "/conf-cache") == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is(SPOOL "/job00042/slurm_script"));
	jail_view_close(&view);
}

static void no_spool(void)
{
	make_pod();
	CHECK(rmdir(JAIL "/mnt/spool") == 0);
	CHECK(enter_with("spool=none") == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/iam-jail") && !there_is(SPOOL));
	jail_view_close(&view);
}

static void volumes_below_the_jail_come_along(void)
{
	make_pod();
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	make_file(JAIL "/data/file", "");
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/data/file"));
	jail_view_close(&view);
}

static void binds_are_shown(void)
{
	make_pod();
	CHECK(enter_with("bind=" POD ":/data:ro") == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/data/iam-pod") && !writable("/data/x") && errno == EROFS);
	jail_view_close(&view);
}

static void bind_to_nowhere_is_refused(void)
{
	make_pod();
	CHECK(enter_with("bind=" POD ":/nowhere") == -1);
	CHECK_HAS(error.text, "/nowhere");
	CHECK(!there_is(JAIL "/nowhere"));
}

static void missing_optional_mount_point_is_skipped(void)
{
	make_pod();
	CHECK(enter_with(NULL) == 0);
	CHECK_HAS(said, "/etc/hostname is not shown in the jail");
	jail_view_close(&view);
}

static void missing_mandatory_mount_point_is_refused(void)
{
	static const char *const mandatory[] = {"proc", "dev", "run", "tmp", "opt/corral", "mnt/spool"};

	make_pod();
	for (size_t i = 0; i < sizeof(mandatory) / sizeof(mandatory[0]); i++) {
		char path[64], away[64];
		int status;
		pid_t child;

		snprintf(path, sizeof(path), JAIL "/%s", mandatory[i]);
		snprintf(away, sizeof(away), JAIL "/away");
		CHECK(rename(path, away) == 0);
		child = fork();
		if (child == 0) {
			char part[32];

			snprintf(part, sizeof(part), "/%s ", mandatory[i]);
			refuses(part);
			/* By the pod's own means slurmstepd tells of it. */
			CHECK(there_is("/run/pods-own") && there_is(POD "/iam-pod"));
			exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(!there_is(path));
		CHECK(rename(away, path) == 0);
	}
}

/* A link in the place of a mount point must neither be followed nor lead anything astray. */
static void planted_links_are_refused(void)
{
	static const char *const places[] = {"proc", "dev", "run", "tmp", "opt", "opt/corral", "mnt", "mnt/spool"};

	make_pod();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char path[64];
		int status;
		pid_t child;

		snprintf(path, sizeof(path), JAIL "/%s", places[i]);
		CHECK(rename(path, JAIL "/away") == 0);
		/* To the very directory that was there: a resolver that follows links would mount on it. */
		CHECK(symlink("/away", path) == 0);
		child = fork();
		if (child == 0) {
			CHECK(enter_with(NULL) == -1);
			CHECK_HAS(error.text, "Too many levels of symbolic links");
			exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(unlink(path) == 0);
		CHECK(rename(JAIL "/away", path) == 0);
	}
}

static void planted_link_of_a_file_shows_nothing(void)
{
	char text[16] = "";
	FILE *file;

	make_pod();
	make_file(JAIL "/etc/shadow", "secret\n");
	CHECK(unlink(JAIL "/etc/hosts") == 0);
	CHECK(symlink("shadow", JAIL "/etc/hosts") == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK_HAS(said, "/etc/hosts is not shown in the jail");
	CHECK(jail_strip(&view, &error) == 0);
	file = fopen("/etc/shadow", "r");
	CHECK(file && fgets(text, sizeof(text), file) && strcmp(text, "secret\n") == 0);
	fclose(file);
	jail_view_close(&view);
}

static void devices_on_the_volume_are_dead(void)
{
	make_pod();
	CHECK(mknod(JAIL "/null", S_IFCHR | 0666, (dev_t)0x103) == 0);
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/null") && !writable("/null") && errno == EACCES);
	jail_view_close(&view);
}

static void unmerged_jail_gets_the_pods_libraries(void)
{
	make_pod();
	CHECK(unlink(JAIL "/lib") == 0);
	make_directory(JAIL "/lib", 0755);
	make_file(JAIL "/lib/iam-jail", "");
	CHECK(enter_with(NULL) == 0);
	CHECK(!there_is("/lib/iam-jail"));
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/lib/iam-jail"));
	jail_view_close(&view);
}

static void no_marker_no_entry(void)
{
	make_pod();
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	refuses("no marker file");
}

static void moved_out_is_noticed(void)
{
	make_pod();
	CHECK(enter_with(NULL) == 0);
	CHECK(chroot("/usr") == 0 && chdir("/") == 0);
	CHECK(jail_verify(&view, &error) == -1);
	CHECK_HAS(error.text, "not the jail");
	CHECK(jail_strip(&view, &error) == -1);
	/* Without the leak check, which wants a /proc. */
	_exit(0);
}

static void nothing_stays_open(void)
{
	int before = dup(0), after;

	close(before);
	make_pod();
	CHECK(enter_with(NULL) == 0);
	jail_view_close(&view);
	after = dup(0);
	close(after);
	CHECK(before == after);
}

static void capabilities_are_gone_for_good(void)
{
	static const int gone[] = {CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_CHROOT, CAP_MKNOD, CAP_DAC_READ_SEARCH, CAP_SYS_MODULE, CAP_NET_ADMIN};
	static const int kept[] = {CAP_CHOWN, CAP_SETUID, CAP_KILL, CAP_DAC_OVERRIDE};

	CHECK(jail_drop_capabilities(&error) == 0);
	CHECK(jail_drop_capabilities(&error) == 0);
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		CHECK(prctl(PR_CAPBSET_READ, gone[i], 0, 0, 0) == 0);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		CHECK(prctl(PR_CAPBSET_READ, kept[i], 0, 0, 0) == 1);
}

/* slurmstepd drops them for what it starts, and goes on with its own. */
static void who_has_dropped_them_leaves_for_the_jail_all_the_same(void)
{
	make_pod();
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_drop_capabilities(&error) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/usr/iam-jail") && !there_is("/usr/bin"));
	jail_view_close(&view);
}

/* A /dev as a container has it: what Kubernetes mounts there for a pod that asked for huge pages, and the runtime for message queues. */
static void huge_pages_and_message_queues_are_the_pods(void)
{
	make_pod();
	make_dev();
	make_directory(POD "/dev/mqueue", 0755);
	make_directory(POD "/dev/hugepages", 0755);
	make_directory(POD "/dev/disks", 0755);
	CHECK(mount("tmpfs", POD "/dev/mqueue", "tmpfs", 0, "mode=1777") == 0);
	CHECK(mount("tmpfs", POD "/dev/hugepages", "tmpfs", 0, "mode=1777") == 0);
	show_dev();
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(writable("/dev/mqueue/queue") && writable("/dev/hugepages/pool") && !there_is("/dev/disks"));
	jail_view_close(&view);
}

/* As another node does, where the directory is no mount point. */
static void remove_elsewhere(const char *path)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(unshare(CLONE_NEWNS) == 0 && umount2(path, MNT_DETACH) == 0 && rmdir(path) == 0 ? 0 : 1);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void a_volume_that_was_lost_comes_back_or_nothing_is_run(void)
{
	char *words[] = {"jail=" JAIL, "bind=" POD "/volume:/data"};

	make_pod();
	make_directory(POD "/volume", 0755);
	make_file(POD "/volume/iam-volume", "");
	CHECK(jail_plan_parse(&plan, 2, words, &error) == 0);
	CHECK(jail_attach_binds(&plan, NULL, &error) == 0);
	jail_plan_free(&plan);
	remove_elsewhere(JAIL "/data");
	refuses("the volume at /data is lost, since its directory in the jail " JAIL " was removed");
	make_directory(JAIL "/data", 0755);
	CHECK(enter_with(NULL) == 0);
	CHECK_HAS(said, "the volume at /data was lost");
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/data/iam-volume"));
	jail_view_close(&view);
}

static void make_map(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* As in a pod with a user namespace of its own, whose mounts another one made: the kernel does not let such a mount go from its place. */
static void a_jail_that_is_locked_in_its_place(void)
{
	make_pod();
	CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
	make_map("/proc/self/setgroups", "deny");
	make_map("/proc/self/uid_map", "0 0 1");
	make_map("/proc/self/gid_map", "0 0 1");
	CHECK(enter_with(NULL) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/iam-jail") && !there_is(POD "/iam-pod"));
	jail_view_close(&view);
}

static void all_cases(void)
{
	CASE(the_step_sees_the_pods_programs);
	CASE(the_task_sees_the_jail_alone);
	CASE(root_of_the_jail_takes_no_device_from_others);
	CASE(slurmstepd_writes_cgroups_and_its_task_reads_them);
	CASE(slurmstepd_stays_when_its_task_leaves);
	CASE(the_pods_root_lies_over_neither_view);
	CASE(a_task_does_not_go_where_the_pod_still_is);
	CASE(slurmd_sees_none_of_it);
	CASE(steps_of_a_job_share_tmp_and_shm);
	CASE(shm_of_the_pod);
	CASE(set_uid_is_the_jails_own);
	CASE(a_jail_without_set_uid_stays_so);
	CASE(read_only);
	CASE(before_the_first_job);
	CASE(a_slurm_that_has_its_configuration_elsewhere);
	CASE(no_spool);
	CASE(volumes_below_the_jail_come_along);
	CASE(huge_pages_and_message_queues_are_the_pods);
	CASE(a_volume_that_was_lost_comes_back_or_nothing_is_run);
	CASE(binds_are_shown);
	CASE(bind_to_nowhere_is_refused);
	CASE(missing_optional_mount_point_is_skipped);
	CASE(missing_mandatory_mount_point_is_refused);
	CASE(planted_links_are_refused);
	CASE(planted_link_of_a_file_shows_nothing);
	CASE(devices_on_the_volume_are_dead);
	CASE(unmerged_jail_gets_the_pods_libraries);
	CASE(no_marker_no_entry);
	CASE(moved_out_is_noticed);
	CASE(nothing_stays_open);
	CASE(capabilities_are_gone_for_good);
	CASE(who_has_dropped_them_leaves_for_the_jail_all_the_same);
	CASE(a_jail_that_is_locked_in_its_place);
}

int main(void)
{
	if (needs_root())
		return 0;
	all_cases();
	jail_is_volume = true;
	puts("the same with a jail that is a volume of its own:");
	fflush(stdout);
	all_cases();
	return finish();
}
