/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Root in the jail wants a mount of the cgroup file systems, whose files are the pod's root's: in a user namespace it could write limits. And the keys that others
 * of the same uid keep on the node.
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

static struct jail_error error;

#define PLACE "/mnt"

/* Linux gives a cgroup mount to whoever has CAP_SYS_ADMIN where the cgroup namespace was made. */
static bool mounts_cgroups(int namespaces)
{
	static const char *const types[] = {"cgroup2", "cgroup"};
	bool mounted = false;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | namespaces) < 0)
		return false;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && !mounted; i++)
		mounted = mount("none", PLACE, types[i], 0, i ? "memory" : NULL) == 0;
	return mounted;
}

static void root_mounts_them_without_a_fence(void)
{
	CHECK(mounts_cgroups(CLONE_NEWCGROUP));
}

static void behind_it_nobody_does(void)
{
	CHECK(jail_fence(&error) == 0);
	CHECK(!mounts_cgroups(CLONE_NEWCGROUP) && errno == EPERM);
	CHECK(!mounts_cgroups(0) && errno == EPERM);
}

static void other_namespaces_can_be_had(void)
{
	CHECK(jail_fence(&error) == 0);
	CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS) == 0);
	CHECK(mount("tmpfs", PLACE, "tmpfs", 0, NULL) == 0);
}

static void no_other_call_leads_there(void)
{
	CHECK(jail_fence(&error) == 0);
	CHECK(syscall(SYS_clone, CLONE_NEWCGROUP | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EPERM);
	/* What glibc then does with clone. */
	CHECK(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS);
#ifdef __x86_64__
	CHECK(syscall(0x40000000 | SYS_unshare, CLONE_NEWCGROUP) == -1 && errno == EPERM);
#endif
}

#ifdef __x86_64__
static void neither_does_one_of_32_bits(void)
{
	long result = 310; /* unshare */

	CHECK(jail_fence(&error) == 0);
	__asm__ volatile("int $0x80" : "+a"(result) : "b"(CLONE_NEWCGROUP) : "memory", "r8", "r9", "r10", "r11");
	CHECK(result == -EPERM);
}
#endif

/* Keyrings are the kernel's, for each user of it: whoever has a uid on the node finds in any container what that uid has put into them. */
#define OF_USER (-4L) /* KEY_SPEC_USER_KEYRING */
#define SEARCH 10L    /* KEYCTL_SEARCH */
#define INVALIDATE 21L

static void keys_are_the_nodes_without_a_fence(void)
{
	long key = syscall(SYS_add_key, "user", "corral-test", "x", 1, OF_USER);

	CHECK(key > 0 && syscall(SYS_keyctl, SEARCH, OF_USER, "user", "corral-test", 0) == key);
	CHECK(syscall(SYS_keyctl, INVALIDATE, key) == 0);
}

static void behind_it_there_are_none(void)
{
	CHECK(jail_fence(&error) == 0);
	CHECK(syscall(SYS_add_key, "user", "corral-test", "x", 1, OF_USER) == -1 && errno == ENOSYS);
	CHECK(syscall(SYS_request_key, "user", "corral-test", NULL, OF_USER) == -1 && errno == ENOSYS);
	CHECK(syscall(SYS_keyctl, SEARCH, OF_USER, "user", "corral-test", 0) == -1 && errno == ENOSYS);
#ifdef __x86_64__
	for (long call = SYS_add_key; call <= SYS_keyctl; call++)
		CHECK(syscall(0x40000000 | call, 0, 0, 0, 0, 0) == -1 && errno == ENOSYS);
#endif
}

#ifdef __x86_64__
static void nor_for_programs_of_32_bits(void)
{
	CHECK(jail_fence(&error) == 0);
	for (long call = 286; call <= 288; call++) { /* add_key, request_key, keyctl */
		long result = call;

		__asm__ volatile("int $0x80" : "+a"(result) : "b"(0), "c"(0), "d"(0), "S"(0), "D"(0) : "memory", "r8", "r9", "r10", "r11");
		CHECK(result == -ENOSYS);
	}
}
#endif

static int pipes[2];

static void *try_late(void *answer)
{
	char go;

	CHECK(read(pipes[0], &go, 1) == 1);
	*(int *)answer = unshare(CLONE_NEWCGROUP) < 0 ? errno : 0;
	return NULL;
}

/* slurmstepd has some by then. */
static void it_is_for_threads_that_were_there_before(void)
{
	pthread_t thread;
	int answer = -1;

	CHECK(pipe(pipes) == 0);
	CHECK(pthread_create(&thread, NULL, try_late, &answer) == 0);
	CHECK(jail_fence(&error) == 0);
	CHECK(write(pipes[1], "", 1) == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(answer == EPERM);
	/* And new ones begin. */
	CHECK(write(pipes[1], "", 1) == 1);
	CHECK(pthread_create(&thread, NULL, try_late, &answer) == 0 && pthread_join(thread, NULL) == 0);
}

/* A program of the jail with the set-uid bit is one behind it. */
static void sudo_goes_on(void)
{
	CHECK(jail_fence(&error) == 0);
	CHECK(setegid(65534) == 0 && seteuid(65534) == 0);
	execl("/bin/sh", "sh", "-c", "grep -q '^NoNewPrivs:.*0$' /proc/self/status && grep -q '^Seccomp:.*2$' /proc/self/status", NULL);
	CHECK(!"there is no shell");
}

static void without_the_right_to_it_it_is_said(void)
{
	CHECK(setuid(65534) == 0);
	CHECK(jail_fence(&error) == -1);
	CHECK_HAS(error.text, "the container needs CAP_SYS_ADMIN");
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(root_mounts_them_without_a_fence);
	CASE(behind_it_nobody_does);
	CASE(other_namespaces_can_be_had);
	CASE(no_other_call_leads_there);
#ifdef __x86_64__
	CASE(neither_does_one_of_32_bits);
#endif
	CASE(keys_are_the_nodes_without_a_fence);
	CASE(behind_it_there_are_none);
#ifdef __x86_64__
	CASE(nor_for_programs_of_32_bits);
#endif
	CASE(it_is_for_threads_that_were_there_before);
	CASE(sudo_goes_on);
	CASE(without_the_right_to_it_it_is_said);
	return finish();
}
