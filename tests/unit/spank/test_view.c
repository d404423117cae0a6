/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * slurmstepd's view, while root of the jail on another node moves what there is of the jail: nothing of the pod's may move with it, nothing that programs
 * load or look up may come from there, and the job's files are found by the names that users know.
 */
#include "check.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

static struct jail_view view;
static struct jail_error error;
static char *tmp = "tmp=" SPOOL "/corral/tmp";
static enum jail_mode mode = JAIL_RW;

static void enter(void)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, tmp, "shm=/run/shm/corral", "overlay=/run/overlay", "wait=0"};
	struct jail_plan plan;

	CHECK(jail_plan_parse(&plan, 6, words, &error) == 0);
	CHECK(jail_plan_choose_mode(&plan, mode, &error) == 0);
	CHECK(mode != JAIL_OVERLAY || jail_overlay_mount(&plan, 42, &error) == 0);
	CHECK(jail_enter(&plan, 42, NULL, &view, &error) == 0);
	jail_plan_free(&plan);
}

static void leave(void)
{
	jail_view_close(&view);
	/* Without the leak check, which has no /proc where a test has taken it away. */
	_exit(0);
}

/* Another node: the jail's volume without what is mounted over it here. Does as it is told when a byte comes, and says so by one. */
struct node {
	int order;
	int done;
};

static struct node other_node(void (*act)(void))
{
	int order[2];
	int done[2];
	pid_t child;

	CHECK(pipe(order) == 0 && pipe(done) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;

		close(order[1]);
		if (read(order[0], &byte, 1) == 1) {
			act();
			CHECK(write(done[1], "x", 1) == 1);
		}
		_exit(0);
	}
	close(order[0]);
	close(done[1]);
	return (struct node){order[1], done[0]};
}

static void now(const struct node *node)
{
	char byte;

	CHECK(write(node->order, "x", 1) == 1);
	CHECK(read(node->done, &byte, 1) == 1);
}

static const char *const moved[] = {"usr", "etc", "lib", "run", "var", "opt", "proc", "dev", "sys", "tmp", "mnt", "bin", "lib64"};
#define MOVED (sizeof(moved) / sizeof(moved[0]))

static void plant(void)
{
	make_directory(JAIL "/var", 0755);
	make_directory(JAIL "/bin", 0755);
	make_directory(JAIL "/lib64", 0755);
	make_directory(JAIL "/planted", 0755);
	for (size_t i = 0; i < MOVED; i++) {
		char path[64];

		snprintf(path, sizeof(path), JAIL "/planted/%s", moved[i]);
		make_directory(path, 0755);
		strcat(path, "/evil");
		make_file(path, "");
	}
	make_directory(JAIL "/planted/mnt/spool", 0755);
	make_directory(JAIL "/planted/opt/corral", 0755);
	make_file(JAIL "/planted/mnt/spool/evil", "");
	make_file(JAIL "/planted/opt/corral/evil", "");
}

static void exchange(void)
{
	for (size_t i = 0; i < MOVED; i++) {
		char from[64];
		char to[64];

		snprintf(from, sizeof(from), JAIL "/planted/%s", moved[i]);
		snprintf(to, sizeof(to), JAIL "/%s", moved[i]);
		CHECK(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 2 /* RENAME_EXCHANGE */) == 0);
	}
}

static void nothing_is_planted(void)
{
	for (size_t i = 0; i < MOVED; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/%s/evil", moved[i]);
		CHECK(strcmp(moved[i], "mnt") == 0 || !there_is(path));
	}
	CHECK(!there_is(SPOOL "/evil") && there_is(SPOOL "/script"));
	CHECK(!there_is("/opt/corral/evil") && there_is("/opt/corral/iam-pod"));
	CHECK(there_is("/usr/bin") && there_is("/lib/") && there_is("/run/munge/socket"));
	CHECK(there_is("/proc/self") && there_is("/dev/null") && there_is("/tmp/mine"));
}

static void what_is_renamed_in_the_jail_moves_nothing(void)
{
	struct node node;
	int file;

	make_pod();
	plant();
	make_file("/opt/corral/iam-pod", "");
	node = other_node(exchange);
	enter();
	file = open("/tmp/mine", O_CREAT | O_WRONLY, 0600);
	CHECK(file >= 0);
	close(file);
	nothing_is_planted();
	now(&node);
	nothing_is_planted();
	leave();
}

/* Not during a step, but before: and with an older view that is kept. */
static void what_was_renamed_before_is_not_taken_for_the_pods(void)
{
	struct node node;
	int status;
	pid_t child;

	make_pod();
	plant();
	make_file("/opt/corral/iam-pod", "");
	/* What a step needs of the jail itself stays. */
	for (size_t i = 0; i < MOVED; i++) {
		char path[64];

		snprintf(path, sizeof(path), JAIL "/planted/%s/corral-jail", moved[i]);
		make_file(path, "{}\n");
	}
	node = other_node(exchange);
	child = fork();
	if (child == 0) {
		enter();
		leave();
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	now(&node);
	enter();
	CHECK(!there_is("/usr/evil") && !there_is("/etc/evil") && !there_is("/lib/evil") && !there_is("/run/evil") && !there_is(SPOOL "/evil"));
	CHECK(there_is("/usr/bin") && there_is("/opt/corral/iam-pod") && there_is("/run/munge/socket"));
	leave();
}

static bool write_to(const char *path)
{
	int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	if (file >= 0)
		close(file);
	return file >= 0;
}

/* As in the image of Slurm's daemons. */
static void take_names_from_the_jail(void)
{
	CHECK(mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=755") == 0);
	make_directory("/var/lib/extrausers", 0755);
	CHECK(symlink(JAIL "/etc/passwd", "/var/lib/extrausers/passwd") == 0);
	CHECK(symlink(JAIL "/etc/group", "/var/lib/extrausers/group") == 0);
}

static void pipe_at(const char *path)
{
	unlink(path);
	CHECK(mkfifo(path, 0666) == 0);
}

static void nobody_waits_for_a_pipe_of_the_jail(void)
{
	static const char *const files[] = {"/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache", "/etc/host.conf"};

	make_pod();
	take_names_from_the_jail();
	make_directory(JAIL "/var", 0755);
	make_directory(JAIL "/var/lib", 0755);
	make_directory(JAIL "/var/lib/extrausers", 0755);
	pipe_at(JAIL "/var/lib/extrausers/passwd");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[64];

		snprintf(path, sizeof(path), JAIL "%s", files[i]);
		pipe_at(path);
	}
	/* Ends this case: what opens a pipe would wait for ever. */
	alarm(20);
	enter();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct stat status;

		CHECK(stat(files[i], &status) < 0 || S_ISREG(status.st_mode));
	}
	CHECK(write_to("/var/lib/extrausers/passwd") == false);
	tzset();
	leave();
}

static void users_names_are_the_jails(void)
{
	char line[64] = "";
	FILE *file;

	make_pod();
	take_names_from_the_jail();
	make_file(JAIL "/etc/passwd", "ada:x:10001:10001::/home/ada:/bin/sh\n");
	/* A link leads nowhere. */
	make_file(JAIL "/secret", "secret\n");
	CHECK(symlink("/secret", JAIL "/etc/group") == 0);
	enter();
	file = fopen("/var/lib/extrausers/passwd", "r");
	CHECK(file && fgets(line, sizeof(line), file) && strncmp(line, "ada:", 4) == 0);
	fclose(file);
	file = fopen("/var/lib/extrausers/group", "r");
	CHECK(file && !fgets(line, sizeof(line), file));
	fclose(file);
	leave();
}

static void the_jobs_files_are_found_by_their_names(void)
{
	static const char *const files[] = {
		"/data/out", "/opt/site/out", "/var/tmp/out", "/mnt/project/out", "/link/out", "/tmp/out", "/dev/shm/out", "/file", "/run/lock/out",
	};

	make_pod();
	make_directory(JAIL "/opt/site", 0755);
	make_directory(JAIL "/var", 0755);
	make_directory(JAIL "/var/tmp", 01777);
	make_directory(JAIL "/mnt/project", 0755);
	CHECK(symlink("/data", JAIL "/link") == 0);
	make_file(JAIL "/file", "");
	enter();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!write_to(files[i])) {
			fprintf(stderr, "%s: %s\n", files[i], strerror(errno));
			CHECK(false);
		}
	CHECK(jail_strip(&view, &error) == 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		CHECK(there_is(files[i]));
	leave();
}

static void with_the_jails_own_tmp(void)
{
	tmp = "tmp=jail";
	make_pod();
	enter();
	CHECK(write_to("/tmp/out"));
	CHECK(jail_strip(&view, &error) == 0 && there_is("/tmp/out"));
	leave();
}

static void a_new_name_is_there_for_the_next_step(void)
{
	int status;
	pid_t child;

	make_pod();
	child = fork();
	if (child == 0) {
		enter();
		CHECK(!there_is("/new"));
		leave();
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	make_directory(JAIL "/new", 0755);
	enter();
	CHECK(write_to("/new/out"));
	leave();
}

/* Its upper directory is on a file system of its own here. */
static void a_name_that_only_the_jobs_overlay_has(void)
{
	int status;
	pid_t child;

	make_pod();
	mode = JAIL_OVERLAY;
	child = fork();
	if (child == 0) {
		enter();
		CHECK(jail_strip(&view, &error) == 0 && mkdir("/of-the-job", 0755) == 0);
		leave();
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	enter();
	CHECK(write_to("/of-the-job/out") && !there_is("/usr/iam-jail"));
	leave();
}

static void names_that_the_view_has_itself(void)
{
	make_pod();
	make_directory(JAIL "/" JAIL_IN_VIEW, 0755);
	make_file(JAIL "/" JAIL_IN_VIEW "/evil", "");
	make_directory(JAIL "/lib32", 0755);
	make_file(JAIL "/lib32/evil", "");
	enter();
	CHECK(!there_is("/" JAIL_IN_VIEW "/evil") && there_is("/" JAIL_IN_VIEW "/iam-jail"));
	CHECK(!there_is("/lib32/evil"));
	leave();
}

static void a_jail_with_more_names_than_can_be_kept(void)
{
	make_pod();
	for (int i = 0; i < 10000; i++) {
		char path[64];

		snprintf(path, sizeof(path), JAIL "/%d", i);
		make_file(path, "");
	}
	enter();
	CHECK(there_is("/usr/bin") && there_is(SPOOL "/script"));
	leave();
}

int main(void)
{
	if (needs_root())
		return 0;
	for (int i = 0; i < 2; i++) {
		jail_is_volume = i > 0;
		CASE(what_is_renamed_in_the_jail_moves_nothing);
		CASE(what_was_renamed_before_is_not_taken_for_the_pods);
		CASE(nobody_waits_for_a_pipe_of_the_jail);
		CASE(users_names_are_the_jails);
		CASE(the_jobs_files_are_found_by_their_names);
		CASE(with_the_jails_own_tmp);
		CASE(a_new_name_is_there_for_the_next_step);
		CASE(a_name_that_only_the_jobs_overlay_has);
		CASE(names_that_the_view_has_itself);
		CASE(a_jail_with_more_names_than_can_be_kept);
	}
	return finish();
}
