/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What the jail shows of SlurmdSpoolDir: an empty directory with the configuration that slurmd keeps there and the job's own script, read-only. The rest
 * is for daemons: by a step's socket, slurmstepd does for uid 0 whatever it requests, and root in the jail has that uid, so they could end or trace another
 * user's step. Other jobs' scripts and what they have of their own lie there, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "internal.h"

/* Where slurmd keeps the configuration that it has from slurmctld (slurmd.c, "conf-cache"). */
#define CONFIGURATION "conf-cache"

/* "names" holds the targets and has to live as long as "own". "job" 0: there is no script. */
int jail_spool_collect(const struct jail_plan *plan, const struct jail_log *log, uint32_t job, struct jail_spool *names, struct jail_layers *own,
		       struct jail_error *error)
{
	static const char *const options[] = {"mode", "0755", "size", "16k", NULL};
	static const struct jail_attributes closed = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, 0, false};
	/* A batch script is executed. */
	static const struct jail_attributes shown = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, false};
	char script[16];
	const char *const entries[] = {CONFIGURATION, script};
	size_t count = job ? 2 : 1;
	int tree;

	if (!plan->spool)
		return 0;
	/* slurmstepd makes it before any plugin is called (mgr.c, _make_batch_dir). */
	snprintf(script, sizeof(script), "job%05u", (unsigned)job);
	tree = jail_fresh("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (tree < 0)
		return jail_fail(error, "a directory for the jail's %s cannot be made (%s): the container needs CAP_SYS_ADMIN", plan->spool, strerror(errno));
	for (size_t i = 0; i < count; i++)
		mkdirat(tree, entries[i], 0755);
	if (jail_set(tree, closed) < 0) {
		jail_close(tree);
		return jail_fail(error, "the mount attributes of the jail's %s cannot be set (%s)", plan->spool, strerror(errno));
	}
	if (jail_layers_add(own, tree, plan->spool + 1, true, error) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct stat status;

		if (snprintf(names->path[i], sizeof(names->path[i]), "%s/%s", plan->spool, entries[i]) >= (int)sizeof(names->path[i]))
			return jail_fail(error, "spool=%s is too long: correct it in plugstack.conf", plan->spool);
		/* Not each Slurm takes its configuration from slurmctld, and not each step is on the node that runs the script. */
		if (stat(names->path[i], &status) == 0 && jail_layers_show(own, log, names->path[i], names->path[i] + 1, true, shown, error) < 0)
			return -1;
	}
	return 0;
}
