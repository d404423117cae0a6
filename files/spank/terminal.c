/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * A terminal of its own for what an administrator runs in the jail. On the terminal of the shell that called, a program of the jail could type commands
 * for that shell (TIOCSTI), which is root of the pod, or go on reading what is typed there when the shell is back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "terminal.h"

static int outer = -1; /* the caller's terminal, if any of the three is one */
static int inner = -1; /* the other end of the jail's */
static struct termios before;

static void same_size(int number)
{
	struct winsize size;
	int saved = errno;

	(void)number;
	if (ioctl(outer, TIOCGWINSZ, &size) == 0)
		ioctl(inner, TIOCSWINSZ, &size);
	errno = saved;
}

static int open_inner(void)
{
	inner = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (inner < 0 || grantpt(inner) < 0 || unlockpt(inner) < 0)
		return -1;
	same_size(0);
	return tcsetattr(inner, TCSANOW, &before);
}

/* In the child: by descriptor, since /dev is the jail's soon. */
static int take_inner(const bool *terminal)
{
	int slave = ioctl(inner, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (terminal[i] && dup2(slave, i) < 0)
			return -1;
	return 0;
}

static bool pass_on(int from, int to)
{
	char text[4096];
	ssize_t length = read(from, text, sizeof(text));

	if (length < 0)
		return errno == EINTR || errno == EAGAIN;
	for (ssize_t done = 0; done < length;) {
		ssize_t written = write(to, text + done, (size_t)(length - done));

		if (written < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		done += written > 0 ? written : 0;
	}
	return length > 0;
}

/* Until the child has ended and what it wrote is passed on; what it left behind in the jail may hold its terminal for longer. */
static int relay(pid_t child, bool typed)
{
	struct pollfd ends[2] = {{inner, POLLIN, 0}, {typed ? outer : -1, POLLIN, 0}};
	bool ended = false;
	int status = 0;

	while (ends[0].fd >= 0) {
		int ready = poll(ends, 2, ended ? 0 : 100);

		if (ready < 0 && errno != EINTR)
			break;
		if (ready > 0 && (ends[0].revents & (POLLIN | POLLHUP | POLLERR)) && !pass_on(inner, outer))
			ends[0].fd = -1;
		if (ready > 0 && (ends[1].revents & (POLLIN | POLLHUP | POLLERR)) && !pass_on(outer, inner))
			ends[1].fd = -1;
		if (ready == 0 && ended)
			break;
		ended = ended || waitpid(child, &status, WNOHANG) == child;
	}
	while (!ended && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int wait_for(pid_t child, const bool *terminal)
{
	struct sigaction resized = {.sa_handler = same_size};
	struct termios raw = before;
	int status = 0;

	if (outer < 0) {
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
	} else {
		cfmakeraw(&raw);
		if (terminal[0])
			tcsetattr(outer, TCSADRAIN, &raw);
		sigaction(SIGWINCH, &resized, NULL);
		status = relay(child, terminal[0]);
		if (terminal[0])
			tcsetattr(outer, TCSADRAIN, &before);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int terminal_apart(void)
{
	bool terminal[3];
	int controlling = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	pid_t parent = getpid();
	pid_t child;

	for (int i = 2; i >= 0; i--) {
		terminal[i] = isatty(i) == 1;
		if (terminal[i])
			outer = i;
	}
	if (outer < 0 && controlling < 0)
		return TERMINAL_HERE;
	if (controlling >= 0)
		close(controlling);
	if (outer >= 0) {
		/* A terminal has one end for both ways, whichever of the three it is. */
		outer = fcntl(outer, F_DUPFD_CLOEXEC, 3);
		if (outer < 0 || tcgetattr(outer, &before) < 0 || open_inner() < 0)
			return TERMINAL_FAILED;
	}
	child = fork();
	if (child < 0)
		return TERMINAL_FAILED;
	if (child > 0)
		exit(wait_for(child, terminal));
	/* A caller that was ended takes the command with it. */
	if (prctl(PR_SET_PDEATHSIG, SIGHUP) < 0 || getppid() != parent || setsid() < 0 || (outer >= 0 && take_inner(terminal) < 0))
		return TERMINAL_FAILED;
	if (outer >= 0) {
		close(outer);
		close(inner);
	}
	return TERMINAL_HERE;
}
