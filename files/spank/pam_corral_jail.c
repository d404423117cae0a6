/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The PAM session module of login nodes and workers. sshd opens the session as root, in the process that all of the connection's others come of.
 *
 *   without arguments  takes the capabilities that lead out of a chroot (ChrootDirectory) from the session. sshd itself needs SYS_CHROOT, and
 *                   what it has a user's sudo would have: with it, and with /proc/1/root, root leaves any chroot.
 *   jail=PATH ...   enters the jail (a mount namespace of the session's own, pivot_root), then takes the capabilities: there is no other root
 *                   behind it that a second chroot could lead to.
 *   plugstack=FILE  enters as the steps of a job do: with the arguments that the SPANK plugin has in that file, in the job that pam_slurm_adopt has
 *                   chosen (SLURM_JOB_ID), in its jail and with its /tmp; and ends with the job.
 *
 * sshd's monitor, in which the session is opened, keeps its capabilities until the session ends: it writes records of logins and owns terminals. So
 * it never enters: a child of it does, whose mount namespace is kept open, and the process that becomes the user enters it. sshd lets PAM set the
 * credentials of that process (pam_setcred, as root, when its groups are set), and gives up root right after that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAM_SM_AUTH
#define PAM_SM_SESSION
#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "jail.h"

#define EXPORTED __attribute__((visibility("default")))

/* Not the status of any shell. */
#define STRAY 254

/* Where the session is, as the monitor knows it and those that it forks. */
static struct {
	int inside; /* the mount namespace to be in; -1: there is none, or this process is in it */
	int ipc;    /* the IPC namespace to be in */
	int pid;    /* the PID namespace that the user's processes are in; -1: the pod's */
	pid_t monitor;
} session = {-1, -1, -1, 0};

/* Run in each child. One of the monitor may be outside, until its credentials are set; what comes of it may not: that would be a user in the pod. */
static void no_stray(void)
{
	if (session.inside >= 0 && getppid() != session.monitor)
		_exit(STRAY);
}

static int refuse(pam_handle_t *handle, const struct jail_error *error)
{
	/* sshd -e: its stderr is the container's log. sshd shows the user what PAM receives before it disconnects. */
	fprintf(stderr, "pam_corral_jail: %s\n", error->text);
	pam_error(handle, "%s", error->text);
	return PAM_SESSION_ERR;
}

/* The C library loads the modules of nsswitch.conf at the first name that is looked up, and does not read that file again after the
 * root has changed (nss_database.c, "verify that / hasn't changed"). So the user's sshd loads none of the jail, which may be another distribution's. */
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

/* Other programs set credentials before they open the session, or not in the process that becomes the user: that would stay outside. */
static bool is_sshd(pam_handle_t *handle)
{
	const void *service = NULL;

	return pam_get_item(handle, PAM_SERVICE, &service) == PAM_SUCCESS && service && strcmp(service, "sshd") == 0;
}

static int plan_of(struct jail_plan *plan, uint32_t *job, pam_handle_t *handle, int count, const char **arguments, struct jail_error *error)
{
	const char *id = pam_getenv(handle, "SLURM_JOB_ID");

	*job = 0;
	if (strncmp(arguments[0], JAIL_PLUGSTACK, strlen(JAIL_PLUGSTACK)) != 0)
		return jail_plan_parse(plan, count, (char **)arguments, error);
	if (jail_plan_of_plugin(plan, arguments[0] + strlen(JAIL_PLUGSTACK), count - 1, (char **)arguments + 1, error) < 0)
		return -1;
	*job = id ? (uint32_t)strtoul(id, NULL, 10) : 0;
	if (*job == 0) {
		snprintf(error->text, sizeof(error->text), "no job has taken this session: pam_slurm_adopt must stand before this module");
		return -1;
	}
	return jail_follow_note(plan, *job, error) < 0 ? -1 : jail_session_begin(plan, *job, error);
}

/* What the child that enters first sends: a message, or its mount, IPC and PID namespaces. Its /proc/<pid> cannot be used: for children of sshd that takes CAP_SYS_PTRACE. */
struct reply {
	struct jail_error error;
	struct iovec text;
	struct msghdr message;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control;
};

static void prepare_reply(struct reply *reply)
{
	memset(reply, 0, sizeof(*reply));
	reply->text = (struct iovec){.iov_base = &reply->error, .iov_len = sizeof(reply->error)};
	reply->message = (struct msghdr){.msg_iov = &reply->text, .msg_iovlen = 1, .msg_control = &reply->control, .msg_controllen = sizeof(reply->control)};
}

/* In a child. */
static void go_ahead(const struct jail_plan *plan, uint32_t job, int monitor)
{
	struct jail_view view = JAIL_NO_VIEW;
	struct reply reply;
	int namespaces[3];
	size_t size;

	prepare_reply(&reply);
	namespaces[2] = jail_pid_open(plan, job, &reply.error);
	/* The pod's own stays. */
	size = namespaces[2] < 0 ? 2 * sizeof(int) : sizeof(namespaces);
	if (!reply.error.text[0] && jail_ipc_join(plan, job, &reply.error) == 0 && jail_enter(plan, job, NULL, &view, &reply.error) == 0) {
		/* Not slurmstepd's view: the user's shell comes of who follows. */
		namespaces[0] = view.pure;
		namespaces[1] = open("/proc/thread-self/ns/ipc", O_RDONLY | O_CLOEXEC);
		reply.control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&reply.control.header), namespaces, size);
		reply.message.msg_controllen = CMSG_SPACE(size);
		reply.error.text[0] = '\0';
	} else {
		reply.message.msg_control = NULL;
		reply.message.msg_controllen = 0;
	}
	sendmsg(monitor, &reply.message, MSG_NOSIGNAL);
	_exit(EXIT_SUCCESS);
}

/* Of the session, by the child that has gone there. */
static int take_namespaces(int channel, struct jail_error *error)
{
	struct reply reply;
	int namespaces[3] = {-1, -1, -1};

	prepare_reply(&reply);
	if (recvmsg(channel, &reply.message, MSG_CMSG_CLOEXEC) == sizeof(reply.error)) {
		*error = reply.error;
		if (reply.message.msg_controllen >= CMSG_LEN(2 * sizeof(int)) && reply.control.header.cmsg_type == SCM_RIGHTS) {
			memcpy(namespaces, CMSG_DATA(&reply.control.header), reply.control.header.cmsg_len - CMSG_LEN(0));
			session.inside = namespaces[0];
			session.ipc = namespaces[1];
			session.pid = namespaces[2];
			return 0;
		}
		if (error->text[0])
			return -1;
	}
	snprintf(error->text, sizeof(error->text), "the session could not enter the jail: the process that went ahead ended, or has no namespaces");
	return -1;
}

static int make_inside(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	int channel[2];
	int result;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0 || (child = fork()) < 0) {
		snprintf(error->text, sizeof(error->text), "the session cannot enter the jail (%s)", strerror(errno));
		return -1;
	}
	if (child == 0) {
		close(channel[0]);
		go_ahead(plan, job, channel[1]);
	}
	close(channel[1]);
	result = take_namespaces(channel[0], error);
	close(channel[0]);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return result;
}

static int prepare(pam_handle_t *handle, int count, const char **arguments, struct jail_error *error)
{
	struct jail_plan plan;
	uint32_t job;
	int result;

	if (!is_sshd(handle)) {
		snprintf(error->text, sizeof(error->text), "sessions of sshd alone can enter the jail by PAM: take this module out of the others' files in /etc/pam.d");
		return -1;
	}
	result = plan_of(&plan, &job, handle, count, arguments, error);
	load_name_services(handle);
	if (result == 0 && plan.mode == JAIL_OVERLAY)
		result = jail_overlay_mount(&plan, job, error);
	if (result == 0)
		result = make_inside(&plan, job, error);
	jail_plan_free(&plan);
	if (result < 0)
		return -1;
	session.monitor = getpid();
	if (pthread_atfork(NULL, NULL, no_stray) != 0) {
		snprintf(error->text, sizeof(error->text), "the session cannot be kept in the jail: the node is short of memory");
		return -1;
	}
	return 0;
}

EXPORTED int pam_sm_open_session(pam_handle_t *handle, int flags, int count, const char **arguments)
{
	struct jail_error error;

	(void)flags;
	if (count > 0 && prepare(handle, count, arguments, &error) < 0)
		return refuse(handle, &error);
	return jail_drop_capabilities(&error) < 0 ? refuse(handle, &error) : PAM_SUCCESS;
}

/* sshd continues whatever this returns, so a process that cannot enter ends here. */
EXPORTED int pam_sm_setcred(pam_handle_t *handle, int flags, int count, const char **arguments)
{
	struct jail_error error;

	(void)handle;
	(void)flags;
	(void)count;
	(void)arguments;
	if (session.inside < 0 || getpid() == session.monitor)
		return PAM_IGNORE;
	/* sshd serves files by itself, and executes nothing then. */
	if (jail_descriptors_leave(JAIL_NOW, &error) < 0) {
		fprintf(stderr, "pam_corral_jail: %s\n", error.text);
		_exit(STRAY);
	}
	if (setns(session.ipc, CLONE_NEWIPC) < 0 || (session.pid >= 0 && setns(session.pid, CLONE_NEWPID) < 0) || setns(session.inside, CLONE_NEWNS) < 0) {
		fprintf(stderr, "pam_corral_jail: the session cannot enter the jail (setns: %s)\n", strerror(errno));
		_exit(STRAY);
	}
	/* Who came by a chroot has no user namespaces: the kernel gives those in a chroot none. */
	if (jail_fence(&error) < 0) {
		fprintf(stderr, "pam_corral_jail: %s\n", error.text);
		_exit(STRAY);
	}
	close(session.inside);
	close(session.ipc);
	if (session.pid >= 0)
		close(session.pid);
	session.inside = -1;
	return PAM_IGNORE;
}

/* This module authenticates nobody. */
EXPORTED int pam_sm_authenticate(pam_handle_t *handle, int flags, int count, const char **arguments)
{
	(void)handle;
	(void)flags;
	(void)count;
	(void)arguments;
	return PAM_AUTH_ERR;
}

EXPORTED int pam_sm_close_session(pam_handle_t *handle, int flags, int count, const char **arguments)
{
	(void)handle;
	(void)flags;
	(void)count;
	(void)arguments;
	return PAM_SUCCESS;
}
