/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * No cgroup namespace for those in the jail. Whoever has one, in a user namespace of their own, may mount the cgroup file systems, and its files are
 * the pod's root's: to root in the jail, whose uid that is in any user namespace and with any map, they could be written, capability or not.
 * Without one the kernel refuses that mount everywhere but in its first user namespace. The kernel's own limit on such namespaces
 * (user.max_cgroup_namespaces) applies to the whole Kubernetes node, so system calls are refused.
 *
 * And no keys: the kernel's keyrings know of users, and of no container. Root in the jail would read what root of other pods and of the Kubernetes node stores
 * there, and a user what another cluster's user of the same uid does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
/* One number on all architectures. */
#define CLONE3 435

/* Programs of the same processor with 32 bits run on it, too. */
#if defined(__x86_64__)
#define OWN AUDIT_ARCH_X86_64
#define NARROW AUDIT_ARCH_I386
#define NARROW_CLONE 120
#define NARROW_UNSHARE 310
#define NARROW_ADD_KEY 286
#define NARROW_REQUEST_KEY 287
#define NARROW_KEYCTL 288
#elif defined(__aarch64__)
#define OWN AUDIT_ARCH_AARCH64
#define NARROW AUDIT_ARCH_ARM
#define NARROW_CLONE 120
#define NARROW_UNSHARE 337
#define NARROW_ADD_KEY 309
#define NARROW_REQUEST_KEY 310
#define NARROW_KEYCTL 311
#else
#error "which numbers have these calls on this processor, and with 32 bits?"
#endif

/* The x32 interface of x86-64 has the same calls with this bit set. */
#define X32 0x40000000U

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define IF(value, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)

static struct sock_filter rules[] = {
	LOAD(arch),
	IF(NARROW, 9, 0),
	IF(OWN, 0, 19),
	LOAD(nr),
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~X32),
	IF(SYS_clone, 12, 0),
	IF(SYS_unshare, 11, 0),
	IF(CLONE3, 12, 0),
	IF(SYS_add_key, 11, 0),
	IF(SYS_request_key, 10, 0),
	IF(SYS_keyctl, 9, 11),
	/* 32 bits */
	LOAD(nr),
	IF(NARROW_CLONE, 5, 0),
	IF(NARROW_UNSHARE, 4, 0),
	IF(CLONE3, 5, 0),
	IF(NARROW_ADD_KEY, 4, 0),
	IF(NARROW_REQUEST_KEY, 3, 0),
	IF(NARROW_KEYCTL, 2, 4),
	/* Their flags. */
	LOAD(args[0]),
	BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWCGROUP, 1, 2),
	/* clone3's flags lie in memory, which a filter cannot read. "Not there" has programs take clone, and do without keys (pam_keyinit). */
	RETURN(SECCOMP_RET_ERRNO | ENOSYS),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
	RETURN(SECCOMP_RET_ALLOW),
};

/* For all threads of the calling process and whatever they start, set-uid programs too. Takes CAP_SYS_ADMIN. */
int jail_fence(struct jail_error *error)
{
	const struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

	/* SPEC_ALLOW: before Linux 5.16 a filter else makes its processes slow. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0)
		return 0;
	return jail_fail(error, "cgroup namespaces and keys cannot be refused (seccomp: %s): the container needs CAP_SYS_ADMIN, and a kernel with seccomp filters",
			 strerror(errno));
}
