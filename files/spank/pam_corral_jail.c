/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The PAM session module of login nodes and workers. sshd opens the session as root, in the process that all of the connection's others come of.
 *
 *   without words   takes the capabilities that lead out of a chroot (ChrootDirectory) from the session. sshd itself needs SYS_CHROOT, and
 *                   what it has a user's sudo would have: with it, and with /proc/1/root, root leaves any chroot.
 *   jail=PATH ...   enters the jail (a mount namespace of the session's own, pivot_root), then takes the capabilities: there is no other root
 *                   behind it that a second chroot could lead to.
 *   plugstack=FILE  enters as the steps of a job do: with the words that the SPANK plugin has in that file, in the job that pam_slurm_adopt has
 *                   chosen (SLURM_JOB_ID), in its jail and with its /tmp; and ends with the job.
 *
 * After the entry this process, which is root, looks names up in the jail. What it needs for that is loaded before: libraries of the
 * jail are never loaded into it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAM_SM_SESSION
#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "jail.h"

#define EXPORTED __attribute__((visibility("default")))

static int refuse(pam_handle_t *handle, const struct jail_error *error)
{
	/* sshd -e: its stderr is the container's log. What PAM is told sshd shows the user before it hangs up. */
	fprintf(stderr, "pam_corral_jail: %s\n", error->text);
	pam_error(handle, "%s", error->text);
	return PAM_SESSION_ERR;
}

/* The C library loads the modules of nsswitch.conf at the first name that is looked up, and does not read that file again after the
 * root has changed (nss_database.c, "verify that / hasn't changed"). */
static void load_name_services(pam_handle_t *handle)
{
	const char *user = NULL;
	struct passwd *account = NULL;
	gid_t groups[64];
	int count = sizeof(groups) / sizeof(groups[0]);

	if (pam_get_user(handle, &user, NULL) == PAM_SUCCESS && user)
		account = getpwnam(user);
	if (account)
		getgrouplist(account->pw_name, account->pw_gid, groups, &count);
	/* For the owner of the terminal. */
	getgrnam("tty");
}

static int plan_of(struct jail_plan *plan, uint32_t *job, pam_handle_t *handle, int count, const char **words, struct jail_error *error)
{
	const char *id = pam_getenv(handle, "SLURM_JOB_ID");

	*job = 0;
	if (strncmp(words[0], JAIL_PLUGSTACK, strlen(JAIL_PLUGSTACK)) != 0)
		return jail_plan_parse(plan, count, (char **)words, error);
	if (jail_plan_of_plugin(plan, words[0] + strlen(JAIL_PLUGSTACK), count - 1, (char **)words + 1, error) < 0)
		return -1;
	*job = id ? (uint32_t)strtoul(id, NULL, 10) : 0;
	if (*job == 0) {
		snprintf(error->text, sizeof(error->text), "no job has taken this session: pam_slurm_adopt must stand before this module");
		return -1;
	}
	return jail_follow_note(plan, *job, error) < 0 ? -1 : jail_session_begin(plan, *job, error);
}

static int enter(pam_handle_t *handle, int count, const char **words, struct jail_error *error)
{
	struct jail_plan plan;
	struct jail_view view = JAIL_NO_VIEW;
	uint32_t job;
	int result = plan_of(&plan, &job, handle, count, words, error);

	load_name_services(handle);
	if (result == 0 && plan.mode == JAIL_OVERLAY)
		result = jail_overlay_mount(&plan, job, error);
	if (result == 0)
		result = jail_enter(&plan, job, NULL, &view, error);
	/* Not the veneer: the user's shell comes of this very process. */
	if (result == 0)
		result = jail_strip(&view, error);
	jail_view_close(&view);
	jail_plan_free(&plan);
	return result;
}

EXPORTED int pam_sm_open_session(pam_handle_t *handle, int flags, int count, const char **words)
{
	struct jail_error error;

	(void)flags;
	if (count > 0 && enter(handle, count, words, &error) < 0)
		return refuse(handle, &error);
	return jail_drop_capabilities(&error) < 0 ? refuse(handle, &error) : PAM_SUCCESS;
}

EXPORTED int pam_sm_close_session(pam_handle_t *handle, int flags, int count, const char **words)
{
	(void)handle;
	(void)flags;
	(void)count;
	(void)words;
	return PAM_SUCCESS;
}
