/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What slurmstepd, sshd or the caller of jail-exec had open: a descriptor of a directory leads to all that lies above it, whatever root its process has,
 * and by one of a file root in the jail writes the file, however it was opened. As Slurm does, --input and --output are opened in slurmstepd's view, as the user.
 */
#include "check.h"

#include <errno.h>

static struct jail_view view;
static struct jail_error error;

static void enter(void)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "wait=0"};
	struct jail_plan plan;

	make_pod();
	make_file(JAIL "/data/in", "text");
	CHECK(mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755") == 0);
	make_file("/sys/fs/cgroup/cgroup.procs", "1");
	CHECK(chmod(SPOOL "/conf-cache/slurm.conf", 0644) == 0);
	CHECK(jail_plan_parse(&plan, 5, words, &error) == 0);
	CHECK(jail_enter(&plan, 42, NULL, &view, &error) == 0);
	jail_plan_free(&plan);
}

static int open_as_user(const char *path, int flags)
{
	int fd;

	CHECK(setegid(10001) == 0 && seteuid(10001) == 0);
	fd = open(path, flags | O_CLOEXEC, 0644);
	CHECK(seteuid(0) == 0 && setegid(0) == 0);
	return fd;
}

/* slurmstepd stays in its view, and its child goes on, up to the call of slurm_spank_task_init: what was opened becomes one of the three. */
static int begin_task(int fd, int standard)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (child > 0)
		_exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(dup2(fd, standard) == standard);
	CHECK(setresgid(10001, 10001, 10001) == 0 && setresuid(10001, 10001, 10001) == 0);
	return jail_standard_is_jails(&view, &error);
}

static const char *where;

static void a_directory_is_no_input(void)
{
	int fd;

	enter();
	fd = open_as_user(where, O_RDONLY);
	CHECK(fd >= 0);
	CHECK(begin_task(fd, 0) == -1);
	CHECK_HAS(error.text, "standard input is a directory");
}

static void a_file_of_slurmstepds_view_is_none_that_could_be_written(void)
{
	int fd;

	enter();
	fd = open_as_user(where, O_RDONLY);
	CHECK(fd >= 0);
	CHECK(begin_task(fd, 0) == -1);
	CHECK_HAS(error.text, "standard input is a file outside of the jail");
}

static void a_file_of_the_jail_is_one(void)
{
	int fd;

	enter();
	fd = open_as_user(where, O_RDONLY | O_CREAT);
	CHECK(fd >= 0);
	if (begin_task(fd, 0) < 0) {
		fprintf(stderr, "%s: %s\n", where, error.text);
		exit(1);
	}
}

static void so_are_pipes_and_devices(void)
{
	int pipes[2];
	int fd;

	enter();
	CHECK(pipe(pipes) == 0);
	CHECK(dup2(pipes[0], 0) == 0 && dup2(pipes[1], 1) == 1);
	fd = open_as_user("/dev/null", O_RDWR);
	CHECK(fd >= 0);
	CHECK(begin_task(fd, 2) == 0);
}

/* It could be read and be executed anyway: /usr and the like are shown read-only. */
static void so_is_what_nobody_can_write_by_it(void)
{
	int fd;
	char again[64];

	enter();
	fd = open_as_user("/usr/bin/env", O_RDONLY);
	CHECK(fd >= 0);
	CHECK(begin_task(fd, 0) == 0);
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	CHECK(open(again, O_WRONLY) == -1);
}

static void each_of_the_three_is_looked_at(void)
{
	static const char *const names[] = {"standard input", "standard output", "standard error"};

	enter();
	CHECK(jail_strip(&view, &error) == 0);
	for (int i = 0; i < 3; i++) {
		int kept = dup(i);
		int fd = open("/", O_PATH | O_CLOEXEC);

		CHECK(kept >= 0 && dup2(fd, i) == i && jail_standard_is_jails(&view, &error) == -1 && dup2(kept, i) == i);
		CHECK_HAS(error.text, names[i]);
		close(kept);
		close(fd);
	}
}

/* Programs that the task executes have none of them. */
static void other_directories_are_closed_when_it_executes(void)
{
	int directory;
	int path;
	int pipes[2];
	char script[256];

	enter();
	directory = open("/", O_RDONLY | O_DIRECTORY);
	path = open("/data/in", O_PATH);
	CHECK(directory >= 0 && path >= 0 && pipe(pipes) == 0);
	snprintf(script, sizeof(script), "test ! -e /proc/self/fd/%d && test ! -e /proc/self/fd/%d && test -e /proc/self/fd/%d", directory, path, pipes[0]);
	CHECK(jail_descriptors_leave(JAIL_AT_EXEC, &error) == 0);
	CHECK(fcntl(directory, F_GETFD) == FD_CLOEXEC);
	execl("/bin/sh", "sh", "-c", script, NULL);
	CHECK(!"there is no shell");
}

/* sshd serves files by itself, without executing anything. */
static void or_at_once(void)
{
	int directory;
	int pipes[2];

	enter();
	directory = open("/", O_RDONLY | O_DIRECTORY);
	CHECK(directory >= 0 && pipe(pipes) == 0);
	CHECK(jail_descriptors_leave(JAIL_NOW, &error) == 0);
	CHECK(fcntl(directory, F_GETFD) == -1 && errno == EBADF);
	CHECK(fcntl(pipes[0], F_GETFD) == 0);
}

static void jail_strip_leaves_them(void)
{
	int directory;

	enter();
	directory = open("/", O_RDONLY | O_DIRECTORY);
	CHECK(directory >= 0 && jail_strip(&view, &error) == 0);
	CHECK(fcntl(directory, F_GETFD) == FD_CLOEXEC);
}

static void a_caller_with_a_directory_for_its_input_is_refused(void)
{
	enter();
	CHECK(dup2(open("/", O_RDONLY | O_DIRECTORY), 0) == 0);
	CHECK(jail_strip(&view, &error) == -1);
	CHECK_HAS(error.text, "standard input is a directory");
}

/* Root in the jail on another node can give the name of /proc to a directory of theirs. */
static void the_jails_proc_is_not_asked(void)
{
	int fd;

	enter();
	fd = open_as_user("/", O_RDONLY);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(dup2(fd, 0) == 0);
	CHECK(umount2("/proc", MNT_DETACH) == 0);
	CHECK(jail_standard_is_jails(&view, &error) == -1);
	_exit(0); /* without the leak check, which has no /proc */
}

/* Whoever runs the tests may keep their words in a file, and a file outside of the jail is what is refused: the three are what a terminal would be. */
static pid_t pass_words_on(void)
{
	int words[2];
	int nothing = open("/dev/null", O_RDONLY);
	pid_t child;

	CHECK(nothing >= 0 && dup2(nothing, 0) == 0 && pipe2(words, O_CLOEXEC) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(words[0], 0) == 0);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	CHECK(dup2(words[1], 1) == 1 && dup2(words[1], 2) == 2);
	close(words[0]);
	close(words[1]);
	close(nothing);
	return child;
}

int main(void)
{
	int status;
	pid_t words;
	static const char *const directories[] = {"/", "/data", "/tmp", "/proc/self/root", "/" JAIL_IN_VIEW, "/proc/self/cwd"};
	static const char *const outside[] = {SPOOL "/conf-cache/slurm.conf", "/proc/self/root" SPOOL "/conf-cache/slurm.conf", "/proc/self/maps", "/sys/fs/cgroup/cgroup.procs"};
	static const char *const inside[] = {"/data/in", "/" JAIL_IN_VIEW "/data/in", "/tmp/in", "/dev/shm/in", "/proc/self/root/data/in"};

	if (needs_root())
		return 0;
	umask(022); /* users read what is written here, whatever the shell's is */
	words = pass_words_on();
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		where = directories[i];
		CASE(a_directory_is_no_input);
	}
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		where = outside[i];
		CASE(a_file_of_slurmstepds_view_is_none_that_could_be_written);
	}
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
		where = inside[i];
		CASE(a_file_of_the_jail_is_one);
	}
	CASE(so_are_pipes_and_devices);
	CASE(so_is_what_nobody_can_write_by_it);
	CASE(each_of_the_three_is_looked_at);
	CASE(other_directories_are_closed_when_it_executes);
	CASE(or_at_once);
	CASE(jail_strip_leaves_them);
	CASE(a_caller_with_a_directory_for_its_input_is_refused);
	CASE(the_jails_proc_is_not_asked);
	close(1);
	close(2);
	return waitpid(words, &status, 0) == words && status == 0 ? finish() : 1;
}
