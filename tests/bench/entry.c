/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The least that an entry into a jail takes: a mount namespace, the jail's mounts as mount(2) makes them, and pivot_root. It checks nothing, keeps
 * nothing for the next one, and has no second root for slurmstepd.
 *
 *   entry COUNT ROOT <mounts     prints {"p50": …, "p99": …} in microseconds, each entry in a process of its own; 0: shows the mounts after one
 *
 * A line a mount: SOURCE TARGET TYPE FLAGS, both paths as they are before the entry. TYPE "bind" is a mount of a file or a directory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 256

struct mount {
	char source[256];
	char target[256];
	char type[16];
	unsigned long flags;
};

static struct mount mounts[MOST];
static size_t count;

static void die(const char *what)
{
	fprintf(stderr, "entry: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int lay(const struct mount *one)
{
	if (strcmp(one->type, "bind") != 0)
		return mount(one->type, one->target, one->type, one->flags & ~MS_RDONLY, NULL);
	if (mount(one->source, one->target, NULL, MS_BIND, NULL) < 0)
		return -1;
	return mount(NULL, one->target, NULL, MS_REMOUNT | MS_BIND | one->flags, NULL);
}

/* On a file system that was mounted just now. */
static int make_place(const struct mount *one)
{
	struct stat status;

	if (strcmp(one->type, "bind") == 0 && stat(one->source, &status) == 0 && !S_ISDIR(status.st_mode))
		return mknod(one->target, S_IFREG | 0644, 0);
	return mkdir(one->target, 0755);
}

static void enter(const char *root)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		die("unshare");
	for (size_t i = 0; i < count; i++)
		if (lay(&mounts[i]) < 0 && (errno != ENOENT || make_place(&mounts[i]) < 0 || lay(&mounts[i]) < 0))
			die(mounts[i].target);
	for (size_t i = 0; i < count; i++)
		if (strcmp(mounts[i].type, "bind") != 0 && mounts[i].flags & MS_RDONLY &&
		    mount(NULL, mounts[i].target, NULL, MS_REMOUNT | MS_BIND | mounts[i].flags, NULL) < 0)
			die(mounts[i].target);
	if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		die(root);
}

static void show(void)
{
	char line[4096];
	FILE *file = fopen("/proc/self/mountinfo", "r");

	if (!file)
		die("/proc/self/mountinfo");
	while (fgets(line, sizeof(line), file))
		fputs(line, stdout);
	fclose(file);
}

static long time_entry(const char *root)
{
	int result[2];
	long took = -1;
	pid_t child;

	if (pipe(result) < 0 || (child = fork()) < 0)
		die("fork");
	if (child == 0) {
		struct timespec start;
		struct timespec end;

		clock_gettime(CLOCK_MONOTONIC, &start);
		enter(root);
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (end.tv_sec - start.tv_sec) * 1000000L + (end.tv_nsec - start.tv_nsec) / 1000L;
		_exit(write(result[1], &took, sizeof(took)) == sizeof(took) ? 0 : 1);
	}
	close(result[1]);
	if (read(result[0], &took, sizeof(took)) != sizeof(took))
		exit(1);
	close(result[0]);
	waitpid(child, NULL, 0);
	return took;
}

static int compare(const void *left, const void *right)
{
	long a = *(const long *)left;
	long b = *(const long *)right;

	return (a > b) - (a < b);
}

int main(int arguments, char **argument)
{
	int times = arguments == 3 ? atoi(argument[1]) : -1;
	long *took = calloc((size_t)(times > 0 ? times : 1), sizeof(*took));

	if (times < 0 || !took)
		return 2;
	while (count < MOST && scanf("%255s %255s %15s %lu", mounts[count].source, mounts[count].target, mounts[count].type, &mounts[count].flags) == 4)
		count++;
	if (times == 0) {
		enter(argument[2]);
		show();
		return 0;
	}
	for (int i = 0; i < times; i++)
		took[i] = time_entry(argument[2]);
	qsort(took, (size_t)times, sizeof(*took), compare);
	printf("{\"p50\": %ld, \"p99\": %ld}\n", took[times / 2], took[times * 99 / 100]);
	free(took);
	return 0;
}
