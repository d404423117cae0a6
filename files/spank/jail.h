/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * libjail: enter the shared root of a cluster ("the jail"), or dress it for a chroot.
 * Knows nothing of Slurm; the SPANK plugin and jail-exec are thin callers.
 *
 * Every function that can fail returns 0 or a descriptor on success and -1 on failure, with one sentence in
 * struct jail_error: what, where, why and what to do next.
 */
#ifndef CORRAL_JAIL_H
#define CORRAL_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The file that the populate job writes last: no marker, no jail. Relative to the jail's root. */
#define JAIL_MARKER "etc/corral-jail"

/* The argument of jail-exec and of the PAM module that names a plugstack.conf: the plan is the SPANK plugin's (jail_plan_of_plugin). */
#define JAIL_PLUGSTACK "plugstack="

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

struct jail_named {
	char *name;
	char *path;
};

/* Jobs of this partition start in that jail when they do not ask for another. */
struct jail_partition {
	char *partition;
	char *jail;
};

enum jail_mode {
	JAIL_RW,
	JAIL_RO,      /* nothing of the jail can be written, its submounts neither */
	JAIL_OVERLAY, /* what the job writes is its own on this node, and gone with it; submounts are as ever */
};

#define JAIL_DEFAULT "default"

/* The administrator's configuration, parsed from "key=value" arguments, and what was chosen of it. */
struct jail_plan {
	const char *name; /* of the chosen jail; the default one after jail_plan_parse */
	const char *jail; /* its root in the pod */
	enum jail_mode mode;

	struct jail_named *jails; /* jail=PATH (required) and jail.NAME=PATH; the default one first */
	size_t jail_count;
	struct jail_partition *partitions; /* partition.PARTITION=NAME */
	size_t partition_count;
	char *spool;   /* spool=  SlurmdSpoolDir, visible at the same path in the jail; NULL (spool=none): there is none */
	char *tmp;     /* tmp=    where the jobs' own /tmp directories are made; NULL (tmp=jail): the jail's own /tmp */
	char *shm;     /* shm=    where the jobs' own /dev/shm are made; NULL (shm=pod): the pod's /dev/shm */
	bool ipc_of_job; /* ipc=job (the default) or ipc=node: whose IPC namespace a job has */
	bool pid_of_job; /* pid=job or pid=node (the default): whose PID namespace a job has */
	char *overlay; /* overlay= where the jobs' overlays are kept; NULL: no job can have one */
	uid_t *outsiders; /* no-jail= who may run outside of the jail */
	size_t outsider_count;
	unsigned timeout; /* timeout= seconds after which a jail that does not respond counts as hung */
	unsigned wait;    /* wait=    seconds for which a missing jail is probed again */
	struct jail_bind *binds; /* bind=SOURCE:TARGET[:ro], repeatable */
	size_t bind_count;
	char **devices; /* dev=PATTERN, repeatable: more names of /dev to show, shell patterns without a slash */
	size_t device_count;
};

/* Where slurmstepd's root, which is not the jail's (view.c), has the jail. */
#define JAIL_IN_VIEW ".corral"

/* How to inspect the jail once inside; made by jail_enter, used by the others. */
struct jail_root {
	dev_t device;
	ino_t inode;
};
struct jail_view {
	bool entered;
	struct jail_root jail;
	struct jail_root own; /* slurmstepd's */
	int pure;	      /* the mount namespace in which the jail is the root */
	int descriptors;      /* the task's /proc/self/fd, as slurmstepd's view has it; since jail_strip */
};
#define JAIL_NO_VIEW {.entered = false, .pure = -1, .descriptors = -1}

/* plan.c */
int jail_plan_parse(struct jail_plan *plan, int count, char **arguments, struct jail_error *error);
int jail_plan_of_plugin(struct jail_plan *plan, const char *file, int count, char **arguments, struct jail_error *error);
int jail_plan_choose(struct jail_plan *plan, const char *name, struct jail_error *error);
int jail_plan_choose_mode(struct jail_plan *plan, enum jail_mode mode, struct jail_error *error);
const char *jail_mode_name(enum jail_mode mode);
const char *jail_plan_of_partition(const struct jail_plan *plan, const char *partition);
bool jail_plan_lets_out(const struct jail_plan *plan, uid_t uid);
void jail_plan_free(struct jail_plan *plan);

/* check.c */
int jail_await(const char *path, unsigned timeout, unsigned wait, struct jail_error *error);
int jail_open(const char *path, struct jail_error *error);
int jail_has_room(const char *path, unsigned timeout, struct jail_error *error);
int jail_image(const char *path, char *image, size_t size);

/* job.c: what a job has of its own on a node */
int jail_job_open(const char *base, uint32_t job, mode_t mode, struct jail_error *error);
int jail_job_remove(const char *base, uint32_t job, struct jail_error *error);

/* session.c: who comes to a running job by ssh */
int jail_note(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_follow_note(struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_session_begin(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_sessions_end(const struct jail_plan *plan, uint32_t job, struct jail_error *error);

/* overlay.c */
int jail_overlay_mount(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_overlay_remove(const struct jail_plan *plan, uint32_t job, struct jail_error *error);

/* ipc.c */
int jail_ipc_join(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_ipc_remove(uint32_t job, struct jail_error *error);

/* pid.c */
int jail_pid_open(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_pid_lead(int namespace);
int jail_pid_remove(uint32_t job, struct jail_error *error);

/* enter.c */
int jail_enter(const struct jail_plan *plan, uint32_t job, const struct jail_log *log, struct jail_view *view,
	       struct jail_error *error);
int jail_stay_outside(const struct jail_plan *plan, uint32_t job, struct jail_error *error);
int jail_verify(const struct jail_view *view, struct jail_error *error);
int jail_strip(struct jail_view *view, struct jail_error *error);
void jail_view_close(struct jail_view *view);
int jail_prepare(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error);

/* volumes.c */
int jail_attach_binds(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error);

/* descriptors.c: what is open leads out of any root */
enum jail_leave {
	JAIL_AT_EXEC,
	JAIL_NOW,
};
int jail_descriptors_leave(enum jail_leave when, struct jail_error *error);
int jail_standard_is_jails(const struct jail_view *view, struct jail_error *error);

/* template.c */
void jail_templates_forget(void);

/* caps.c */
int jail_drop_capabilities(struct jail_error *error);

/* fence.c */
int jail_fence(struct jail_error *error);

#endif
