/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The PAM session module of login pods: takes the capabilities that lead out of the chroot from a session before sshd forks it.
 * sshd itself needs SYS_CHROOT, and what it has a user's sudo would have: with it, and with /proc/1/root, root leaves any chroot.
 */
#include <stdio.h>

#define PAM_SM_SESSION
#include <security/pam_modules.h>

#include "jail.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int pam_sm_open_session(pam_handle_t *handle, int flags, int count, const char **words)
{
	struct jail_error error;

	(void)handle;
	(void)flags;
	(void)count;
	(void)words;
	if (jail_drop_capabilities(&error) == 0)
		return PAM_SUCCESS;
	/* sshd -e: its stderr is the container's log. */
	fprintf(stderr, "pam_corral_jail: %s\n", error.text);
	return PAM_SESSION_ERR;
}

EXPORTED int pam_sm_close_session(pam_handle_t *handle, int flags, int count, const char **words)
{
	(void)handle;
	(void)flags;
	(void)count;
	(void)words;
	return PAM_SUCCESS;
}
