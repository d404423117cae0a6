/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What libjail's own files share. The mount calls are made by number: glibc has wrappers for them only since 2.36
 * and for openat2 in no release that we build on.
 */
#ifndef CORRAL_JAIL_INTERNAL_H
#define CORRAL_JAIL_INTERNAL_H

#include <limits.h>

#include "jail.h"

/* Fills the sentence, keeps errno, returns -1. */
int jail_fail(struct jail_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void jail_info(const struct jail_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void jail_debug(const struct jail_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Keeps errno; nothing to do for -1. */
void jail_close(int fd);
/* Turns errno into a message about something to be shown at /PARENT TARGET: -1 with the message where it is required, else 0. */
int jail_not_shown(const struct jail_log *log, const char *parent, const char *target, bool mandatory, const char *why, struct jail_error *error);

/* path.c: names inside the jail, never led astray by a symbolic link. */
int jail_path_open(int root, const char *path, int flags);
bool jail_is_mount(int fd);

/* mount.c: trees of mounts held by descriptor. */
struct jail_attributes {
	uint64_t set;
	uint64_t clear;
	bool recursive;
};
int jail_clone(int directory, const char *path, bool recursive);
int jail_set(int tree, struct jail_attributes attributes);
int jail_fresh(const char *filesystem, const char *const *options, uint64_t attributes);
int jail_attach(int tree, int target);

/* layers.c: what is laid over the jail later than it is taken from the pod. */
struct jail_layer {
	int tree;
	const char *target; /* relative to the jail's root */
	bool mandatory;
};
struct jail_layers {
	size_t count;
	struct jail_layer *layer;
};
int jail_layers_add(struct jail_layers *layers, int tree, const char *target, bool mandatory, struct jail_error *error);
int jail_layers_show(struct jail_layers *layers, const struct jail_log *log, const char *source, const char *target, bool mandatory,
		     struct jail_attributes attributes, struct jail_error *error);
int jail_layers_apply(const struct jail_layers *layers, const struct jail_log *log, int root, bool keep, struct jail_error *error);
void jail_layers_close(struct jail_layers *layers);

/* dress.c: everything that is laid over the jail's root, for a step and for a chroot alike. */
struct jail_dress {
	const struct jail_plan *plan;
	const struct jail_log *log;
	int root;  /* of the tree that is dressed */
	bool keep; /* a chroot: what is mounted already stays, which makes a second call harmless */
};
struct jail_digest {
	uint64_t value;
};
#define JAIL_DIGEST {0xcbf29ce484222325}
/* Directories with the socket of a munged or of a sackd; the jail's, where there is one, is that of a daemon that knows neither root nor Slurm's own account.
   A machine without Kubernetes may have none of the jail's, and one directory alone. */
struct jail_auth {
	const char *pods, *users, *inside;
};
extern const struct jail_auth jail_auths[2];
int jail_dress(const struct jail_dress *dress, struct jail_error *error);
int jail_proc_of_own(const struct jail_dress *dress, struct jail_error *error);
uint32_t jail_dress_digest(struct jail_digest *digest);
bool jail_dress_is_whole(uint32_t shown, int root);
int jail_own_collect(const struct jail_plan *plan, const struct jail_log *log, int tmp, int shm, struct jail_layers *own, struct jail_error *error);
int jail_binds_collect(const struct jail_plan *plan, const struct jail_log *log, struct jail_layers *layers, struct jail_error *error);

/* spool.c */
struct jail_spool {
	char path[2][PATH_MAX];
};
int jail_spool_collect(const struct jail_plan *plan, const struct jail_log *log, uint32_t job, struct jail_spool *names, struct jail_layers *own,
		       struct jail_error *error);

/* ipc.c */
int jail_ipc_collect(const struct jail_plan *plan, uint32_t job, struct jail_layers *own, struct jail_error *error);

/* pid.c */
int jail_pid_collect(const struct jail_plan *plan, uint32_t job, struct jail_layers *own, struct jail_error *error);

/* digest.c */
void jail_digest_add(struct jail_digest *digest, const void *data, size_t size);
int jail_digest_add_mounts(const struct jail_plan *plan, const char *without, struct jail_digest *digest);

/* template.c */
/* A file system of its own: what is mounted there must not come to other mount namespaces, for one cannot be shown in itself. */
#define JAIL_TEMPLATES "/run/corral-jail"
struct jail_template {
	char name[40];
	uint32_t shown; /* parts of the dress that the pod has */
	uint64_t pod;	/* what the pod has mounted */
};
int jail_templates_home(bool wait);
int jail_namespace_open(const char *path);
int jail_template_name(const struct jail_plan *plan, struct jail_template *template);
void jail_template_of_view(const struct jail_plan *plan, const struct jail_template *jails, int jail, struct jail_template *view);
int jail_own_namespace(void);
int jail_template_unshare(int pod);
int jail_template_open(const struct jail_template *template);
void jail_template_keep(const struct jail_template *template, int namespace, const struct jail_log *log);

/* volumes.c */
int jail_volumes_check(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error);

/* overlay.c */
char *jail_mount_point(char *line);
int jail_overlay_tree(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
#define JAIL_SUBMOUNTS_MAX 64
struct jail_submounts {
	size_t count;
	struct {
		int tree;
		char *target;
	} mount[JAIL_SUBMOUNTS_MAX];
};
int jail_submounts_collect(const char *jail, struct jail_submounts *submounts, struct jail_error *error);
int jail_submounts_attach(struct jail_submounts *submounts, int root, struct jail_error *error);
void jail_submounts_close(struct jail_submounts *submounts);

/* view.c */
void jail_view_digest(const struct jail_plan *plan, int jail, struct jail_digest *digest);
int jail_view_make(const struct jail_plan *plan, const struct jail_log *log, int jail, struct jail_error *error);
int jail_view_collect(const struct jail_layers *brought, int jail, struct jail_layers *layers, struct jail_error *error);

#endif
