/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The SPANK plugin: every step of every job runs in the jail. Told in the order of Slurm's callbacks:
 *
 *   slurm_spank_init            slurmd, srun, sbatch: are the arguments right?
 *   slurm_spank_init_post_opt   slurmstepd, before it opens the job's files: enter
 *   slurm_spank_task_init_privileged  the task, still root: are we in? leave the pod's libraries and the capabilities behind
 *   slurm_spank_job_epilog      after the job: remove its /tmp
 *
 * In plugstack.conf it must be "required" and first: an "optional" plugin that fails lets the job run in the pod (seen with
 * 24.11). What fails in init_post_opt comes before the user's output exists, so its sentence is in slurmd's log only; what fails
 * in task_init_privileged is read by the user.
 */
#include <stdbool.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "jail.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(corral_jail, 1)
#pragma GCC visibility pop

#define EXPORTED __attribute__((visibility("default")))

static struct jail_view view = {.entered = false, .pure = -1};

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
 * runs the task, in the pod (seen with 24.11.5). */
#define REFUSED (-1)
_Static_assert(REFUSED < 0, "Slurm would run the task in the pod");

static int refuse(const struct jail_error *error)
{
	slurm_error("corral_jail: %s", error->text);
	return REFUSED;
}

/* The extern step runs nothing of the user; slurmd and Slurm's own tools look at it from the pod. */
static bool is_jailed_step(spank_t spank)
{
	uint32_t step = 0;

	return spank_remote(spank) == 1 && spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step != SLURM_EXTERN_CONT;
}

EXPORTED int slurm_spank_init(spank_t spank, int count, char **words)
{
	struct jail_plan plan;
	struct jail_error error;
	int result;

	(void)spank;
	result = jail_plan_parse(&plan, count, words, &error);
	jail_plan_free(&plan);
	return result < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

EXPORTED int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	struct jail_plan plan;
	struct jail_error error;
	uint32_t job = 0;
	int result;

	if (spank_remote(spank) != 1)
		return ESPANK_SUCCESS;
	if (!is_jailed_step(spank))
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || job == 0) {
		slurm_error("corral_jail: Slurm does not tell the id of this step's job: nothing is run");
		return REFUSED;
	}
	result = jail_plan_parse(&plan, count, words, &error);
	if (result == 0)
		result = jail_enter(&plan, job, &slurm_log, &view, &error);
	jail_plan_free(&plan);
	return result < 0 ? refuse(&error) : ESPANK_SUCCESS;
}

EXPORTED int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
	struct jail_error error;

	(void)count;
	(void)words;
	if (!is_jailed_step(spank))
		return ESPANK_SUCCESS;
	if (jail_strip(&view, &error) < 0 || jail_drop_capabilities(&error) < 0)
		return refuse(&error);
	return ESPANK_SUCCESS;
}

/* Never fails: Slurm would drain the node for a left-over directory. */
EXPORTED int slurm_spank_job_epilog(spank_t spank, int count, char **words)
{
	struct jail_plan plan;
	struct jail_error error;
	uint32_t job = 0;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return ESPANK_SUCCESS;
	if (jail_plan_parse(&plan, count, words, &error) < 0 || (plan.tmp && jail_tmp_remove(plan.tmp, job, &error) < 0))
		slurm_error("corral_jail: %s", error.text);
	jail_plan_free(&plan);
	return ESPANK_SUCCESS;
}
