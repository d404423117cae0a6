/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The veneer: the pod's programs and libraries over the jail's, seen by slurmstepd only. slurmstepd is root with every
 * capability and goes on loading libraries (hwloc's, PMIx', PAM's, NSS') after it entered the jail; from the jail itself it would
 * load whatever a user with sudo put there, or another distribution's that do not fit. Its spool and cgroups are here too, since
 * the tasks see them read-only; and the daemons' munged, which knows root.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>

#include "internal.h"

/* Takes what will be laid over the jail, while the pod's root is still there. "root" is the jail's. */
int jail_veneer_collect(const struct jail_plan *plan, const struct jail_log *log, int root, struct jail_layers *veneer, struct jail_error *error)
{
	static const struct {
		const char *target;
		const char *source;
	} merged[] = {{"bin", "/bin"}, {"sbin", "/sbin"}, {"lib", "/lib"}, {"lib32", "/lib32"}, {"lib64", "/lib64"}},
	  files[] = {{"etc/pam.d", "/etc/pam.d"}, {"etc/security", "/etc/security"}, {"etc/nsswitch.conf", "/etc/nsswitch.conf"}, {"etc/ld.so.cache", "/etc/ld.so.cache"}};
	static const struct jail_attributes programs = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, 0, true};
	static const struct jail_attributes texts = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, true};
	static const struct jail_attributes spool = {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, true};
	static const struct jail_attributes cgroups = {0, 0, true};
	struct stat status;

	if (jail_layers_show(veneer, log, "/usr", "usr", true, programs, error) < 0)
		return -1;
	/* Links into /usr (merged) are covered by it already; a jail that was never merged has directories here. */
	for (size_t i = 0; i < sizeof(merged) / sizeof(merged[0]); i++)
		if (fstatat(root, merged[i].target, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode) &&
		    jail_layers_show(veneer, log, merged[i].source, merged[i].target, false, programs, error) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (jail_layers_show(veneer, log, files[i].source, files[i].target, false, texts, error) < 0)
			return -1;
	if (jail_users_munge() && jail_layers_show(veneer, log, "/run/munge", "run/munge", true, texts, error) < 0)
		return -1;
	if (plan->spool && jail_layers_show(veneer, log, plan->spool, plan->spool + 1, true, spool, error) < 0)
		return -1;
	return jail_layers_show(veneer, log, "/sys/fs/cgroup", "sys/fs/cgroup", false, cgroups, error);
}
