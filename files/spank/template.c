/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Templates: mount namespaces in which a jail is the root and dressed with all that is alike for those who enter, and those of slurmstepd's own root (view.c). To make one takes longer
 * than all the rest of an entry, so it is kept, as a mount of its file in /proc, and entries take copies of it. Its name says what it was made of:
 * the plan, the mounts of the pod that it shows, and the devices and files that are no mounts. Any other mount or device makes another name,
 * and the template of the old one is removed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "internal.h"

#define DIGITS 16

static void add_text(struct jail_digest *digest, const char *text)
{
	jail_digest_add(digest, text ? text : "", text ? strlen(text) + 1 : 1);
}

static uint64_t digest_of_plan(const struct jail_plan *plan, const char *what)
{
	struct jail_digest digest = JAIL_DIGEST;

	add_text(&digest, what);
	add_text(&digest, plan->jail);
	add_text(&digest, plan->spool);
	add_text(&digest, plan->tmp);
	add_text(&digest, jail_mode_name(plan->mode));
	for (size_t i = 0; i < plan->device_count; i++)
		add_text(&digest, plan->devices[i]);
	return digest.value;
}

/* The kernel writes blanks of mount points in its own way; those of the plan could not be compared with them. */
static bool is_plain(const char *path)
{
	return !path || !strpbrk(path, " \t\n\\");
}

static void set_name(struct jail_template *template, uint64_t plan, uint64_t state)
{
	snprintf(template->name, sizeof(template->name), "%0*llx-%0*llx", DIGITS, (unsigned long long)plan, DIGITS, (unsigned long long)state);
}

/* Before anything of the entry is mounted. -1: no template can be found, or kept. */
int jail_template_name(const struct jail_plan *plan, struct jail_template *template)
{
	struct jail_digest digest = JAIL_DIGEST;

	template->name[0] = '\0';
	/* An overlay is the job's own. */
	if (plan->mode == JAIL_OVERLAY || !is_plain(plan->jail) || !is_plain(plan->spool))
		return -1;
	template->shown = jail_dress_digest(&digest);
	if (jail_digest_add_mounts(plan, JAIL_TEMPLATES, &digest) < 0)
		return -1;
	template->pod = digest.value;
	set_name(template, digest_of_plan(plan, "jail"), digest.value);
	return 0;
}

/* That of slurmstepd's root beside a jail's template; "jail" is the jail's root. */
void jail_template_of_view(const struct jail_plan *plan, const struct jail_template *jails, int jail, struct jail_template *view)
{
	struct jail_digest digest = {jails->pod};

	*view = *jails;
	if (!jails->name[0])
		return;
	jail_view_digest(plan, jail, &digest);
	set_name(view, digest_of_plan(plan, "view"), digest.value);
}

#ifndef NS_GET_MNTNS_ID
#define NS_GET_MNTNS_ID _IOR(0xb7, 0x5, uint64_t)
#endif
#define TRIES 8

/* That of the calling thread. */
int jail_own_namespace(void)
{
	return open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
}

/* May this thread's mount namespace be shown in the pod's? Only a younger one may, by their ids, so that none can hold itself. */
static bool is_younger_than(int pod)
{
	int own = jail_own_namespace();
	uint64_t ours;
	uint64_t pods;
	/* Kernels that do not report ids count them up. */
	bool younger = own < 0 || ioctl(own, NS_GET_MNTNS_ID, &ours) < 0 || ioctl(pod, NS_GET_MNTNS_ID, &pods) < 0 || ours > pods;

	jail_close(own);
	return younger;
}

/* A mount namespace of the thread's own, one that can be kept if there is a way. Linux 6.18 gives each processor a batch of ids, so that one made
 * later elsewhere may count as the elder. */
int jail_template_unshare(int pod)
{
	cpu_set_t before;
	cpu_set_t one;
	int result = unshare(CLONE_NEWNS);
	int tries = TRIES;

	if (result < 0 || is_younger_than(pod) || sched_getaffinity(0, sizeof(before), &before) < 0)
		return result;
	for (int cpu = 0; cpu < CPU_SETSIZE && tries > 0 && result == 0; cpu++) {
		if (!CPU_ISSET(cpu, &before))
			continue;
		tries--;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) < 0)
			break;
		result = unshare(CLONE_NEWNS);
		if (is_younger_than(pod))
			break;
	}
	sched_setaffinity(0, sizeof(before), &before);
	return result;
}

/* A namespace that is kept as a mount of its file; -1: there is none. */
int jail_namespace_open(const char *path)
{
	struct statfs status;
	int namespace = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	/* A file that nothing is mounted on: who made it was interrupted, or is at it. */
	if (namespace >= 0 && (fstatfs(namespace, &status) < 0 || status.f_type != NSFS_MAGIC)) {
		close(namespace);
		return -1;
	}
	return namespace;
}

/* Its mount namespace; -1: there is none. */
int jail_template_open(const struct jail_template *template)
{
	char path[sizeof(JAIL_TEMPLATES) + sizeof(template->name)];

	if (!template->name[0])
		return -1;
	snprintf(path, sizeof(path), JAIL_TEMPLATES "/%s", template->name);
	return jail_namespace_open(path);
}

static int open_directory(void)
{
	return open(JAIL_TEMPLATES, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Root's alone. -1: it cannot be had, or others are making it and this one does not wait. */
int jail_templates_home(bool wait)
{
	int bare = mkdir(JAIL_TEMPLATES, 0700) < 0 && errno != EEXIST ? -1 : open_directory();
	int home = -1;

	if (bare < 0 || jail_is_mount(bare))
		return bare;
	/* One of the entries that come together makes it, and a later one checks again: a second template would hide the first. */
	if (flock(bare, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0) {
		home = open_directory();
		if (home >= 0 && !jail_is_mount(home)) {
			jail_close(home);
			home = -1;
			if (mount("corral-jail", JAIL_TEMPLATES, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=1m") == 0 &&
			    mount(NULL, JAIL_TEMPLATES, NULL, MS_PRIVATE, NULL) == 0)
				home = open_directory();
		}
	}
	close(bare);
	return home;
}

/* And nothing that jobs have of their own (ipc.c, pid.c). */
static bool is_template(const char *name)
{
	return strlen(name) > DIGITS && name[DIGITS] == '-';
}

/* Those that begin so. Another mount namespace's are only files here. */
static void remove_those(int home, const char *beginning, size_t length)
{
	char path[sizeof(JAIL_TEMPLATES) + NAME_MAX + 1];
	struct dirent *entry;
	int copy = fcntl(home, F_DUPFD_CLOEXEC, 0);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);

	while (list && (entry = readdir(list))) {
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, beginning, length) != 0 || !is_template(entry->d_name))
			continue;
		snprintf(path, sizeof(path), JAIL_TEMPLATES "/%s", entry->d_name);
		if (umount2(path, MNT_DETACH) == 0)
			unlink(path);
	}
	if (list)
		closedir(list);
}

/* For those who come later. Failures cost them time and nothing else. */
void jail_template_keep(const struct jail_template *template, int namespace, const struct jail_log *log)
{
	char path[sizeof(JAIL_TEMPLATES) + sizeof(template->name)];
	char source[32];
	int home = template->name[0] ? jail_templates_home(false) : -1;
	int file;

	if (home < 0)
		return;
	/* Steps may begin together; one of them is enough. */
	if (flock(home, LOCK_EX | LOCK_NB) == 0) {
		/* Of the same plan, and of the pod as it was before. */
		remove_those(home, template->name, DIGITS + 1);
		snprintf(path, sizeof(path), JAIL_TEMPLATES "/%s", template->name);
		snprintf(source, sizeof(source), "/proc/self/fd/%d", namespace);
		file = openat(home, template->name, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (file >= 0)
			close(file);
		if (mount(source, path, NULL, MS_BIND, NULL) < 0)
			jail_debug(log, "the prepared jail cannot be kept for the next entry (%s)", strerror(errno));
	}
	close(home);
}

/* All of them: they hold the jails' volumes. Namespaces of jobs that run on stay, for slurmd may only have been started anew. */
void jail_templates_forget(void)
{
	int home = open_directory();

	if (home < 0)
		return;
	remove_those(home, "", 0);
	close(home);
	/* Refused while there is one. */
	if (umount2(JAIL_TEMPLATES, 0) == 0)
		rmdir(JAIL_TEMPLATES);
}
