/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The way in: two mount namespaces, each a copy of a template's (template.c), and in them what the entry has of its own.
 *
 *   pure     the jail is the root, as a task sees it
 *   view     slurmstepd's own root, made of the pod, with the whole of the first below it (view.c); in it slurmstepd goes on
 *
 * A task leaves the second for the first (jail_strip) before it becomes the user: one setns, so nothing has to be found and unmounted by its name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

static long microseconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000000L + (now.tv_nsec - start->tv_nsec) / 1000L;
}

/* Tree of a directory that shows in the jail; takes the descriptor over. "what" is for the sentence. */
static int tree_of(int directory, const char *what, struct jail_error *error)
{
	int tree;

	if (directory < 0)
		return -1;
	tree = jail_clone(directory, "", false);
	if (tree < 0)
		jail_fail(error, "%s cannot be shown in the jail (%s)", what, strerror(errno));
	jail_close(directory);
	return tree;
}

/* Tree of the directory that becomes /tmp; -1 with an empty message when the jail keeps its own. */
static int tmp_tree(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	int directory;

	error->text[0] = '\0';
	if (!plan->tmp)
		return -1;
	if (job != 0)
		return tree_of(jail_job_open(plan->tmp, job, 01777, error), "the job's /tmp", error);
	directory = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return directory < 0 ? jail_fail(error, "the pod's /tmp cannot be opened (%s)", strerror(errno)) : tree_of(directory, "the pod's /tmp", error);
}

/* Tree of the directory that becomes /dev/shm; -1 with an empty message when the pod's is shown. */
static int shm_tree(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	error->text[0] = '\0';
	if (!plan->shm || job == 0)
		return -1;
	return tree_of(jail_job_open(plan->shm, job, 01777, error), "the job's /dev/shm", error);
}

/* Set-uid programs of the jail itself work, for sudo does; those of volumes below it do not, and no device file does. A jail that the
 * pod has without set-uid stays so. */
static int harden(const struct jail_plan *plan, int tree)
{
	const struct jail_attributes all = {MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | (plan->mode == JAIL_RO ? MOUNT_ATTR_RDONLY : 0), 0, true};
	const struct jail_attributes root = {0, MOUNT_ATTR_NOSUID, false};
	struct statvfs before;

	if (fstatvfs(tree, &before) < 0 || jail_set(tree, all) < 0)
		return -1;
	return before.f_flag & ST_NOSUID ? 0 : jail_set(tree, root);
}

/* The jail's tree, or the job's overlay with the jail's volumes over it, attached over the jail so that it can become the root. */
static int attach_root(const struct jail_plan *plan, uint32_t job, int root, struct jail_error *error)
{
	struct jail_submounts submounts = {.count = 0};
	int tree = -1;
	int result = 0;

	if (plan->mode != JAIL_OVERLAY)
		tree = jail_clone(root, "", true);
	else if (jail_submounts_collect(plan->jail, &submounts, error) == 0)
		tree = jail_overlay_tree(plan, job, error);
	if (tree < 0)
		result = plan->mode == JAIL_OVERLAY ? -1 : jail_fail(error, "the jail %s cannot be mounted (%s): the container needs CAP_SYS_ADMIN and Linux 5.12",
								     plan->jail, strerror(errno));
	else if (jail_attach(tree, root) < 0)
		result = jail_fail(error, "the jail %s cannot be mounted over itself (%s): the container needs CAP_SYS_ADMIN", plan->jail, strerror(errno));
	else
		result = jail_submounts_attach(&submounts, tree, error);
	jail_submounts_close(&submounts);
	if (result == 0)
		return tree;
	jail_close(tree);
	return -1;
}

/* A jail that is a volume's own mount, as in a pod, becomes the root itself: this namespace has its own copy of that mount and of all that is
 * below it, and one more would be copied again with the namespace. */
static int own_root(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	int root = jail_open(plan->jail, error);

	if (root >= 0 && (plan->mode == JAIL_OVERLAY || !jail_is_mount(root))) {
		int tree = attach_root(plan, job, root, error);

		jail_close(root);
		root = tree;
	}
	if (root < 0 || harden(plan, root) == 0)
		return root;
	jail_fail(error, "the mount attributes of the jail %s cannot be set (%s)", plan->jail, strerror(errno));
	jail_close(root);
	return -1;
}

static int become_root(int root)
{
	return fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ? -1 : 0;
}

/* A mount that was made outside of the pod's user namespace is locked in its place. A copy of it is not. */
static int become_root_as_copy(int root)
{
	int result;
	int tree = jail_clone(root, "", true);

	if (tree < 0)
		return -1;
	result = jail_attach(tree, root) < 0 ? -1 : become_root(tree);
	jail_close(tree);
	return result;
}

static bool is_root(const struct jail_root *root)
{
	struct stat status;

	return stat("/", &status) == 0 && status.st_dev == root->device && status.st_ino == root->inode;
}

static void note_root(struct jail_root *root, const struct stat *status)
{
	*root = (struct jail_root){status->st_dev, status->st_ino};
}

/* Makes "root" the root of this mount namespace, and nothing else is left of the pod's. */
static int pivot(int root, struct jail_error *error)
{
	if (become_root(root) < 0 && (errno != EINVAL || become_root_as_copy(root) < 0))
		return jail_fail(error, "the jail cannot become the root (pivot_root: %s): the container needs CAP_SYS_ADMIN, and seccomp and AppArmor "
				 "profiles that allow pivot_root and mount", strerror(errno));
	/* The pod's root lies over it now, and "." leads to what lies uppermost (pivot_root(2)). */
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return jail_fail(error, "the pod's root cannot be left behind (%s)", strerror(errno));
	return 0;
}

static int move_in(const struct jail_plan *plan, uint32_t job, const struct jail_log *log, struct jail_view *view, struct jail_error *error)
{
	struct jail_dress dress = {.plan = plan, .log = log, .root = own_root(plan, job, error), .keep = false};
	struct stat status;
	int result = -1;

	if (dress.root < 0)
		return -1;
	if (fstat(dress.root, &status) < 0) {
		jail_fail(error, "the jail %s cannot be read (%s)", plan->jail, strerror(errno));
	} else {
		note_root(&view->jail, &status);
		if (jail_dress(&dress, error) == 0)
			result = pivot(dress.root, error);
	}
	jail_close(dress.root);
	return result;
}

static int move_to_view(const struct jail_plan *plan, const struct jail_log *log, int jail, struct jail_error *error)
{
	int root = jail_view_make(plan, log, jail, error);
	int result = root < 0 ? -1 : pivot(root, error);

	jail_close(root);
	return result;
}

/* From the pod's mount namespace, which the calling thread is in again after it, but after a failure. */
struct way {
	const struct jail_plan *plan;
	uint32_t job;
	const struct jail_log *log;
	int pod;
	struct jail_view *view;
};

static int no_setns(const char *what, struct jail_error *error)
{
	return jail_fail(error, "%s (setns: %s): the container needs CAP_SYS_ADMIN and CAP_SYS_CHROOT", what, strerror(errno));
}

/* A new template's mount namespace: slurmstepd's root beside the jail that "jail" is the root of, or, with -1, the jail's own. */
static int make_template(const struct way *way, int jail, struct jail_error *error)
{
	int namespace;

	if (jail_template_unshare(way->pod) < 0)
		return jail_fail(error, "a mount namespace cannot be made (%s): the container needs CAP_SYS_ADMIN", strerror(errno));
	/* Slave, never shared: pivot_root refuses shared mounts, and our unmounts must not reach slurmd. Volumes that the
	 * kubelet mounts later still arrive. */
	if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		return jail_fail(error, "the pod's mounts cannot be made private to this step (%s)", strerror(errno));
	if ((jail < 0 ? move_in(way->plan, way->job, way->log, way->view, error) : move_to_view(way->plan, way->log, jail, error)) < 0)
		return -1;
	namespace = jail_own_namespace();
	if (namespace < 0)
		return jail_fail(error, "the jail's mount namespace cannot be kept (%s): /proc is not mounted in the jail", strerror(errno));
	if (setns(way->pod, CLONE_NEWNS) == 0)
		return namespace;
	no_setns("the jail's mount namespace cannot be left again", error);
	jail_close(namespace);
	return -1;
}

/* The jail is the root, by the template's name at least. */
static bool is_whole(const struct jail_template *template, const struct jail_view *view)
{
	int root = is_root(&view->jail) ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	bool whole = root >= 0 && jail_dress_is_whole(template->shown, root);

	jail_close(root);
	return whole;
}

enum stay { IN_POD, IN_TEMPLATE, LOST };

/* To the template that is there, if there is one that is good. */
static enum stay go_to_kept(const struct way *way, const struct jail_template *template)
{
	int namespace = jail_template_open(template);
	bool there = namespace >= 0 && setns(namespace, CLONE_NEWNS) == 0;

	jail_close(namespace);
	if (!there)
		return IN_POD;
	if (is_whole(template, way->view))
		return IN_TEMPLATE;
	return setns(way->pod, CLONE_NEWNS) == 0 ? IN_POD : LOST;
}

/* Keeps a new one for the next entry, and enters it. Takes the descriptor over. */
static int go_to_new(const struct way *way, const struct jail_template *template, int namespace, struct jail_error *error)
{
	int result = namespace;

	if (namespace < 0)
		return -1;
	jail_template_keep(template, namespace, way->log);
	result = setns(namespace, CLONE_NEWNS);
	if (result < 0)
		no_setns("the jail's mount namespace cannot be entered", error);
	jail_close(namespace);
	return result;
}

/* What an entry takes along from the pod. */
struct luggage {
	struct jail_layers own;
	struct jail_spool spool;
	struct jail_template jail;
	struct jail_template view;
	int kept; /* the mount namespace of slurmstepd's root, if one was kept */
};

/* What the templates of the pod, as it is now, are called. "root" is the jail's, as the pod has it. */
static void name_templates(const struct way *way, int root, struct luggage *luggage)
{
	jail_template_name(way->plan, &luggage->jail);
	jail_template_of_view(way->plan, &luggage->jail, root, &luggage->view);
	jail_close(luggage->kept);
	luggage->kept = jail_template_open(&luggage->view);
}

/* To a template of the jail, which is made where there is none. */
static int go_to_jail(const struct way *way, struct luggage *luggage, struct jail_error *error)
{
	enum stay stay = luggage->jail.name[0] ? go_to_kept(way, &luggage->jail) : IN_POD;
	int root;

	if (stay == IN_TEMPLATE)
		return 0;
	if (stay == LOST)
		return no_setns("the pod cannot be gone back to", error);
	if (jail_volumes_check(way->plan, way->log, error) < 0)
		return -1;
	/* The volumes may have been attached again. Before it is made: what is mounted meanwhile must not be in the name of one that does not show it. */
	root = jail_open(way->plan->jail, error);
	if (root < 0)
		return -1;
	name_templates(way, root, luggage);
	jail_close(root);
	return go_to_new(way, &luggage->jail, make_template(way, -1, error), error);
}

/* To slurmstepd's root beside that jail. "kept" is the one that was there before, or -1. */
static int go_to_view(const struct way *way, const struct jail_template *template, int kept, int jail, struct jail_error *error)
{
	if (kept >= 0)
		return setns(kept, CLONE_NEWNS) == 0 ? 0 : no_setns("slurmstepd's mount namespace cannot be entered", error);
	if (setns(way->pod, CLONE_NEWNS) < 0)
		return no_setns("the pod cannot be gone back to", error);
	return go_to_new(way, template, make_template(way, jail, error), error);
}

/* "namespace", if it is not NULL, receives the namespace of that root. It is opened before: the calling thread may not be in the /proc that the root brings. */
static int lay_over(const struct jail_layers *layers, const struct jail_log *log, int *namespace, struct jail_error *error)
{
	int result;
	int root;

	/* Its copy: the template is for others. */
	if (unshare(CLONE_NEWNS) < 0)
		return jail_fail(error, "the jail's mount namespace cannot be copied (%s)", strerror(errno));
	if (namespace && (*namespace = jail_own_namespace()) < 0)
		return jail_fail(error, "the jail's mount namespace cannot be kept (%s): /proc is not mounted in the jail", strerror(errno));
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return jail_fail(error, "the jail's root cannot be opened from inside (%s)", strerror(errno));
	result = jail_layers_apply(layers, log, root, false, error);
	jail_close(root);
	return result;
}

static int pack(const struct way *way, struct luggage *luggage, struct jail_error *error)
{
	struct stat status;
	int result = -1;
	int shm = -1;
	int tmp;
	int root = jail_open(way->plan->jail, error);

	if (root < 0)
		return -1;
	if (way->pod < 0 || fstat(root, &status) < 0) {
		jail_fail(error, "the pod's mounts, or the jail %s in them, cannot be read (%s)", way->plan->jail, strerror(errno));
	} else {
		note_root(&way->view->jail, &status);
		name_templates(way, root, luggage);
		tmp = tmp_tree(way->plan, way->job, error);
		if (!error->text[0])
			shm = shm_tree(way->plan, way->job, error);
		if (!error->text[0])
			result = jail_own_collect(way->plan, way->log, tmp, shm, &luggage->own, error);
		else
			jail_close(tmp);
		if (result == 0)
			result = jail_spool_collect(way->plan, way->log, way->job, &luggage->spool, &luggage->own, error);
		if (result == 0)
			result = jail_ipc_collect(way->plan, way->job, &luggage->own, error);
		if (result == 0)
			result = jail_pid_collect(way->plan, way->job, &luggage->own, error);
	}
	jail_close(root);
	return result;
}

/* From the jail, where it is the root: to slurmstepd's view of it. */
static int go_on(const struct way *way, struct luggage *luggage, struct jail_error *error)
{
	struct jail_layers layers = {0, NULL};
	struct stat status;
	int result = -1;
	int jail = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (jail < 0) {
		jail_fail(error, "the jail's root cannot be opened from inside (%s)", strerror(errno));
	} else if (jail_view_collect(&luggage->own, jail, &layers, error) == 0 &&
		   go_to_view(way, &luggage->view, luggage->kept, jail, error) == 0) {
		result = lay_over(&layers, way->log, NULL, error);
		if (result == 0 && stat("/", &status) == 0)
			note_root(&way->view->own, &status);
	}
	jail_layers_close(&layers);
	jail_close(jail);
	return result;
}

static int go_in(const struct way *way, struct luggage *luggage, struct jail_error *error)
{
	if (go_to_jail(way, luggage, error) < 0)
		return -1;
	if (!is_root(&way->view->jail))
		return jail_fail(error, "the root after the entry is not the jail %s", way->plan->jail);
	if (lay_over(&luggage->own, way->log, &way->view->pure, error) < 0)
		return -1;
	return go_on(way, luggage, error);
}

/* Moves the calling thread into the jail for good. "job" 0 stands for no job: its /tmp and /dev/shm are the pod's. jail_ipc_join and jail_pid_open come first, and for
 * JAIL_OVERLAY jail_overlay_mount. After a failure the thread is in the pod, as far as it could go back: its process must not go on to do a user's
 * work. */
int jail_enter(const struct jail_plan *plan, uint32_t job, const struct jail_log *log, struct jail_view *view, struct jail_error *error)
{
	struct luggage luggage = {.own = {0, NULL}, .kept = -1};
	struct way way = {plan, job, log, -1, view};
	struct timespec start;
	int result;

	clock_gettime(CLOCK_MONOTONIC, &start);
	*view = (struct jail_view)JAIL_NO_VIEW;
	if (jail_await(plan->jail, plan->timeout, plan->wait, error) < 0)
		return -1;
	/* setns wants a root and a working directory that no other thread has. */
	if (unshare(CLONE_FS) < 0)
		return jail_fail(error, "this thread cannot have a root of its own (%s)", strerror(errno));
	way.pod = jail_own_namespace();
	result = pack(&way, &luggage, error);
	if (result == 0)
		result = go_in(&way, &luggage, error);
	/* slurmstepd reports it through the daemons' own munged, not through the one for those in the jail. */
	if (result < 0 && way.pod >= 0)
		setns(way.pod, CLONE_NEWNS);
	jail_layers_close(&luggage.own);
	jail_close(luggage.kept);
	jail_close(way.pod);
	if (result < 0) {
		jail_view_close(view);
		return -1;
	}
	view->entered = true;
	jail_info(log, "entered the jail %s in %ld us", plan->jail, microseconds_since(&start));
	return 0;
}

/* Gives the calling thread, which stays in the pod, the job's own /tmp all the same: the pod's is not for users. */
int jail_stay_outside(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	int result = -1;
	int tree = plan->tmp ? tree_of(jail_job_open(plan->tmp, job, 01777, error), "the job's /tmp", error) : -1;
	int target = -1;

	if (tree < 0)
		return plan->tmp ? -1 : 0;
	/* Opened in the new namespace: a directory of the old one cannot be mounted on. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0 ||
	    (target = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0 || jail_attach(tree, target) < 0)
		jail_fail(error, "the job's /tmp cannot be mounted in the pod (%s): the container needs CAP_SYS_ADMIN", strerror(errno));
	else
		result = 0;
	jail_close(target);
	jail_close(tree);
	return result;
}

int jail_verify(const struct jail_view *view, struct jail_error *error)
{
	if (!view->entered)
		return jail_fail(error, "this process never entered the jail: nothing is run outside of it, tell the administrator");
	if (!is_root(&view->jail) && !is_root(&view->own))
		return jail_fail(error, "the root of this process is not the jail (another plugin moved it?): nothing is run outside of it");
	return 0;
}

/* For a task, after fork: from slurmstepd's view to the task's. */
int jail_strip(struct jail_view *view, struct jail_error *error)
{
	if (jail_verify(view, error) < 0 || jail_descriptors_leave(JAIL_AT_EXEC, error) < 0)
		return -1;
	view->descriptors = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (setns(view->pure, CLONE_NEWNS) < 0)
		return jail_fail(error, "the task cannot leave slurmstepd's view behind (setns: %s)", strerror(errno));
	return is_root(&view->jail) ? 0 : jail_fail(error, "the root of this task is not the jail: nothing is run outside of it");
}

void jail_view_close(struct jail_view *view)
{
	jail_close(view->pure);
	jail_close(view->descriptors);
	*view = (struct jail_view)JAIL_NO_VIEW;
}

/* Before the first mounts of a login pod: those are not to lose their devices. A jail that is a plain directory has its file system's
 * attributes, which are not the jail's to change. */
static int harden_once(const struct jail_plan *plan, int root, struct jail_error *error)
{
	/* One of them may be lost, when its directory was removed elsewhere. */
	static const char *const first[] = {"proc", "dev", "run"};
	bool dressed = false;

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		int place = jail_path_open(root, first[i], O_PATH);

		dressed |= place >= 0 && jail_is_mount(place);
		jail_close(place);
	}
	if (dressed || !jail_is_mount(root) || harden(plan, root) == 0)
		return 0;
	return jail_fail(error, "the mount attributes of the jail %s cannot be set (%s): the container needs CAP_SYS_ADMIN", plan->jail, strerror(errno));
}

/* The mounts of a login pod, in the mount namespace of the caller and without entering: sshd does a chroot. A second call
 * finds them there and changes nothing. */
int jail_prepare(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error)
{
	struct jail_dress dress = {.plan = plan, .log = log, .keep = true};
	struct jail_layers own = {0, NULL};
	int result = -1;
	int tmp;

	if (jail_await(plan->jail, plan->timeout, plan->wait, error) < 0)
		return -1;
	dress.root = jail_open(plan->jail, error);
	if (dress.root < 0)
		return -1;
	tmp = tmp_tree(plan, 0, error);
	if ((tmp >= 0 || !error->text[0]) && jail_own_collect(plan, log, tmp, -1, &own, error) == 0 && harden_once(plan, dress.root, error) == 0 &&
	    jail_dress(&dress, error) == 0)
		result = jail_layers_apply(&own, log, dress.root, true, error);
	jail_layers_close(&own);
	jail_close(dress.root);
	return result;
}
