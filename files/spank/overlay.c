/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * A jail of the job's own: an overlay over the jail, whose writes stay on the node and go with the job. All steps of a job on a node share
 * one, since two overlays over the same upper directory would corrupt each other; so it is mounted once, in the pod's mount namespace,
 * below BASE/JOB, and every step takes a copy of that mount.
 *
 *   BASE/JOB/upper, work   the overlay's own
 *   BASE/JOB/root          the overlay
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* What the error lacks is in errno. */
static int mount_over(const struct jail_plan *plan, uint32_t job, int place, struct jail_error *error)
{
	char upper[PATH_MAX];
	char work[PATH_MAX];
	const char *const options[] = {"lowerdir", plan->jail, "upperdir", upper, "workdir", work, NULL};
	int result;
	int tree;

	if (snprintf(upper, sizeof(upper), "%s/%u/upper", plan->overlay, (unsigned)job) >= (int)sizeof(upper) ||
	    snprintf(work, sizeof(work), "%s/%u/work", plan->overlay, (unsigned)job) >= (int)sizeof(work)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* The job's other steps would share an overlay of what is no jail, and a volume that hangs would be waited for. */
	if (jail_await(plan->jail, plan->timeout, plan->wait, error) < 0)
		return -1;
	tree = jail_fresh("overlay", options, MOUNT_ATTR_NODEV);
	if (tree < 0)
		return -1;
	result = jail_attach(tree, place);
	jail_close(tree);
	return result;
}

static int make_parts(int directory)
{
	static const char *const parts[] = {"upper", "work", "root"};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		/* The upper directory's mode is the root's. */
		if ((mkdirat(directory, parts[i], 0755) < 0 && errno != EEXIST) || fchmodat(directory, parts[i], 0755, 0) < 0)
			return -1;
	return 0;
}

/* Makes the job's overlay where there is none yet; called in the pod's mount namespace, before the step leaves it. */
int jail_overlay_mount(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	int result = -1;
	int place = -1;
	int directory;

	error->text[0] = '\0';
	if (strpbrk(plan->jail, ":,\\") || strpbrk(plan->overlay, ":,\\"))
		return jail_fail(error, "an overlay cannot be made of %s in %s: ':', ',' and '\\' mean something else to it", plan->jail, plan->overlay);
	directory = jail_job_open(plan->overlay, job, 0700, error);
	if (directory < 0)
		return -1;
	/* Steps of one job may start together; closing the descriptor releases the lock. */
	if (flock(directory, LOCK_EX) == 0 && make_parts(directory) == 0)
		place = openat(directory, "root", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (place >= 0 && jail_is_mount(place))
		result = 0;
	else if (place >= 0)
		result = mount_over(plan, job, place, error);
	if (result < 0 && !error->text[0])
		jail_fail(error, "the job's overlay of the jail cannot be made in %s/%u (%s): the directory must be on a file system that overlays can "
			  "write to (not an overlay, not NFS) and have room", plan->overlay, (unsigned)job, strerror(errno));
	jail_close(place);
	jail_close(directory);
	return result;
}

/* A copy of the overlay's mount. */
int jail_overlay_tree(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char path[PATH_MAX];
	int tree;

	if (snprintf(path, sizeof(path), "%s/%u/root", plan->overlay, (unsigned)job) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return jail_fail(error, "the path of the job's overlay is too long");
	}
	tree = jail_clone(AT_FDCWD, path, false);
	return tree < 0 ? jail_fail(error, "the job's overlay %s cannot be taken (%s)", path, strerror(errno)) : tree;
}

/* For the job's epilog: with no process in it any more, the mount is removed at once. */
int jail_overlay_remove(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%u/root", plan->overlay, (unsigned)job) < (int)sizeof(path) && umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 &&
	    errno != ENOENT && errno != EINVAL)
		return jail_fail(error, "the job's overlay %s cannot be unmounted (%s): unmount it by hand", path, strerror(errno));
	return jail_job_remove(plan->overlay, job, error);
}

/* mountinfo writes blanks and backslashes as \ooo. In place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && from[1] && from[2] && from[3]) {
			*to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* The mount point of a line of mountinfo (its fifth field), or NULL. */
char *jail_mount_point(char *line)
{
	char *rest = NULL;
	char *field = strtok_r(line, " ", &rest);

	for (int i = 0; field && i < 4; i++)
		field = strtok_r(NULL, " ", &rest);
	if (field)
		unescape(field);
	return field;
}

static int add_submount(struct jail_submounts *submounts, const char *path, const char *target, struct jail_error *error)
{
	int tree;

	if (submounts->count == JAIL_SUBMOUNTS_MAX)
		return jail_fail(error, "the jail has more than %d volumes mounted below it", JAIL_SUBMOUNTS_MAX);
	tree = jail_clone(AT_FDCWD, path, false);
	if (tree < 0)
		return jail_fail(error, "the volume at %s cannot be shown over the job's overlay (%s)", path, strerror(errno));
	submounts->mount[submounts->count].tree = tree;
	submounts->mount[submounts->count].target = strdup(target);
	submounts->count++;
	return submounts->mount[submounts->count - 1].target ? 0 : jail_fail(error, "out of memory while reading the jail's volumes");
}

/* Copies of everything that is mounted below the jail: an overlay does not show it. */
int jail_submounts_collect(const char *jail, struct jail_submounts *submounts, struct jail_error *error)
{
	size_t length = strlen(jail);
	char *line = NULL;
	size_t size = 0;
	int result = 0;
	FILE *file = fopen("/proc/thread-self/mountinfo", "re");

	submounts->count = 0;
	if (!file)
		return jail_fail(error, "the pod's mounts cannot be read (%s)", strerror(errno));
	while (result == 0 && getline(&line, &size, file) > 0) {
		const char *path = jail_mount_point(line);

		if (path && strncmp(path, jail, length) == 0 && path[length] == '/')
			result = add_submount(submounts, path, path + length + 1, error);
	}
	free(line);
	fclose(file);
	return result;
}

int jail_submounts_attach(struct jail_submounts *submounts, int root, struct jail_error *error)
{
	for (size_t i = 0; i < submounts->count; i++) {
		int target = jail_path_open(root, submounts->mount[i].target, O_PATH);
		int result = target < 0 ? -1 : jail_attach(submounts->mount[i].tree, target);

		jail_close(target);
		if (result < 0)
			return jail_fail(error, "the volume at /%s cannot be shown over the job's overlay (%s)", submounts->mount[i].target, strerror(errno));
	}
	return 0;
}

void jail_submounts_close(struct jail_submounts *submounts)
{
	int saved = errno;

	for (size_t i = 0; i < submounts->count; i++) {
		close(submounts->mount[i].tree);
		free(submounts->mount[i].target);
	}
	submounts->count = 0;
	errno = saved;
}
