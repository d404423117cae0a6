/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The veneer: the pod's programs and libraries over the jail's, seen by slurmstepd only. slurmstepd is root with every
 * capability and goes on loading libraries (hwloc's, PMIx', PAM's, NSS') after it entered the jail; from the jail itself it would
 * load whatever a user with sudo put there, or another distribution's that do not fit. Its spool and cgroups are here too, since
 * the tasks see them read-only; and the daemons' munged, which knows root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static int add(struct jail_veneer *veneer, const char *target, const char *source, bool mandatory, uint64_t attributes,
	       struct jail_error *error)
{
	const struct jail_attributes change = {attributes, 0, true};
	int tree = jail_clone(AT_FDCWD, source, true);

	if (tree < 0 && !mandatory)
		return 0;
	if (tree < 0 || veneer->count == JAIL_VENEER_MAX || jail_set(tree, change) < 0) {
		jail_fail(error, "the pod's %s can not be laid over the jail's (%s)", source, strerror(errno));
		if (tree >= 0)
			close(tree);
		return -1;
	}
	veneer->part[veneer->count].tree = tree;
	veneer->part[veneer->count].target = target;
	veneer->part[veneer->count].mandatory = mandatory;
	veneer->count++;
	return 0;
}

/* Takes what will be laid over the jail, while the pod's root is still there. */
int jail_veneer_collect(const struct jail_plan *plan, int root, struct jail_veneer *veneer, struct jail_error *error)
{
	static const struct {
		const char *target;
		const char *source;
	} merged[] = {{"bin", "/bin"}, {"sbin", "/sbin"}, {"lib", "/lib"}, {"lib32", "/lib32"}, {"lib64", "/lib64"}},
	  files[] = {{"etc/pam.d", "/etc/pam.d"}, {"etc/security", "/etc/security"}, {"etc/nsswitch.conf", "/etc/nsswitch.conf"}, {"etc/ld.so.cache", "/etc/ld.so.cache"}};
	struct stat status;

	veneer->count = 0;
	if (add(veneer, "usr", "/usr", true, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, error) < 0)
		return -1;
	/* Links into /usr (merged) are covered by it already; a jail that was never merged has directories here. */
	for (size_t i = 0; i < sizeof(merged) / sizeof(merged[0]); i++)
		if (fstatat(root, merged[i].target, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode) &&
		    add(veneer, merged[i].target, merged[i].source, false, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, error) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (add(veneer, files[i].target, files[i].source, false, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, error) < 0)
			return -1;
	if (jail_users_munge() &&
	    add(veneer, "run/munge", "/run/munge", true, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, error) < 0)
		return -1;
	if (plan->spool && add(veneer, plan->spool + 1, plan->spool, true, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, error) < 0)
		return -1;
	return add(veneer, "sys/fs/cgroup", "/sys/fs/cgroup", false, 0, error);
}

/* Lays it over the root of the calling process. */
int jail_veneer_apply(const struct jail_log *log, struct jail_veneer *veneer, struct jail_error *error)
{
	int result = 0;
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return jail_fail(error, "the jail's root can not be opened from inside (%s)", strerror(errno));
	for (size_t i = 0; i < veneer->count && result == 0; i++) {
		int target = jail_path_open(root, veneer->part[i].target, O_PATH);

		if (target < 0 || jail_attach(veneer->part[i].tree, target) < 0) {
			if (veneer->part[i].mandatory)
				result = jail_fail(error, "the pod's /%s can not be laid over the jail's (%s): populate the jail anew",
						   veneer->part[i].target, strerror(errno));
			else
				jail_debug(log, "the pod's /%s is not laid over the jail's (%s)", veneer->part[i].target, strerror(errno));
		}
		if (target >= 0)
			close(target);
	}
	close(root);
	return result;
}

void jail_veneer_close(struct jail_veneer *veneer)
{
	int saved = errno;

	for (size_t i = 0; i < veneer->count; i++)
		close(veneer->part[i].tree);
	veneer->count = 0;
	errno = saved;
}
