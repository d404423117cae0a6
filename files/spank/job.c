/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What a job has of its own on a node (/tmp, /dev/shm, an overlay): one directory a job below a base, shared by the job's steps,
 * made by the first of them and removed by the job's epilog. The base is closed to users (0700), so that no user reaches another
 * job's directory by its name.
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
#include <unistd.h>

#include "internal.h"

/* Makes every missing part of the base. Its parents are the pod's own and trusted. */
static int open_base(const char *base)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s", base) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -1;
		*slash = '/';
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int jail_job_open(const char *base, uint32_t job, mode_t mode, struct jail_error *error)
{
	char name[16];
	struct stat status;
	int directory = -1;
	int parent = open_base(base);

	if (parent < 0)
		return jail_fail(error, "the directory %s for the jobs' own directories cannot be made (%s): check the node's local scratch", base,
				 strerror(errno));
	snprintf(name, sizeof(name), "%u", (unsigned)job);
	if (fstat(parent, &status) < 0 || ((status.st_mode & 077) && fchmod(parent, 0700) < 0))
		goto out;
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		goto out;
	directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (directory >= 0 && fchmod(directory, mode) < 0) {
		jail_close(directory);
		directory = -1;
	}
out:
	jail_close(parent);
	if (directory < 0)
		return jail_fail(error, "the job's own directory %s/%s cannot be made (%s): check the node's local scratch", base, name,
				 strerror(errno));
	return directory;
}

/* Removes what is in the directory, by descriptors: a link is removed and never followed, another file system is not entered.
 * Continues after a failure and returns -1 with the last one in errno. Takes the descriptor over. */
static int empty(int directory, dev_t device)
{
	struct dirent *entry;
	int failed = 0;
	DIR *list = fdopendir(directory);

	if (!list) {
		jail_close(directory);
		return -1;
	}
	while ((entry = readdir(list))) {
		struct stat status;
		int child;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(directory, entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		child = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (child < 0 || fstat(child, &status) < 0 || status.st_dev != device) {
			failed = child < 0 ? errno : EXDEV;
			jail_close(child);
			continue;
		}
		if (empty(child, device) < 0 || unlinkat(directory, entry->d_name, AT_REMOVEDIR) < 0)
			failed = errno;
	}
	closedir(list);
	errno = failed;
	return failed ? -1 : 0;
}

/* Nothing there is a success: the job never came to its first step. */
int jail_job_remove(const char *base, uint32_t job, struct jail_error *error)
{
	char name[16];
	struct stat status;
	int directory;
	int result = -1;
	int parent = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (parent < 0 && errno == ENOENT)
		return 0;
	snprintf(name, sizeof(name), "%u", (unsigned)job);
	directory = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (directory < 0 && parent >= 0 && errno == ENOENT)
		result = 0;
	else if (directory >= 0 && fstat(directory, &status) == 0)
		result = empty(directory, status.st_dev) < 0 ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
	jail_close(parent);
	if (result < 0)
		return jail_fail(error, "the job's own directory %s/%s could not be removed wholly (%s): remove it by hand", base, name, strerror(errno));
	return 0;
}
