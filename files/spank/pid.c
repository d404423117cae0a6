/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The PID namespace of a job on a node: no process in it sees processes of others, and all in it end with the job, whatever session or parent they gave
 * themselves. The first step makes it, and steps and sessions join it when they fork who becomes the user (setns moves the children to come, not the caller),
 * so Slurm still sees the tasks by its own numbers.
 *
 * Its first process does nothing but stay: the kernel reaps for it, and ends all others when it ends. It keeps the capabilities that no process in the
 * jail has and cannot be dumped, so root in the jail neither traces it nor walks through its /proc/1/root; and the kernel takes no signal for it
 * from inside. The job's epilog finds it by the lock that it holds, which is gone when it is.
 *
 * Beside the templates (template.c): pid-JOB/ns, the namespace; pid-JOB/proc, its /proc as jobs see it; pid-JOB/lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

#define CHILDREN "/proc/thread-self/ns/pid_for_children"
/* For the last process of a job to end; one that hangs in the kernel is left to it. */
#define END_MS 5000

struct names {
	char home[sizeof(JAIL_TEMPLATES) + 16];
	char ns[sizeof(JAIL_TEMPLATES) + 24];
	char proc[sizeof(JAIL_TEMPLATES) + 24];
	char lock[sizeof(JAIL_TEMPLATES) + 24];
};

static struct names names_of(uint32_t job)
{
	struct names names;

	snprintf(names.home, sizeof(names.home), JAIL_TEMPLATES "/pid-%u", (unsigned)job);
	snprintf(names.ns, sizeof(names.ns), "%s/ns", names.home);
	snprintf(names.proc, sizeof(names.proc), "%s/proc", names.home);
	snprintf(names.lock, sizeof(names.lock), "%s/lock", names.home);
	return names;
}

/* The holder of the lock, by the caller's numbers; 0: none. */
static pid_t holder(int lock)
{
	struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(lock, F_GETLK, &asked) == 0 && asked.l_type != F_UNLCK ? asked.l_pid : 0;
}

static pid_t holder_of(const struct names *names)
{
	int lock = open(names->lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	pid_t first = lock < 0 ? 0 : holder(lock);

	jail_close(lock);
	return first;
}

/* Ends the first process, and so all. */
static int end(const struct names *names)
{
	pid_t first = holder_of(names);
	int process = first > 0 ? (int)syscall(SYS_pidfd_open, first, 0) : -1;
	struct pollfd ended = {.fd = process, .events = POLLIN};
	int result = 0;

	/* Is it still who holds the lock? Its number could be another's. */
	if (process >= 0 && holder_of(names) == first && syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0) == 0)
		result = poll(&ended, 1, END_MS) == 1 ? 0 : -1;
	jail_close(process);
	if (result < 0)
		errno = ETIMEDOUT;
	return result;
}

/* What is kept of it. */
static int forget(const struct names *names)
{
	umount2(names->proc, MNT_DETACH | UMOUNT_NOFOLLOW);
	umount2(names->ns, MNT_DETACH | UMOUNT_NOFOLLOW);
	rmdir(names->proc);
	unlink(names->ns);
	unlink(names->lock);
	return rmdir(names->home) == 0 || errno == ENOENT ? 0 : -1;
}

static bool hold(const struct names *names)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int lock = open(names->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	return lock >= 0 && fcntl(lock, F_SETLK, &whole) == 0;
}

/* The first process, for good. What it is given of slurmstepd's it does not keep, or who waits for the other end would wait for it. */
static void stay(const struct jail_plan *plan, const struct names *names, int channel)
{
	const struct jail_dress dress = {.plan = plan, .log = NULL, .root = open(names->home, O_PATH | O_DIRECTORY | O_CLOEXEC), .keep = false};
	struct jail_error error = {.text = ""};
	sigset_t none;
	int nothing;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The kernel reaps then. */
	signal(SIGCHLD, SIG_IGN);
	if (prctl(PR_SET_NAME, "corral-init", 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0 || setsid() < 0 ||
	    chdir("/") < 0)
		jail_fail(&error, "its first process cannot be set apart (%s)", strerror(errno));
	else if (jail_proc_of_own(&dress, &error) == 0) {
		jail_close(dress.root);
		nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = 0; nothing >= 0 && fd < 3; fd++)
			dup2(nothing, fd);
		/* The channel moves to a number of its own; the lock is taken afterwards, for closing any descriptor of it gives it up. */
		if (channel != 3)
			dup2(channel, 3);
		channel = 3;
		syscall(SYS_close_range, 4U, ~0U, 0U);
		if (!hold(names))
			jail_fail(&error, "its first process cannot hold its lock (%s)", strerror(errno));
	}
	send(channel, &error, sizeof(error), MSG_NOSIGNAL);
	if (error.text[0])
		_exit(EXIT_FAILURE);
	close(channel);
	for (;;)
		pause();
}

/* In a child, so that the first process has another parent than slurmstepd, which would wait for it and end it with a step. */
static void beget(const struct jail_plan *plan, const struct names *names, int channel, int others)
{
	struct jail_error error = {.text = ""};
	pid_t first = -1;
	int file = open(names->ns, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	close(others);
	if (file < 0 || unshare(CLONE_NEWPID) < 0 || (first = fork()) < 0) {
		jail_fail(&error, "it cannot be made (%s)", strerror(errno));
	} else if (first == 0) {
		stay(plan, names, channel);
	} else if (mount(CHILDREN, names->ns, NULL, MS_BIND, NULL) < 0) {
		jail_fail(&error, "it cannot be kept (%s)", strerror(errno));
		kill(first, SIGKILL);
	}
	if (error.text[0])
		send(channel, &error, sizeof(error), MSG_NOSIGNAL);
	_exit(error.text[0] ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int make(const struct jail_plan *plan, const struct names *names, struct jail_error *error)
{
	int channel[2];
	int status = -1;
	pid_t child;
	ssize_t got = -1;

	forget(names);
	if (mkdir(names->home, 0700) < 0 || mkdir(names->proc, 0555) < 0)
		return jail_fail(error, "%s cannot be made (%s)", names->proc, strerror(errno));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
		return jail_fail(error, "its first process cannot be talked to (%s)", strerror(errno));
	child = fork();
	if (child == 0)
		beget(plan, names, channel[1], channel[0]);
	close(channel[1]);
	if (child > 0) {
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		got = recv(channel[0], error, sizeof(*error), 0);
	}
	close(channel[0]);
	if (got != sizeof(*error))
		return jail_fail(error, "its first process ended, or was not begun");
	return error->text[0] || status != 0 ? -1 : 0;
}

/* Of the job, made where there is none: to be joined by jail_pid_lead before a fork. -1 with an empty sentence: the plan has none. In the pod's mount
 * namespace, before the entry. */
int jail_pid_open(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	struct names names = names_of(job);
	struct jail_error why = {.text = ""};
	int namespace = -1;
	int home;

	error->text[0] = '\0';
	if (!plan->pid_of_job || job == 0)
		return -1;
	home = jail_templates_home(true);
	/* Steps of a job begin together. One whose first process is gone accepts no other. */
	if (home >= 0 && flock(home, LOCK_EX) == 0 && (holder_of(&names) > 0 || make(plan, &names, &why) == 0))
		namespace = jail_namespace_open(names.ns);
	if (namespace < 0)
		jail_fail(error, "the job cannot have a PID namespace of its own (%s): the container needs CAP_SYS_ADMIN, and a /proc without masks if it is in a user "
			  "namespace; or share the node's, by spec.slurm.isolation.pid: Node (pid=node in plugstack.conf)", why.text[0] ? why.text : strerror(errno));
	jail_close(home);
	return namespace;
}

/* Its /proc, for the jail. */
int jail_pid_collect(const struct jail_plan *plan, uint32_t job, struct jail_layers *own, struct jail_error *error)
{
	struct names names = names_of(job);
	int tree;

	if (!plan->pid_of_job || job == 0)
		return 0;
	tree = jail_clone(AT_FDCWD, names.proc, true);
	return tree < 0 ? jail_fail(error, "the /proc of the job's PID namespace cannot be shown in the jail (%s)", strerror(errno))
			: jail_layers_add(own, tree, "proc", true, error);
}

/* Has the calling thread fork there, or, with its own namespace, here again. slurmstepd forks tasks with the user's effective uid. */
int jail_pid_lead(int namespace)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
	struct __user_cap_data_struct before[2];
	struct __user_cap_data_struct raised[2];
	int result;

	if (syscall(SYS_capget, &header, before) < 0)
		return -1;
	memcpy(raised, before, sizeof(raised));
	raised[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective |= CAP_TO_MASK(CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &header, raised) < 0)
		return -1;
	result = setns(namespace, CLONE_NEWPID);
	return syscall(SYS_capset, &header, before) < 0 ? -1 : result;
}

/* At the job's end: all that is still there of it ends. */
int jail_pid_remove(uint32_t job, struct jail_error *error)
{
	struct names names = names_of(job);
	int ended = end(&names);

	if (ended < 0)
		jail_fail(error, "what is left of job %u has not ended within %d s: it hangs in the kernel", (unsigned)job, END_MS / 1000);
	if (forget(&names) == 0)
		return ended;
	return jail_fail(error, "the PID namespace of job %u cannot be given up (%s)", (unsigned)job, strerror(errno));
}
