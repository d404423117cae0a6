/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The SPANK plugin: every step of every job runs in the jail. In the order of Slurm's callbacks:
 *
 *   slurm_spank_init            everywhere: are the arguments right? the options of srun, sbatch and salloc
 *                               slurmd: drop the templates that the one before kept (template.c)
 *   slurm_spank_init_post_opt   srun, sbatch, salloc: are the options right?
 *                               slurmstepd, before it opens the job's files: enter, and give up for its children what leads out
 *   slurm_spank_task_init_privileged  the task, still root: are we in? leave the pod's libraries and the capabilities behind
 *   slurm_spank_task_init       the task, its user by now and with its input and output: are these the jail's?
 *   slurm_spank_task_post_fork  slurmstepd, when all tasks are forked: what it forks from now on leaves them behind too
 *   slurm_spank_job_epilog      after the job: end who came to it by ssh, remove what it had of its own
 *   slurm_spank_slurmd_exit     slurmd: drop the kept templates
 *
 * In plugstack.conf it must be "required" and first: an "optional" plugin that fails lets the job run in the pod (observed with
 * 24.11). What fails in task_init_privileged is read by the user, so there a fault of the job ends. A fault of the node ends in init_post_opt,
 * before anything of the job is opened: a batch job is put back into the queue then. The user's output does not exist yet, so slurmctld is
 * asked to notify them (notify_user).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "jail.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(corral_jail, 1)
#pragma GCC visibility pop

#define EXPORTED __attribute__((visibility("default")))

/* Where the pod's entry shows the driver that the container runtime brought. */
#define DRIVER "/opt/corral/gpu"

/* Of the pod, and not writable: it has no settings of any user. */
#define NO_HOME "/opt/corral"

/* How a fault of the node begins, as users read it. */
#define FAULT "corral: jail:"

static struct jail_view view = JAIL_NO_VIEW;

/* What the user asks for. */
static struct {
	char jail[64];
	bool read_only;
	bool overlay;
	bool outside;
} wish;

/* This step runs in the pod, as the administrator lets its user. */
static bool outside;
/* The PID namespaces of the job, for what slurmstepd forks, and its own; -1: there is none. */
static int pids_of_job = -1;
static int own_pids = -1;
/* An error of the job, to be reported where its user reads it. */
static struct jail_error deferred;

static void log_info(const char *text)
{
	slurm_info("corral_jail: %s", text);
}

static void log_debug(const char *text)
{
	slurm_debug("corral_jail: %s", text);
}

static const struct jail_log slurm_log = {.info = log_info, .debug = log_debug};

/* Slurm takes only a negative result for a failure of a required plugin: with ESPANK_ERROR, which is 3000, it logs "failed" and
 * runs the task, in the pod (observed with 24.11.5). */
#define REFUSED (-1)
_Static_assert(REFUSED < 0, "Slurm would run the task in the pod");

static int refuse(const struct jail_error *error)
{
	slurm_error("corral_jail: %s", error->text);
	return REFUSED;
}

enum { OPTION_JAIL = 1, OPTION_RO, OPTION_OVERLAY, OPTION_OUTSIDE };

static int on_option(int value, const char *argument, int remote)
{
	(void)remote;
	if (value == OPTION_JAIL && snprintf(wish.jail, sizeof(wish.jail), "%s", argument ? argument : "") >= (int)sizeof(wish.jail)) {
		slurm_error("--jail: the name is longer than any jail's");
		return REFUSED;
	}
	wish.read_only |= value == OPTION_RO;
	wish.overlay |= value == OPTION_OVERLAY;
	wish.outside |= value == OPTION_OUTSIDE;
	return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
	{"jail", "NAME", "run in the shared root of this name", 1, OPTION_JAIL, on_option},
	{"jail-ro", NULL, "run with the shared root read-only", 0, OPTION_RO, on_option},
	{"jail-overlay", NULL, "run with an overlay of the shared root that is the job's own on each node and gone with it", 0, OPTION_OVERLAY, on_option},
	{"no-jail", NULL, "run outside of the shared root; for those whom the administrator lets", 0, OPTION_OUTSIDE, on_option},
};

static int check_wish(struct jail_error *error)
{
	if (wish.read_only + wish.overlay + wish.outside > 1 || (wish.outside && wish.jail[0])) {
		snprintf(error->text, sizeof(error->text), "--jail-ro, --jail-overlay and --no-jail exclude each other, and --no-jail excludes --jail: give one");
		return -1;
	}
	return 0;
}

/* Puts the user's wish into the plan. "partition" may be NULL. */
static int choose(struct jail_plan *plan, const char *partition, struct jail_error *error)
{
	const char *name = wish.jail[0] ? wish.jail : partition ? jail_plan_of_partition(plan, partition) : NULL;
	enum jail_mode mode = wish.read_only ? JAIL_RO : wish.overlay ? JAIL_OVERLAY : JAIL_RW;

	if (check_wish(error) < 0 || (name && jail_plan_choose(plan, name, error) < 0))
		return -1;
	return jail_plan_choose_mode(plan, mode, error);
}

/* The extern step runs no program of the user, and Slurm's own tools inspect it from the pod. */
static bool is_jailed_step(spank_t spank)
{
	uint32_t step = 0;

	return spank_remote(spank) == 1 && spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step != SLURM_EXTERN_CONT;
}

/* But it keeps the cookie of a forwarded X11 display in /tmp, as the user: that is to be the one that the job's tasks see. */
static void dress_extern_step(const struct jail_plan *plan, uint32_t job)
{
	struct jail_error error;

	if (jail_stay_outside(plan, job, &error) < 0)
		slurm_error("corral_jail: %s", error.text);
}

static bool has_options(void)
{
	spank_context_t context = spank_context();

	return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE;
}

EXPORTED int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	struct jail_plan plan;
	struct jail_error error;
	int result;

	if (has_options())
		for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
			if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
				slurm_error("corral_jail: the option --%s cannot be had: another plugin has it", options[i].name);
	result = jail_plan_parse(&plan, count, arguments, &error);
	jail_plan_free(&plan);
	if (spank_context() == S_CTX_SLURMD)
		jail_templates_forget();
	return result < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

/* A volume that is no longer used must not be kept busy. */
EXPORTED int slurm_spank_slurmd_exit(spank_t spank, int count, char **arguments)
{
	(void)spank;
	(void)count;
	(void)arguments;
	jail_templates_forget();
	return ESPANK_SUCCESS;
}

/* In srun, sbatch and salloc: the user gets the error at once. slurmstepd, which trusts no client, decides it all again. */
static int check_command_line(int count, char **arguments)
{
	struct jail_plan plan;
	struct jail_error error = {.text = ""};
	int result = jail_plan_parse(&plan, count, arguments, &error);

	if (result == 0)
		result = choose(&plan, NULL, &error);
	if (result == 0 && wish.outside && !jail_plan_lets_out(&plan, getuid())) {
		snprintf(error.text, sizeof(error.text), "--no-jail is not for you: the administrator lists those who may in the cluster's document");
		result = -1;
	}
	jail_plan_free(&plan);
	return result < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

/* In the jail, whose volume has responded. */
static void export_choice(spank_t spank, const struct jail_plan *plan)
{
	char image[256];
	char text[384];

	jail_image("/" JAIL_IN_VIEW, image, sizeof(image));
	snprintf(text, sizeof(text), "%s%s%s", plan->name, image[0] ? "@" : "", image);
	spank_setenv(spank, "CORRAL_JAIL", text, 1);
	spank_setenv(spank, "CORRAL_JAIL_MODE", jail_mode_name(plan->mode), 1);
}

/* Behind what the user has, and once: a step's environment comes from its job's. */
static void append(spank_t spank, const char *name, const char *directory)
{
	/* The kernel takes no longer variable. */
	size_t size = 128 * 1024;
	char *value = malloc(size);
	spank_err_t found = value ? spank_getenv(spank, name, value, (int)size) : ESPANK_ERROR;

	if (found == ESPANK_ENV_NOEXIST) {
		spank_setenv(spank, name, directory, 1);
	} else if (found == ESPANK_SUCCESS && !strstr(value, directory)) {
		size_t length = strlen(value);

		if (snprintf(value + length, size - length, "%s%s", length ? ":" : "", directory) < (int)(size - length))
			spank_setenv(spank, name, value, 1);
	}
	free(value);
}

/* The driver's programs and libraries, where the pod's entry found some (images/slurm/entry/gpus.sh): no jail's linker cache could name them, for it
 * is one for nodes with and without GPUs. */
static void show_driver(spank_t spank)
{
	if (access(DRIVER "/lib", F_OK) == 0) {
		append(spank, "LD_LIBRARY_PATH", DRIVER "/lib");
		append(spank, "PATH", DRIVER "/bin");
	}
}

/* What slurmstepd knows of the job from its credential. */
struct job {
	uint32_t id;
	uint32_t step;
	uid_t uid;
};

static void stay_outside(spank_t spank, const struct jail_plan *plan, const struct job *job)
{
	if (!jail_plan_lets_out(plan, job->uid)) {
		snprintf(deferred.text, sizeof(deferred.text), "--no-jail is not for you: the administrator lists those who may in the cluster's document");
		return;
	}
	if (jail_stay_outside(plan, job->id, &deferred) < 0)
		return;
	slurm_info("corral_jail: AUDIT uid=%u job=%u step=%u runs outside of the jail by --no-jail", (unsigned)job->uid, (unsigned)job->id,
		   (unsigned)job->step);
	spank_setenv(spank, "CORRAL_JAIL", "none", 1);
	spank_setenv(spank, "CORRAL_JAIL_MODE", "none", 1);
	outside = true;
}

/* A wish that cannot be met is not met by something else: the step enters the default jail, so that its output lands there, and
 * its tasks are refused with the sentence. */
static void settle(spank_t spank, struct jail_plan *plan, const struct job *job)
{
	char partition[64];
	bool known = spank_getenv(spank, "SLURM_JOB_PARTITION", partition, sizeof(partition)) == ESPANK_SUCCESS;

	deferred.text[0] = '\0';
	if (choose(plan, known ? partition : NULL, &deferred) == 0) {
		if (wish.outside)
			stay_outside(spank, plan, job);
		else if (plan->mode == JAIL_OVERLAY)
			jail_overlay_mount(plan, job->id, &deferred);
	}
	if (deferred.text[0])
		plan->mode = JAIL_RW;
}

/* How Slurm's interface names a job. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define JOB_FIELD step_id
static slurm_step_id_t name_of(uint32_t job)
{
	return (slurm_step_id_t){.job_id = job, .step_het_comp = NO_VAL, .step_id = NO_VAL};
}
#else
#define JOB_FIELD job_id
static uint32_t name_of(uint32_t job)
{
	return job;
}
#endif

/* As "scontrol notify" does, and slurmd of a prolog that failed: the sentence is printed by the srun or salloc that has the allocation, or
 * is in the output of the batch script whose step this is. slurmctld sends it beside slurmd's response, and an srun that has that response ends. */
static void notify(const struct job *job, const char *sentence)
{
	const struct timespec pause = {0, 500000000};

	if (slurm_notify_job(name_of(job->id), (char *)(uintptr_t)sentence) == SLURM_SUCCESS)
		nanosleep(&pause, NULL);
}

/* A batch script that was not begun has no output. Its user reads the record of the job (scontrol show job). An administrator's
 * own comment stays. */
static void comment(const struct job *job, const char *sentence)
{
	job_info_msg_t *found = NULL;
	job_desc_msg_t wanted;
	bool others = false;

	if (slurm_load_job(&found, name_of(job->id), 0) != SLURM_SUCCESS)
		return;
	for (uint32_t i = 0; i < found->record_count; i++) {
		const char *comment = found->job_array[i].admin_comment;

		others |= found->job_array[i].job_id == job->id && comment && *comment && strncmp(comment, FAULT, strlen(FAULT)) != 0;
	}
	slurm_free_job_info_msg(found);
	if (others)
		return;
	slurm_init_job_desc_msg(&wanted);
	wanted.JOB_FIELD = name_of(job->id);
	wanted.admin_comment = (char *)(uintptr_t)sentence;
	slurm_update_job(&wanted);
}

/* Best effort: the step is refused whether or not slurmctld could be reached. */
static void notify_user(spank_t spank, const struct job *job, const struct jail_error *error)
{
	char node[256];
	char sentence[sizeof(error->text) + sizeof(node) + 128];

	if (spank_getenv(spank, "SLURMD_NODENAME", node, sizeof(node)) != ESPANK_SUCCESS && gethostname(node, sizeof(node)) < 0)
		return;
	snprintf(sentence, sizeof(sentence), FAULT " node %s cannot run this, tell the administrator: %s", node, error->text);
	if (job->step == SLURM_BATCH_SCRIPT)
		comment(job, sentence);
	else
		notify(job, sentence);
}

/* Run around each fork, in the thread that forks: in between, the kernel lets it begin no other thread. */
static void fork_in_job(void)
{
	if (pids_of_job >= 0)
		jail_pid_lead(pids_of_job);
}

static void fork_here_again(void)
{
	if (pids_of_job >= 0 && jail_pid_lead(own_pids) < 0)
		slurm_error("corral_jail: what this step begins from here on cannot have threads (setns: %s)", strerror(errno));
}

/* Whoever may become the user is in it, or is not. What comes of a child is where the child is. */
static void stay_in_job(void)
{
	if (pids_of_job >= 0 && getppid() != 0)
		_exit(127);
	pids_of_job = -1;
}

static int lead_to_pids(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	pids_of_job = jail_pid_open(plan, job, error);
	if (pids_of_job < 0)
		return error->text[0] ? -1 : 0;
	own_pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	if (own_pids >= 0 && pthread_atfork(fork_in_job, fork_here_again, stay_in_job) == 0)
		return 0;
	snprintf(error->text, sizeof(error->text), "this step cannot be led to the job's PID namespace (%s)", strerror(errno));
	return -1;
}

static int enter(spank_t spank, const struct job *job, int count, char **arguments)
{
	struct jail_plan plan;
	struct jail_error error;
	int result = jail_plan_parse(&plan, count, arguments, &error);
	bool jailed = job->step != SLURM_EXTERN_CONT;

	/* Before anything gives this step mounts of its own, in which no other process would find it. */
	if (result == 0)
		result = jail_ipc_join(&plan, job->id, &error);
	if (result == 0 && jailed)
		settle(spank, &plan, job);
	else if (result == 0)
		dress_extern_step(&plan, job->id);
	jailed = jailed && !outside;
	/* The plugin for PMIx would make it with slurmstepd's rights, and give it to the user, wherever it leads. It takes /tmp, which is the job's. */
	spank_unsetenv(spank, "SLURM_PMIX_TMPDIR");
	if (result == 0 && jailed) {
		show_driver(spank);
		result = jail_note(&plan, job->id, &error);
	}
	/* slurmstepd's own, not the job's: libraries look for settings and plugins of their user's there (PMIx: .pmix), and /root is the jail's. */
	if (result == 0 && jailed && setenv("HOME", NO_HOME, 1) < 0) {
		snprintf(error.text, sizeof(error.text), "slurmstepd cannot be given another home: the node is short of memory");
		result = -1;
	}
	if (result == 0 && jailed)
		result = lead_to_pids(&plan, job->id, &error);
	if (result == 0 && jailed)
		result = jail_enter(&plan, job->id, &slurm_log, &view, &error);
	if (result == 0 && jailed)
		export_choice(spank, &plan);
	/* Its own effective set stays. The extern step's is the administrator's: Slurm runs their Prolog from there (RunInJob). */
	if (result == 0 && job->step != SLURM_EXTERN_CONT && jail_fence(&error) < 0)
		result = -1;
	if (result == 0 && job->step != SLURM_EXTERN_CONT)
		result = jail_drop_capabilities(&error);
	jail_plan_free(&plan);
	if (result == 0)
		return ESPANK_SUCCESS;
	if (job->step != SLURM_EXTERN_CONT)
		notify_user(spank, job, &error);
	return refuse(&error);
}

EXPORTED int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	struct job job = {0, 0, 0};

	if (spank_remote(spank) != 1)
		return has_options() ? check_command_line(count, arguments) : ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_ID, &job.id) != ESPANK_SUCCESS || job.id == 0 || spank_get_item(spank, S_JOB_STEPID, &job.step) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &job.uid) != ESPANK_SUCCESS) {
		slurm_error("corral_jail: Slurm does not report the id of this step's job and its user: nothing is run");
		return REFUSED;
	}
	return enter(spank, &job, count, arguments);
}

/* For a child of slurmstepd, still root: from here on it has what a task has. */
static int confine(struct jail_error *error)
{
	return (!outside && jail_strip(&view, error) < 0) || jail_drop_capabilities(error) < 0 ? -1 : 0;
}

EXPORTED int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
	struct jail_error error;

	(void)count;
	(void)arguments;
	if (!is_jailed_step(spank))
		return ESPANK_SUCCESS;
	if (deferred.text[0])
		return refuse(&deferred);
	return confine(&error) < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

/* Before TaskProlog and all else of the user's. What Slurm has opened for the task it opened in slurmstepd's view. */
EXPORTED int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	struct jail_error error;

	(void)count;
	(void)arguments;
	if (!is_jailed_step(spank) || outside)
		return ESPANK_SUCCESS;
	return jail_standard_is_jails(&view, &error) < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

/* Runs in the child, within fork(). */
static void confine_child(void)
{
	static bool confined;
	struct jail_error error;

	/* A child of the child is the user by now, and could not. */
	if (confined)
		return;
	confined = true;
	if (confine(&error) < 0) {
		refuse(&error);
		_exit(127);
	}
}

/* The user's --task-epilog and the site's TaskEpilog are forked by slurmstepd as its tasks are, but no callback comes before their exec (observed with
 * 24.11.5 and 26.05). They would run in slurmstepd's own view, where its spool can be written: who planted a set-uid program
 * would be root of the pod. The tasks, all forked by now, need the pod's libraries a while longer, and do not have this. */
EXPORTED int slurm_spank_task_post_fork(spank_t spank, int count, char **arguments)
{
	static bool prepared;
	struct jail_error error = {.text = "what this step would run after its tasks cannot be confined: the node is short of memory"};

	(void)count;
	(void)arguments;
	if (!is_jailed_step(spank) || prepared)
		return ESPANK_SUCCESS;
	prepared = true;
	return pthread_atfork(NULL, NULL, confine_child) == 0 ? ESPANK_SUCCESS : refuse(&error);
}

static void report(int result, const struct jail_error *error)
{
	if (result < 0)
		slurm_error("corral_jail: %s", error->text);
}

/* Never fails: Slurm would drain the node for a left-over directory. */
EXPORTED int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
	struct jail_plan plan;
	struct jail_error error;
	uint32_t job = 0;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	if (jail_plan_parse(&plan, count, arguments, &error) < 0) {
		report(-1, &error);
	} else {
		report(jail_sessions_end(&plan, job, &error), &error);
		report(jail_pid_remove(job, &error), &error);
		report(jail_ipc_remove(job, &error), &error);
		if (plan.tmp)
			report(jail_job_remove(plan.tmp, job, &error), &error);
		if (plan.shm)
			report(jail_job_remove(plan.shm, job, &error), &error);
		if (plan.overlay)
			report(jail_overlay_remove(&plan, job, &error), &error);
	}
	jail_plan_free(&plan);
	return ESPANK_SUCCESS;
}
