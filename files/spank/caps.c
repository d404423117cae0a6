/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The capabilities that a task never gets back, not by sudo and not by running as root: those that lead out of the jail
 * (SYS_ADMIN, SYS_PTRACE, SYS_CHROOT, DAC_READ_SEARCH, MKNOD, SYS_RAWIO) or into the node's kernel and network.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif
#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

static const int dangerous[] = {
	CAP_SYS_ADMIN,	 CAP_SYS_PTRACE,	 CAP_SYS_MODULE,    CAP_SYS_RAWIO,	  CAP_SYS_BOOT,	     CAP_SYS_CHROOT,
	CAP_MKNOD,	 CAP_NET_ADMIN,		 CAP_SYSLOG,	    CAP_SYS_TIME,	  CAP_SYS_PACCT,     CAP_SYS_TTY_CONFIG,
	CAP_MAC_ADMIN,	 CAP_MAC_OVERRIDE,	 CAP_AUDIT_CONTROL, CAP_AUDIT_READ,	  CAP_WAKE_ALARM,    CAP_BLOCK_SUSPEND,
	CAP_PERFMON,	 CAP_BPF,		 CAP_LINUX_IMMUTABLE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE,
};
#define DANGEROUS (sizeof(dangerous) / sizeof(dangerous[0]))

/* For the calling process and all that it starts. Its own effective set stays: what comes before exec may need it. */
int jail_drop_capabilities(struct jail_error *error)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
	struct __user_cap_data_struct data[2];

	for (size_t i = 0; i < DANGEROUS; i++)
		/* 0: dropped already, by the container; -1: a capability that this kernel does not know. */
		if (prctl(PR_CAPBSET_READ, dangerous[i], 0, 0, 0) > 0 && prctl(PR_CAPBSET_DROP, dangerous[i], 0, 0, 0) < 0)
			return jail_fail(error, "capability %d cannot be dropped (%s): the container needs CAP_SETPCAP", dangerous[i],
					 strerror(errno));
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &header, data) < 0)
		return jail_fail(error, "the capabilities of this process cannot be read (%s)", strerror(errno));
	data[0].inheritable = 0;
	data[1].inheritable = 0;
	if (syscall(SYS_capset, &header, data) < 0)
		return jail_fail(error, "the inheritable capabilities cannot be cleared (%s)", strerror(errno));
	return 0;
}
