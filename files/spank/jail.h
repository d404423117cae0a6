/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * libjail: enter the shared root of a cluster ("the jail"), or dress it for a chroot.
 * Knows nothing of Slurm; the SPANK plugin and jail-exec are thin callers.
 *
 * Every function that can fail returns 0 or a descriptor on success and -1 on failure, with one sentence in
 * struct jail_error that says what, where, why and what to do next.
 */
#ifndef CORRAL_JAIL_H
#define CORRAL_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The file that the populate job writes last: no marker, no jail. Relative to the jail's root. */
#define JAIL_MARKER "etc/corral-jail"

struct jail_error {
	char text[768];
};

/* Where progress goes: optional parts that are missing, and how long the entry took. */
struct jail_log {
	void (*info)(const char *text);
	void (*debug)(const char *text);
};

struct jail_bind {
	char *source; /* absolute, in the pod */
	char *target; /* absolute, in the jail */
	bool read_only;
};

/* What the administrator asks for, parsed from "key=value" words. */
struct jail_plan {
	char *jail;  /* jail=   the jail's root in the pod; required */
	char *spool; /* spool=  SlurmdSpoolDir, seen at the same path in the jail */
	char *tmp;   /* tmp=    where the jobs' own /tmp directories are made; NULL (tmp=jail): the jail's own /tmp */
	struct jail_bind *binds; /* bind=SOURCE:TARGET[:ro], repeatable */
	size_t bind_count;
	char **devices; /* dev=PATTERN, repeatable: more names of /dev to show, shell patterns without a slash */
	size_t device_count;
};

/* How to look at the jail once inside; made by jail_enter, asked by the others. */
struct jail_view {
	bool entered;
	dev_t device; /* of the jail's root */
	ino_t inode;
	int pure; /* the mount namespace without the pod's libraries over the jail's */
};

/* plan.c */
int jail_plan_parse(struct jail_plan *plan, int count, char **words, struct jail_error *error);
void jail_plan_free(struct jail_plan *plan);

/* check.c */
int jail_open(const char *path, struct jail_error *error);

/* tmp.c */
int jail_tmp_open(const char *base, uint32_t job, struct jail_error *error);
int jail_tmp_remove(const char *base, uint32_t job, struct jail_error *error);

/* enter.c */
int jail_enter(const struct jail_plan *plan, uint32_t job, const struct jail_log *log, struct jail_view *view,
	       struct jail_error *error);
int jail_verify(const struct jail_view *view, struct jail_error *error);
int jail_strip(struct jail_view *view, struct jail_error *error);
void jail_view_close(struct jail_view *view);
int jail_prepare(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error);

/* caps.c */
int jail_drop_capabilities(struct jail_error *error);

#endif
