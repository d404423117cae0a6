/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What is open goes along into another mount namespace. From a directory ".." leads to all that lies above it, for only the root of a process stops that,
 * and the root of a task is on another mount; a file that was opened for reading is opened for writing by its name in /proc/self/fd, where its mount and its
 * mode allow that. slurmstepd opens what a user names for --input, --output and --error in its own view, as that user: a directory too.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "internal.h"

static bool is_standard(int fd)
{
	return fd <= STDERR_FILENO;
}

static const char *name_of(int fd)
{
	static const char *const names[] = {"input", "output", "error"};

	return names[fd];
}

/* A directory, or a descriptor that opens nothing (O_PATH), by which whatever it names is opened. */
static bool leads_on(int fd)
{
	struct stat status;
	int flags = fcntl(fd, F_GETFL);

	return fstat(fd, &status) == 0 && (S_ISDIR(status.st_mode) || (flags >= 0 && (flags & O_PATH)));
}

static int fail_directory(int fd, struct jail_error *error)
{
	return jail_fail(error, "standard %s is a directory, and nothing is run in the jail with one open: give a file (--%s, or a redirection of the shell)",
			 name_of(fd), name_of(fd));
}

/* For the calling process, where /proc is the pod's: the jail's may be another directory that root in the jail has put there. */
int jail_descriptors_leave(enum jail_leave when, struct jail_error *error)
{
	DIR *list = opendir("/proc/self/fd");
	struct dirent *entry;
	int result = 0;

	if (!list)
		return jail_fail(error, "what this process has open cannot be looked up (/proc/self/fd: %s): nothing is run", strerror(errno));
	while (result == 0 && (entry = readdir(list))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(list) || !leads_on(fd))
			continue;
		if (is_standard(fd))
			result = fail_directory(fd, error);
		else if (when == JAIL_NOW)
			close(fd);
		else if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			result = jail_fail(error, "descriptor %d of a directory cannot be closed (%s): nothing is run", fd, strerror(errno));
	}
	closedir(list);
	return result;
}

/* By its path in slurmstepd's view, which has the jail at three places; everything else there is the pod's. */
static bool lies_in_jail(int descriptors, int fd)
{
	static const char *const places[] = {"/" JAIL_IN_VIEW "/", "/tmp/", "/dev/shm/"};
	char name[12];
	char path[PATH_MAX];
	ssize_t length;

	snprintf(name, sizeof(name), "%d", fd);
	length = readlinkat(descriptors, name, path, sizeof(path) - 1);
	if (length <= 0)
		return false;
	path[length] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (strncmp(path, places[i], strlen(places[i])) == 0)
			return true;
	return false;
}

/* For a task, after jail_strip, when the three are what it will have. */
int jail_standard_is_jails(const struct jail_view *view, struct jail_error *error)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		struct stat status;
		struct statvfs mount;

		if (leads_on(fd))
			return fail_directory(fd, error);
		if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || (fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_RDONLY)))
			continue;
		if (!lies_in_jail(view->descriptors, fd))
			return jail_fail(error, "standard %s is a file outside of the jail: give a file of the jail (--%s)", name_of(fd), name_of(fd));
	}
	return 0;
}
