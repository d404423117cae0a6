/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * slurmstepd's view: a root of its own, made of the pod. slurmstepd is root with capabilities and continues to load libraries (hwloc's, PMIx', PAM's,
 * NSS') and reading files (the time zone, names, locales) after it entered the jail. Nothing of that may come from the jail, nor lie on a directory of
 * it: whoever is root in the jail, on whatever node, renames that directory with an exchange, and the mount moves with the old name.
 *
 * So its root is a small tmpfs that no other process has. What programs load and look up is there from the pod, the jail is below JAIL_IN_VIEW, and every
 * other name of the jail's root is a link to there, for the job's files are opened by the names that users know. They are opened as the user, and
 * what users reach by them they reach anyway. It is kept as the prepared jail is, until the jail's root has another name in it (template.c).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Never the jail's, whether or not the pod has them: where programs load from, and where they look up names, states and sockets. */
static const char *const own[] = {
	JAIL_IN_VIEW, "proc", "sys", "dev",	"run",	      "tmp",	 "etc",	    "usr",    "bin",	 "sbin",    "lib",
	"lib32",      "lib64", "libx32", "libo32", "opt/corral", "var/cache", "var/db", "var/lib", "var/lock", "var/log", "var/run",
};
#define OWN (sizeof(own) / sizeof(own[0]))
/* More names than any root has; who plants a million does not keep steps waiting. */
#define NAMES_MAX 4096

static bool begins(const char *path, const char *parent)
{
	size_t length = strlen(parent);

	return strncmp(path, parent, length) == 0 && (path[length] == '/' || !path[length]);
}

/* Is it one of them, or in one? */
static bool is_own(const struct jail_plan *plan, const char *path)
{
	for (size_t i = 0; i < OWN; i++)
		if (begins(path, own[i]))
			return true;
	return plan->spool && begins(path, plan->spool + 1);
}

static bool leads_to_own(const struct jail_plan *plan, const char *path)
{
	for (size_t i = 0; i < OWN; i++)
		if (begins(own[i], path))
			return true;
	return plan->spool && begins(plan->spool + 1, path);
}

/* Calls back for every directory that has places of the view beside the jail's: the root, /opt, /var, and those above the spool. */
static void each_shared(const struct jail_plan *plan, void (*act)(void *argument, const char *path), void *argument)
{
	char path[PATH_MAX];

	act(argument, "");
	act(argument, "opt");
	act(argument, "var");
	if (!plan->spool || snprintf(path, sizeof(path), "%s", plan->spool + 1) >= (int)sizeof(path))
		return;
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (strcmp(path, "opt") != 0 && strcmp(path, "var") != 0 && !is_own(plan, path))
			act(argument, path);
		*slash = '/';
	}
}

struct walk {
	int jail;
	struct jail_digest *digest;
};

static void add_directory(void *argument, const char *path)
{
	const struct walk *walk = argument;
	struct stat status;
	int directory = jail_path_open(walk->jail, path[0] ? path : ".", O_PATH | O_DIRECTORY);

	memset(&status, 0, sizeof(status));
	if (directory >= 0 && fstat(directory, &status) == 0) {
		jail_digest_add(walk->digest, &status.st_dev, sizeof(status.st_dev));
		jail_digest_add(walk->digest, &status.st_ino, sizeof(status.st_ino));
		jail_digest_add(walk->digest, &status.st_mtim, sizeof(status.st_mtim));
	}
	jail_digest_add(walk->digest, path, strlen(path) + 1);
	jail_close(directory);
}

/* Another name in the jail's root makes another view. "jail" is that root. */
void jail_view_digest(const struct jail_plan *plan, int jail, struct jail_digest *digest)
{
	struct walk walk = {jail, digest};

	each_shared(plan, add_directory, &walk);
}

struct mirror {
	const struct jail_plan *plan;
	const struct jail_log *log;
	int jail;
	int root;
	unsigned left;
};

/* A link for each name that is the jail's. Best effort: what cannot be read is not there. */
static void mirror_directory(void *argument, const char *path)
{
	struct mirror *mirror = argument;
	int directory = jail_path_open(mirror->jail, path[0] ? path : ".", O_RDONLY | O_DIRECTORY);
	DIR *list = directory < 0 ? NULL : fdopendir(directory);
	struct dirent *entry;

	if (!list)
		jail_close(directory);
	while (list && (entry = readdir(list))) {
		char name[PATH_MAX];
		char target[PATH_MAX + sizeof(JAIL_IN_VIEW) + 2];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		    snprintf(name, sizeof(name), "%s%s%s", path, path[0] ? "/" : "", entry->d_name) >= (int)sizeof(name))
			continue;
		if (is_own(mirror->plan, name) || leads_to_own(mirror->plan, name))
			continue;
		if (mirror->left == 0) {
			jail_info(mirror->log, "the jail's /%s has more than %d names: files of jobs in the others cannot be opened", path, NAMES_MAX);
			break;
		}
		mirror->left--;
		snprintf(target, sizeof(target), "/" JAIL_IN_VIEW "/%s", name);
		if (symlinkat(target, mirror->root, name) < 0)
			jail_debug(mirror->log, "files of jobs in /%s cannot be opened (%s)", name, strerror(errno));
	}
	if (list)
		closedir(list);
}

/* Every directory of that path, on a root that no other process has. Mounts of the pod stay as they are. */
static void make_directories(int root, const char *path)
{
	char name[PATH_MAX];

	if (snprintf(name, sizeof(name), "%s", path) >= (int)sizeof(name))
		return;
	for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdirat(root, name, 0755);
		*slash = '/';
	}
	mkdirat(root, name, 0755);
}

/* Places for users' names where the pod has links for them into the jail (nss_corral.c). */
static void make_names(int root)
{
	static const char *const names[] = {"/var/lib/extrausers/passwd", "/var/lib/extrausers/group"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct stat status;

		if (lstat(names[i], &status) < 0 || !S_ISLNK(status.st_mode))
			continue;
		make_directories(root, "var/lib/extrausers");
		mknodat(root, names[i] + 1, S_IFREG | 0444, 0);
	}
}

static int make_link(int root, const char *target, const char *name, struct jail_error *error)
{
	return symlinkat(target, root, name) == 0 ? 0 : jail_fail(error, "/%s of slurmstepd's root cannot be made (%s)", name, strerror(errno));
}

/* /bin and its like are links into /usr, or directories of their own in a pod that was never merged. */
static int show_programs(const struct jail_log *log, int root, struct jail_layers *layers, struct jail_error *error)
{
	static const char *const programs[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libo32"};
	static const struct jail_attributes attributes = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, 0, true};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		char target[64];
		ssize_t length = readlink(programs[i], target, sizeof(target) - 1);
		struct stat status;

		if (length > 0) {
			target[length] = '\0';
			if (make_link(root, target, programs[i] + 1, error) < 0)
				return -1;
		} else if (stat(programs[i], &status) == 0) {
			mkdirat(root, programs[i] + 1, 0755);
			if (jail_layers_show(layers, log, programs[i], programs[i] + 1, true, attributes, error) < 0)
				return -1;
		}
	}
	return jail_layers_show(layers, log, "/usr", "usr", true, attributes, error);
}

static int apply(struct jail_layers *layers, const struct jail_log *log, int root, int result, struct jail_error *error)
{
	if (result == 0)
		result = jail_layers_apply(layers, log, root, false, error);
	jail_layers_close(layers);
	return result;
}

/* Not what is mounted below the pod's /etc: keys are. The container's own three files come with the dress. */
static int show_system(const struct jail_log *log, int root, struct jail_error *error)
{
	static const struct jail_attributes texts = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false};
	struct jail_layers layers = {0, NULL};
	int result = show_programs(log, root, &layers, error);

	if (result == 0)
		result = jail_layers_show(&layers, log, "/etc", "etc", true, texts, error);
	return apply(&layers, log, root, result, error);
}

/* Over the dress: the daemons' own munged or sackd, the spool and cgroups to be written, and the names of a directory by the pod's own sssd. */
static int show_daemons(const struct jail_plan *plan, const struct jail_log *log, int root, struct jail_error *error)
{
	static const struct jail_attributes texts = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, true};
	static const struct jail_attributes spool = {MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, false};
	static const struct jail_attributes cgroups = {0, 0, true};
	struct jail_layers layers = {0, NULL};
	int result = 0;

	for (size_t i = 0; result == 0 && i < sizeof(jail_auths) / sizeof(jail_auths[0]); i++)
		if (access(jail_auths[i].pods, F_OK) == 0)
			result = jail_layers_show(&layers, log, jail_auths[i].pods, jail_auths[i].inside, true, texts, error);
	if (result == 0)
		result = jail_layers_show(&layers, log, "/run/slurm", "run/slurm", true, texts, error);
	if (result == 0)
		result = jail_layers_show(&layers, log, "/var/lib/sss", "var/lib/sss", false, texts, error);
	if (result == 0 && plan->spool)
		result = jail_layers_show(&layers, log, plan->spool, plan->spool + 1, true, spool, error);
	if (result == 0)
		result = jail_layers_show(&layers, log, "/sys/fs/cgroup", "sys/fs/cgroup", false, cgroups, error);
	return apply(&layers, log, root, result, error);
}

static int furnish(const struct jail_plan *plan, const struct jail_log *log, int jail, int root, struct jail_error *error)
{
	static const char *const directories[] = {
		JAIL_IN_VIEW, "proc", "sys", "dev", "run/munge", "run/sack", "run/slurm", "tmp", "etc", "usr", "opt/corral", "var/cache", "var/db", "var/lib/sss", "var/log",
	};
	/* What a user may have in /run is the entry's. */
	static const char *const links[][2] = {
		{"/run", "var/run"}, {"/run/lock", "var/lock"}, {"/" JAIL_IN_VIEW "/run/lock", "run/lock"}, {"/" JAIL_IN_VIEW "/run/user", "run/user"},
	};
	static const struct jail_attributes closed = {MOUNT_ATTR_RDONLY, 0, false};
	const struct jail_dress dress = {.plan = plan, .log = log, .root = root, .keep = false};
	struct mirror mirror = {plan, log, jail, root, NAMES_MAX};

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		make_directories(root, directories[i]);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (make_link(root, links[i][0], links[i][1], error) < 0)
			return -1;
	if (plan->spool)
		make_directories(root, plan->spool + 1);
	make_names(root);
	each_shared(plan, mirror_directory, &mirror);
	if (show_system(log, root, error) < 0 || jail_dress(&dress, error) < 0 || show_daemons(plan, log, root, error) < 0)
		return -1;
	return jail_set(root, closed) == 0 ? 0 : jail_fail(error, "the mount attributes of slurmstepd's root cannot be set (%s)", strerror(errno));
}

/* In a mount namespace that is the caller's alone: a new root, mounted over the jail's place, which is the pod's own. "jail" is the root to be visible
 * in it. Returns its descriptor. */
int jail_view_make(const struct jail_plan *plan, const struct jail_log *log, int jail, struct jail_error *error)
{
	static const char *const options[] = {"mode", "0755", "size", "4m", NULL};
	int place = open(plan->jail, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int root = place < 0 ? -1 : jail_fresh("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

	if (root < 0 || jail_attach(root, place) < 0) {
		jail_fail(error, "a root for slurmstepd cannot be made (%s): the container needs CAP_SYS_ADMIN and a seccomp profile that allows fsopen",
			  strerror(errno));
		jail_close(root);
		root = -1;
	} else if (furnish(plan, log, jail, root, error) < 0) {
		jail_close(root);
		root = -1;
	}
	jail_close(place);
	return root;
}

/* A copy of what the jail, as this entry has it, shows at a place: the entry's own tree where it brought one. The mount namespace is the jail's. */
static int copy_of(const struct jail_layers *layers, int jail, const char *target)
{
	int place;
	int tree;

	for (size_t i = 0; i < layers->count; i++)
		if (strcmp(layers->layer[i].target, target) == 0)
			return jail_clone(layers->layer[i].tree, "", true);
	place = jail_path_open(jail, target, O_PATH | O_DIRECTORY);
	tree = place < 0 ? -1 : jail_clone(place, "", true);
	jail_close(place);
	return tree;
}

/* Where the pod takes users' names from the jail (links, for nss_corral.c): the plain files that are there now, and not their names, behind which a pipe
 * could come to lie. What is no plain file is not there. PAM's modules ask for accounts (UsePAM). */
static int collect_names(int jail, struct jail_layers *layers, struct jail_error *error)
{
	static const char *const targets[] = {"var/lib/extrausers/passwd", "var/lib/extrausers/group"};
	static const char *const sources[] = {"etc/passwd", "etc/group"};
	static const struct jail_attributes texts = {MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, false};
	int result = 0;

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]) && result == 0; i++) {
		struct stat status;
		int file = jail_path_open(jail, sources[i], O_PATH);
		int tree = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) ? jail_clone(file, "", false) : -1;

		if (tree >= 0 && jail_set(tree, texts) == 0)
			result = jail_layers_add(layers, tree, targets[i], false, error);
		else
			jail_close(tree);
		jail_close(file);
	}
	return result;
}

/* What the view has of each entry: the whole jail, and, as mounts since Slurm's PMIx takes no link for it, what is /tmp and /dev/shm there. */
int jail_view_collect(const struct jail_layers *brought, int jail, struct jail_layers *layers, struct jail_error *error)
{
	static const char *const places[] = {"tmp", "dev/shm"};
	int tree = jail_clone(jail, "", true);

	if (tree < 0)
		return jail_fail(error, "the jail cannot be shown to slurmstepd (%s)", strerror(errno));
	if (jail_layers_add(layers, tree, JAIL_IN_VIEW, true, error) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		tree = copy_of(brought, jail, places[i]);
		if (tree < 0)
			return jail_fail(error, "the jail's /%s cannot be shown to slurmstepd (%s)", places[i], strerror(errno));
		if (jail_layers_add(layers, tree, places[i], true, error) < 0)
			return -1;
	}
	return collect_names(jail, layers, error);
}
