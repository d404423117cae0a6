/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The IPC namespace of a job on a node: System V shared memory, semaphores and message queues, and POSIX message queues. No process outlives its job in it, and
 * no other job's users see or remove what is there. All that runs for the job joins it: its steps and who comes to it by ssh. The first to come makes it, and
 * it is kept as a mount of its file beside the templates (template.c), until the job's epilog.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include "internal.h"

#define OWN "/proc/thread-self/ns/ipc"

struct name {
	char path[sizeof(JAIL_TEMPLATES) + 16];
};

static struct name name_of(uint32_t job)
{
	struct name name;

	snprintf(name.path, sizeof(name.path), JAIL_TEMPLATES "/ipc-%u", (unsigned)job);
	return name;
}

/* From now on the calling thread's, and kept open. */
static int make(const struct name *name)
{
	int file = open(name->path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (file < 0)
		return -1;
	jail_close(file);
	return unshare(CLONE_NEWIPC) < 0 || mount(OWN, name->path, NULL, MS_BIND, NULL) < 0 ? -1 : 0;
}

/* For the calling thread, in the pod's mount namespace and before it enters. Job 0 is none: the pod's stays. */
int jail_ipc_join(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	struct name name = name_of(job);
	int result = -1;
	int namespace;
	int home;

	if (!plan->ipc_of_job || job == 0)
		return 0;
	home = jail_templates_home(true);
	/* Steps of a job begin together. */
	if (home >= 0 && flock(home, LOCK_EX) == 0) {
		namespace = jail_namespace_open(name.path);
		result = namespace < 0 ? make(&name) : setns(namespace, CLONE_NEWIPC);
		jail_close(namespace);
	}
	jail_close(home);
	if (result == 0)
		return 0;
	return jail_fail(error, "the job cannot have an IPC namespace of its own (%s): the container needs CAP_SYS_ADMIN and room in " JAIL_TEMPLATES
			 "; or share the node's, by spec.slurm.isolation.ipc: Node (ipc=node in plugstack.conf)", strerror(errno));
}

/* /dev/mqueue of the namespace that the calling thread is in: the pod's shows the pod's queues. */
int jail_ipc_collect(const struct jail_plan *plan, uint32_t job, struct jail_layers *own, struct jail_error *error)
{
	static const char *const no_options[] = {NULL};
	int tree;

	if (!plan->ipc_of_job || job == 0)
		return 0;
	tree = jail_fresh("mqueue", no_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (tree < 0)
		return jail_fail(error, "a /dev/mqueue for the jail cannot be made (%s): the container needs CAP_SYS_ADMIN and a seccomp profile that allows fsopen",
				 strerror(errno));
	return jail_layers_add(own, tree, "dev/mqueue", false, error);
}

/* At the job's end. What was in it is gone with its last process. */
int jail_ipc_remove(uint32_t job, struct jail_error *error)
{
	struct name name = name_of(job);

	/* A file that nothing is mounted on: who made it was interrupted. */
	if (umount2(name.path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
		return jail_fail(error, "the IPC namespace of job %u cannot be given up (%s)", (unsigned)job, strerror(errno));
	return unlink(name.path) == 0 || errno == ENOENT ? 0 : jail_fail(error, "%s cannot be removed (%s)", name.path, strerror(errno));
}
