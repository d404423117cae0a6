/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What is laid over the jail's root: the kernel's file systems, the pod's few own files and sockets, and nothing else of the
 * pod. The mount points were made by the populate job; nothing is ever created in the jail here, since another node would
 * see it too, and removing it there would take the mount away here.
 *
 * In two parts: what is alike for all that enter, which a template keeps (template.c), and what each entry has of its own.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define QUIET (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* One thing of the pod that shows in the jail. */
struct part {
	const char *source;
	const char *parent; /* "proc/", "dev/", ...: only for messages */
	const char *target; /* relative to the directory that it is attached in */
	struct jail_attributes attributes;
	bool mandatory;
};

static int missing(const struct jail_dress *dress, const struct part *part, const char *which, struct jail_error *error)
{
	return jail_not_shown(dress->log, part->parent, part->target, part->mandatory, which, error);
}

/* Opens a mount point; -1 with errno 0 when there is nothing to do since it is mounted already. */
static int open_target(const struct jail_dress *dress, int directory, const char *name)
{
	int target = jail_path_open(directory, name, O_PATH);

	if (target >= 0 && dress->keep && jail_is_mount(target)) {
		close(target);
		errno = 0;
		return -1;
	}
	return target;
}

static int attach(const struct jail_dress *dress, int directory, const struct part *part, int tree, struct jail_error *error)
{
	int result;
	int target = open_target(dress, directory, part->target);

	if (target < 0)
		return errno == 0 ? 0 : missing(dress, part, "the jail has no such mount point", error);
	result = jail_attach(tree, target);
	jail_close(target);
	return result < 0 ? missing(dress, part, "the mount was refused", error) : 0;
}

static int lay(const struct jail_dress *dress, int directory, const struct part *part, int tree, struct jail_error *error)
{
	if (jail_set(tree, part->attributes) < 0)
		return missing(dress, part, "its mount attributes cannot be set", error);
	return attach(dress, directory, part, tree, error);
}

static int show(const struct jail_dress *dress, int directory, const struct part *part, struct jail_error *error)
{
	int result;
	int tree = jail_clone(AT_FDCWD, part->source, true);

	if (tree < 0)
		return missing(dress, part, "the pod does not have it", error);
	result = lay(dress, directory, part, tree, error);
	jail_close(tree);
	return result;
}

static int no_fresh(const char *filesystem, const char *target, struct jail_error *error)
{
	return jail_fail(error, "a %s for the jail's /%s cannot be made (%s): the container needs CAP_SYS_ADMIN and a seccomp profile that "
			 "allows fsopen", filesystem, target, strerror(errno));
}

/* Attaches a fresh file system (or finds the one of an earlier call) and returns a descriptor of its root. */
static int fresh(const struct jail_dress *dress, const struct part *part, const char *const *options, struct jail_error *error)
{
	int tree = jail_fresh(part->source, options, part->attributes.set);

	if (tree < 0)
		return no_fresh(part->source, part->target, error);
	if (attach(dress, dress->root, part, tree, error) < 0) {
		close(tree);
		return -1;
	}
	if (!dress->keep)
		return tree;
	close(tree);
	tree = jail_path_open(dress->root, part->target, O_PATH | O_DIRECTORY);
	return tree < 0 ? jail_fail(error, "the jail's /%s cannot be opened after its mount (%s)", part->target, strerror(errno)) : tree;
}

/* The container runtimes' list of what must not show or be written in a /proc (containerd's oci defaults), for ours is new. */
static int mask_proc(const struct jail_dress *dress, int proc, struct jail_error *error)
{
	static const char *const frozen[] = {"bus", "fs", "irq", "sys", "sysrq-trigger"};
	static const char *const hidden_files[] = {"kcore", "keys", "latency_stats", "sched_debug", "timer_list", "timer_stats"};
	static const char *const hidden_directories[] = {"acpi", "asound", "scsi"};
	static const char *const no_options[] = {NULL};

	for (size_t i = 0; i < sizeof(frozen) / sizeof(frozen[0]); i++) {
		const struct jail_attributes attributes = {MOUNT_ATTR_RDONLY | QUIET, 0, true};
		int place = open_target(dress, proc, frozen[i]);
		int tree = -1;
		int result = 0;

		if (place < 0 && (errno == ENOENT || errno == 0))
			continue;
		if (place >= 0)
			tree = jail_clone(place, "", true);
		if (tree < 0 || jail_set(tree, attributes) < 0 || jail_attach(tree, place) < 0)
			result = jail_fail(error, "/proc/%s of the jail cannot be made read-only (%s)", frozen[i], strerror(errno));
		jail_close(tree);
		jail_close(place);
		if (result < 0)
			return -1;
	}
	for (size_t i = 0; i < sizeof(hidden_files) / sizeof(hidden_files[0]); i++) {
		const struct part part = {"/dev/null", "proc/", hidden_files[i], {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false}, false};

		if (faccessat(proc, hidden_files[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0 && show(dress, proc, &part, error) < 0)
			return -1;
	}
	for (size_t i = 0; i < sizeof(hidden_directories) / sizeof(hidden_directories[0]); i++) {
		const struct part part = {"tmpfs", "proc/", hidden_directories[i], {MOUNT_ATTR_RDONLY | QUIET, 0, false}, false};
		int tree;

		if (faccessat(proc, part.target, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		tree = jail_fresh("tmpfs", no_options, part.attributes.set);
		if (tree < 0 || attach(dress, proc, &part, tree, error) < 0) {
			jail_close(tree);
			return jail_fail(error, "/proc/%s of the jail cannot be hidden (%s)", part.target, strerror(errno));
		}
		close(tree);
	}
	return 0;
}

static int mask_own_proc(const struct jail_dress *dress, int tree, struct jail_error *error)
{
	const struct part own = {"proc", "", "proc", {QUIET, 0, false}, true};
	int result = attach(dress, dress->root, &own, tree, error);
	int proc;

	jail_close(tree);
	if (result < 0)
		return -1;
	proc = jail_path_open(dress->root, "proc", O_PATH | O_DIRECTORY);
	if (proc < 0)
		return jail_fail(error, "the jail's /proc cannot be opened after its mount (%s)", strerror(errno));
	result = mask_proc(dress, proc, error);
	jail_close(proc);
	return result;
}

static int fresh_proc(void)
{
	/* The group of root sees all processes: the Kubernetes node's where it is not named, of which no process in a user namespace is a member. */
	static const char *const options[] = {"hidepid", "invisible", "gid", "0", NULL};

	return jail_fresh("proc", options, QUIET);
}

/* A /proc of the caller's own PID namespace, and nothing in its stead. */
int jail_proc_of_own(const struct jail_dress *dress, struct jail_error *error)
{
	int tree = fresh_proc();

	return tree < 0 ? no_fresh("proc", "proc", error) : mask_own_proc(dress, tree, error);
}

/* A /proc of our own hides other users' processes; where the kernel refuses one (a pod in a user namespace whose /proc is
 * masked), the pod's is shown with the masks that it has. */
static int dress_proc(const struct jail_dress *dress, struct jail_error *error)
{
	const struct part pods = {"/proc", "", "proc", {QUIET, 0, true}, true};
	int tree = fresh_proc();

	if (tree < 0) {
		jail_debug(dress->log, "the jail shows the pod's own /proc: a new one was refused (%s)", strerror(errno));
		return show(dress, dress->root, &pods, error);
	}
	return mask_own_proc(dress, tree, error);
}

/* Character devices that jobs may meet; whatever else the pod's /dev has (disks, memory, the kernel's log) stays outside. */
static bool wanted_device(const struct jail_plan *plan, const char *name)
{
	static const char *const patterns[] = {
		"null",	    "zero",	  "full",   "random", "urandom", "tty", "fuse", "nvidia*", "infiniband", "gdrdrv", "dri",
		"kfd",	    "accel",	  "knem",   "xpmem",  "mqueue",	 "hugepages",
	};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	for (size_t i = 0; i < plan->device_count; i++)
		if (fnmatch(plan->devices[i], name, FNM_PERIOD) == 0)
			return true;
	return false;
}

static int dress_device(const struct jail_dress *dress, int dev, int pods, const char *name, struct jail_error *error)
{
	char source[300];
	struct stat status;
	struct stat all;
	struct part part = {source, "dev/", name, {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, true}, false};

	snprintf(source, sizeof(source), "/dev/%s", name);
	if (fstatat(pods, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || fstat(pods, &all) < 0 || !(S_ISCHR(status.st_mode) || S_ISDIR(status.st_mode)))
		return 0;
	/* Devices can be written all the same, and nothing in the jail may change their modes: the node's other jobs have the same files. Not for what has
	 * a file system of its own, as huge pages and message queues do. */
	if (S_ISCHR(status.st_mode) || status.st_dev == all.st_dev)
		part.attributes.set |= MOUNT_ATTR_RDONLY;
	if (S_ISDIR(status.st_mode)) {
		if (mkdirat(dev, name, 0755) < 0 && errno != EEXIST)
			return missing(dress, &part, "its mount point cannot be made", error);
	} else if (mknodat(dev, name, S_IFREG | 0644, 0) < 0 && errno != EEXIST) {
		return missing(dress, &part, "its mount point cannot be made", error);
	}
	return show(dress, dev, &part, error);
}

static int dress_dev(const struct jail_dress *dress, struct jail_error *error)
{
	static const char *const options[] = {"mode", "0755", "size", "64k", NULL};
	static const char *const links[][2] = {
		{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	};
	static const struct part pts = {"/dev/pts", "dev/", "pts", {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false}, true};
	static const struct part terminals = {"/dev/pts/ptmx", "dev/", "pts/ptmx", {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false}, false};
	/* Steps share it; what they mount in it has attributes of its own. */
	static const struct jail_attributes closed = {MOUNT_ATTR_RDONLY, 0, false};
	const struct part self = {"tmpfs", "", "dev", {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false}, true};
	struct dirent *entry;
	DIR *pods;
	int result = -1;
	int dev = fresh(dress, &self, options, error);

	if (dev < 0)
		return -1;
	pods = opendir("/dev");
	if (!pods) {
		jail_fail(error, "the pod's /dev cannot be read (%s)", strerror(errno));
		goto out;
	}
	if ((mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 0755) < 0) && errno != EEXIST) {
		jail_fail(error, "/dev/pts and /dev/shm of the jail cannot be made (%s)", strerror(errno));
		goto out_pods;
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlinkat(links[i][0], dev, links[i][1]) < 0 && errno != EEXIST) {
			jail_fail(error, "/dev/%s of the jail cannot be made (%s)", links[i][1], strerror(errno));
			goto out_pods;
		}
	if (show(dress, dev, &pts, error) < 0 || show(dress, dev, &terminals, error) < 0)
		goto out_pods;
	while ((entry = readdir(pods)))
		if (wanted_device(dress->plan, entry->d_name) && dress_device(dress, dev, dirfd(pods), entry->d_name, error) < 0)
			goto out_pods;
	result = dress->keep ? 0 : jail_set(dev, closed);
	if (result < 0)
		jail_fail(error, "the mount attributes of the jail's /dev cannot be set (%s)", strerror(errno));
out_pods:
	closedir(pods);
out:
	jail_close(dev);
	return result;
}

/* A pod has a munged or a sackd for those in the jail, who see its directory in the place of the daemons' own, with which slurmstepd goes on (view.c). */
const struct jail_auth jail_auths[2] = {
	{"/run/munge", "/run/munge/jail", "run/munge"},
	{"/run/sack", "/run/sack/jail", "run/sack"},
};

/* A /run of the entry's own, and the pod's sockets in it. */
static int own_run(const struct jail_log *log, struct jail_layers *own, struct jail_error *error)
{
	static const char *const options[] = {"mode", "0755", "size", "16m", NULL};
	static const struct jail_attributes sockets = {MOUNT_ATTR_RDONLY | QUIET, 0, true};
	static const struct {
		const char *name;
		mode_t mode;
	} directories[] = {{"munge", 0755}, {"sack", 0755}, {"slurm", 0755}, {"lock", 01777}, {"user", 0755}};
	int run = jail_fresh("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

	if (run < 0)
		return no_fresh("tmpfs", "run", error);
	if (jail_layers_add(own, run, "run", true, error) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (mkdirat(run, directories[i].name, 0755) < 0 ||
		    (directories[i].mode != 0755 && fchmodat(run, directories[i].name, directories[i].mode, 0) < 0))
			return jail_fail(error, "/run/%s of the jail cannot be made (%s)", directories[i].name, strerror(errno));
	for (size_t i = 0; i < sizeof(jail_auths) / sizeof(jail_auths[0]); i++) {
		const char *shown = access(jail_auths[i].users, F_OK) == 0 ? jail_auths[i].users : jail_auths[i].pods;

		if (access(shown, F_OK) == 0 && jail_layers_show(own, log, shown, jail_auths[i].inside, true, sockets, error) < 0)
			return -1;
	}
	return jail_layers_show(own, log, "/run/slurm", "run/slurm", true, sockets, error);
}

int jail_binds_collect(const struct jail_plan *plan, const struct jail_log *log, struct jail_layers *layers, struct jail_error *error)
{
	for (size_t i = 0; i < plan->bind_count; i++) {
		const struct jail_bind *bind = &plan->binds[i];
		const struct jail_attributes attributes = {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (bind->read_only ? MOUNT_ATTR_RDONLY : 0), 0, true};

		if (jail_layers_show(layers, log, bind->source, bind->target + 1, true, attributes, error) < 0)
			return -1;
	}
	return 0;
}

/* Takes the tree over. */
static int own_tree(struct jail_layers *own, int tree, const char *target, struct jail_attributes attributes, struct jail_error *error)
{
	if (jail_set(tree, attributes) == 0)
		return jail_layers_add(own, tree, target, true, error);
	jail_fail(error, "the mount attributes of the jail's /%s cannot be set (%s)", target, strerror(errno));
	jail_close(tree);
	return -1;
}

/* "tmp" and "shm" are trees and are taken over; -1: the jail keeps its own /tmp, and shows the pod's /dev/shm. */
int jail_own_collect(const struct jail_plan *plan, const struct jail_log *log, int tmp, int shm, struct jail_layers *own, struct jail_error *error)
{
	static const struct jail_attributes of_tmp = {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, false};
	static const struct jail_attributes of_shm = {QUIET, 0, false};
	int result = tmp < 0 ? 0 : own_tree(own, tmp, "tmp", of_tmp, error);

	if (shm >= 0)
		result |= own_tree(own, shm, "dev/shm", of_shm, error);
	else if (result == 0)
		result = jail_layers_show(own, log, "/dev/shm", "dev/shm", true, of_shm, error);
	if (result < 0 || own_run(log, own, error) < 0)
		return -1;
	return jail_binds_collect(plan, log, own, error);
}

/* The pod's files and directories that are alike for all, besides its devices. */
static const struct part pods[] = {
	{"/sys", "", "sys", {MOUNT_ATTR_RDONLY | QUIET, 0, true}, false},
	{"/opt/corral", "", "opt/corral", {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, true}, true},
	{"/etc/resolv.conf", "", "etc/resolv.conf", {MOUNT_ATTR_RDONLY | QUIET, 0, false}, false},
	{"/etc/hosts", "", "etc/hosts", {MOUNT_ATTR_RDONLY | QUIET, 0, false}, false},
	{"/etc/hostname", "", "etc/hostname", {MOUNT_ATTR_RDONLY | QUIET, 0, false}, false},
};
#define PODS (sizeof(pods) / sizeof(pods[0]))

int jail_dress(const struct jail_dress *dress, struct jail_error *error)
{
	if (dress_proc(dress, error) < 0 || dress_dev(dress, error) < 0)
		return -1;
	for (size_t i = 0; i < PODS; i++)
		if (show(dress, dress->root, &pods[i], error) < 0)
			return -1;
	return 0;
}

/* What decides how a jail is dressed and is no mount: another device, another file in a file's place. Returns which of its parts the pod has. */
uint32_t jail_dress_digest(struct jail_digest *digest)
{
	uint32_t shown = 0;
	struct stat status;

	if (stat("/dev", &status) == 0)
		jail_digest_add(digest, &status.st_mtim, sizeof(status.st_mtim));
	for (size_t i = 0; i < PODS; i++)
		if (stat(pods[i].source, &status) == 0) {
			shown |= 1U << i;
			jail_digest_add(digest, &status.st_dev, sizeof(status.st_dev));
			jail_digest_add(digest, &status.st_ino, sizeof(status.st_ino));
		}
	jail_digest_add(digest, &shown, sizeof(shown));
	return shown;
}

static bool is_covered(int root, const char *target, bool may_lack)
{
	int place = jail_path_open(root, target, O_PATH);
	bool covered = place < 0 ? may_lack : jail_is_mount(place);

	jail_close(place);
	return covered;
}

/* Is all of it still there? Removing a mount point on another node removes the mount here, and the kernel reports nothing, and what
 * is made in its place shows through. */
bool jail_dress_is_whole(uint32_t shown, int root)
{
	if (!is_covered(root, "proc", false) || !is_covered(root, "dev", false))
		return false;
	for (size_t i = 0; i < PODS; i++)
		if (shown & 1U << i && !is_covered(root, pods[i].target, !pods[i].mandatory))
			return false;
	return true;
}
