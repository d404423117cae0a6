/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The little that the tests of libjail need: cases that run in a process of their own, checks that say where they failed, and
 * a pod with a jail built of tmpfs in a private mount namespace.
 */
#ifndef CORRAL_TEST_CHECK_H
#define CORRAL_TEST_CHECK_H

#define _GNU_SOURCE

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

static int failures __attribute__((unused));

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

#define CHECK_HAS(text, part)                                                                             \
	do {                                                                                              \
		if (!strstr(text, part)) {                                                                \
			fprintf(stderr, "%s:%d: '%s' is not in: %s\n", __FILE__, __LINE__, part, text);   \
			exit(1);                                                                          \
		}                                                                                         \
	} while (0)

#define CASE(function) run_case(#function, function)

static inline void run_case(const char *name, void (*function)(void))
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		function();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "FAILED %s\n", name);
		failures++;
		return;
	}
	printf("ok %s\n", name);
	fflush(stdout);
}

static inline int finish(void)
{
	return failures ? 1 : 0;
}

static inline void make_directory(const char *path, mode_t mode)
{
	CHECK(mkdir(path, mode) == 0);
	CHECK(chmod(path, mode) == 0);
}

static inline void make_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK(fclose(file) == 0);
}

static inline bool there_is(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0;
}

#define POD "/mnt"
#define JAIL POD "/jail"
#define SPOOL "/mnt/spool"

static inline bool stays(const char *point)
{
	static const char *const places[] = {"/proc", "/sys", "/dev", "/etc", "/usr", "/opt"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (strncmp(point, places[i], strlen(places[i])) == 0)
			return true;
	return strcmp(point, "/") == 0 || strcmp(point, "/tmp") == 0;
}

/* A pod has its own mounts alone. Those of the machine go even from a private mount namespace, when somebody removes their directories, and a step that
 * comes then is right to take the pod for another one. */
static inline void leave_the_machines_mounts(void)
{
	char *line = NULL;
	char *all = NULL;
	size_t size = 0;
	size_t length = 0;
	char point[4096];
	FILE *file = fopen("/proc/self/mountinfo", "r");
	FILE *copy = open_memstream(&all, &length);

	CHECK(file && copy);
	while (getline(&line, &size, file) > 0)
		if (sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && !stays(point))
			fprintf(copy, "%s\n", point);
	fclose(file);
	fclose(copy);
	/* Some went with the one that they were on. */
	for (char *next = strtok(all, "\n"); next; next = strtok(NULL, "\n"))
		umount2(next, MNT_DETACH);
	free(line);
	free(all);
}

/* Lines of mountinfo that have both. */
static inline int count_mounts_with(const char *one, const char *other)
{
	char *line = NULL;
	size_t size = 0;
	int count = 0;
	FILE *file = fopen("/proc/self/mountinfo", "r");

	CHECK(file);
	while (getline(&line, &size, file) > 0)
		count += strstr(line, one) && strstr(line, other);
	free(line);
	fclose(file);
	return count;
}

/* Those of the pod. */
static inline int count_mounts(void)
{
	return count_mounts_with(" " POD "/", "");
}

/* As many at once as a large step brings: each in a process of its own, which is to end well. */
#define FIFTY 50
static inline void fifty_at_once(void (*work)(int number))
{
	pid_t children[FIFTY];
	int status;

	for (int i = 0; i < FIFTY; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			work(i);
			exit(0);
		}
	}
	for (int i = 0; i < FIFTY; i++)
		CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
}

/* A jail is a volume of its own, as in a pod, or a plain directory. */
static bool jail_is_volume __attribute__((unused));

/* Turns this process into a pod: tmpfs where the image has directories of its own, and a jail as the populate job leaves it. */
static inline void make_pod(void)
{
	static const char *const directories[] = {
		"/run/munge", "/run/slurm", "/run/shm", "/opt/corral", POD "/spool", JAIL, JAIL "/proc", JAIL "/sys", JAIL "/dev", JAIL "/run", JAIL "/tmp",
		JAIL "/usr", JAIL "/usr/lib", JAIL "/etc", JAIL "/opt", JAIL "/opt/corral", JAIL "/data", JAIL "/mnt", JAIL "/mnt/spool",
	};

	CHECK(unshare(CLONE_NEWNS) == 0);
	CHECK(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) == 0);
	leave_the_machines_mounts();
	CHECK(mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0);
	CHECK(mount("tmpfs", "/opt", "tmpfs", 0, "mode=755") == 0);
	CHECK(mount("tmpfs", POD, "tmpfs", 0, "mode=755") == 0);
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		make_directory(directories[i], 0755);
	if (jail_is_volume)
		CHECK(mount(JAIL, JAIL, NULL, MS_BIND, NULL) == 0);
	CHECK(symlink("usr/lib", JAIL "/lib") == 0);
	make_file(JAIL "/etc/corral-jail", "{}\n");
	make_file(JAIL "/etc/hosts", "jail\n");
	make_file(JAIL "/iam-jail", "");
	make_file(JAIL "/usr/iam-jail", "");
	make_file("/run/munge/socket", "");
	make_file("/run/pods-own", "");
	make_file(SPOOL "/script", "");
	make_file(SPOOL "/node_42.0", "");
	make_directory(SPOOL "/conf-cache", 0755);
	make_file(SPOOL "/conf-cache/slurm.conf", "");
	make_directory(SPOOL "/job00042", 0700);
	make_file(SPOOL "/job00042/slurm_script", "");
	make_directory(SPOOL "/job00043", 0700);
	make_file(POD "/iam-pod", "");
}

/* A /dev as a container has it. What a test adds comes before show_dev. */
static inline void make_dev(void)
{
	make_directory(POD "/dev", 0755);
	CHECK(mount("tmpfs", POD "/dev", "tmpfs", 0, "mode=755") == 0);
	make_directory(POD "/dev/pts", 0755);
	CHECK(mount("/dev/pts", POD "/dev/pts", NULL, MS_BIND, NULL) == 0);
	CHECK(mknod(POD "/dev/null", S_IFCHR | 0666, makedev(1, 3)) == 0);
}

static inline void show_dev(void)
{
	CHECK(mount(POD "/dev", "/dev", NULL, MS_MOVE, NULL) == 0);
}

static inline int needs_root(void)
{
	if (geteuid() == 0)
		return 0;
	printf("skipped: mounting needs root\n");
	return 1;
}

#endif
