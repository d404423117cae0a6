/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The kernel's descriptor-based mount calls (all there since Linux 5.12): a tree is cloned or made, given its attributes
 * while it is visible to no process, and only then attached to a target that was looked up before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* An empty path clones what the descriptor itself names; links of an absolute path are followed: it is the pod's own. */
int jail_clone(int directory, const char *path, bool recursive)
{
	unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;

	if (!path[0])
		flags |= AT_EMPTY_PATH;
	if (recursive)
		flags |= AT_RECURSIVE;
	return (int)syscall(SYS_open_tree, directory, path, flags);
}

int jail_set(int tree, struct jail_attributes attributes)
{
	struct mount_attr change = {.attr_set = attributes.set, .attr_clr = attributes.clear};
	unsigned int flags = AT_EMPTY_PATH | (attributes.recursive ? AT_RECURSIVE : 0);

	return (int)syscall(SYS_mount_setattr, tree, "", flags, &change, sizeof(change));
}

/* A new file system, attached nowhere. "options" is a list of key, value, key, value, NULL. */
int jail_fresh(const char *filesystem, const char *const *options, uint64_t attributes)
{
	int saved;
	int tree = -1;
	int context = (int)syscall(SYS_fsopen, filesystem, FSOPEN_CLOEXEC);

	if (context < 0)
		return -1;
	for (; *options; options += 2)
		if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
			goto out;
	if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		goto out;
	tree = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes);
out:
	saved = errno;
	close(context);
	errno = saved;
	return tree;
}

int jail_attach(int tree, int target)
{
	return (int)syscall(SYS_move_mount, tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}
