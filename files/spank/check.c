/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Is that directory really a jail? Asked before anything is mounted, so that an unmounted volume or somebody's own
 * directory is never entered as root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static int check(int root, const char *path, struct jail_error *error)
{
	struct stat status;
	int marker;

	if (fstat(root, &status) < 0)
		return jail_fail(error, "the jail %s can not be read (%s): look at the volume's mount in this pod", path, strerror(errno));
	if (status.st_uid != 0)
		return jail_fail(error, "the jail %s belongs to uid %u, not to root: run 'chown root %s' on the volume", path,
				 (unsigned)status.st_uid, path);
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		return jail_fail(error, "the jail %s is writable by others than root (mode %04o): run 'chmod 0755 %s' on the volume", path,
				 (unsigned)(status.st_mode & 07777), path);
	marker = jail_path_open(root, JAIL_MARKER, O_PATH | O_NOFOLLOW);
	if (marker < 0)
		return jail_fail(error,
				 "%s has no marker file " JAIL_MARKER " (%s): the volume is not mounted or not populated yet, look at the populate job",
				 path, strerror(errno));
	if (fstat(marker, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != 0) {
		close(marker);
		return jail_fail(error, "the marker file " JAIL_MARKER " of %s is not a plain file of root: populate the jail anew", path);
	}
	close(marker);
	return 0;
}

/* Opens the jail's root for lookups; a link in the place of the last name is refused. */
int jail_open(const char *path, struct jail_error *error)
{
	int saved;
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (root < 0)
		return jail_fail(error, "the jail %s can not be opened as a directory (%s): look at the volume's mount in this pod", path,
				 strerror(errno));
	if (check(root, path, error) == 0)
		return root;
	saved = errno;
	close(root);
	errno = saved;
	return -1;
}
