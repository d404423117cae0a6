/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Is that directory really a jail? Checked before anything is mounted, so that an unmounted volume or another
 * directory is never entered as root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* After a file server forgot its clients' handles, or a FUSE program died. */
static int fail_dead(const char *path, struct jail_error *error)
{
	return jail_fail(error, "the jail %s cannot be read (%s): its mount on this node is dead, mount the volume anew (in Kubernetes: delete the pod)", path,
			 strerror(errno));
}

static int check(int root, const char *path, struct jail_error *error)
{
	struct stat status;
	int marker;

	if (fstat(root, &status) < 0)
		return fail_dead(path, error);
	if (status.st_uid != 0)
		return jail_fail(error, "the jail %s belongs to uid %u, not to root: run 'chown root %s' on the volume", path,
				 (unsigned)status.st_uid, path);
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		return jail_fail(error, "the jail %s is writable by others than root (mode %04o): run 'chmod 0755 %s' on the volume", path,
				 (unsigned)(status.st_mode & 07777), path);
	marker = jail_path_open(root, JAIL_MARKER, O_PATH | O_NOFOLLOW);
	if (marker < 0 && (errno == ESTALE || errno == ENOTCONN || errno == EIO))
		return fail_dead(path, error);
	if (marker < 0)
		return jail_fail(error,
				 "%s has no marker file " JAIL_MARKER " (%s): the volume is not mounted or not populated yet, check the populate job",
				 path, strerror(errno));
	if (fstat(marker, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != 0) {
		close(marker);
		return jail_fail(error, "the marker file " JAIL_MARKER " of %s is not a plain file of root: populate the jail anew", path);
	}
	close(marker);
	return 0;
}

#define PROBE_STACK 65536

/* At the far end of the probe's stack, so that it lives as long as the probe. */
struct probe {
	const char *path;
	bool measured; /* room: that of the file system of users' files */
	struct statfs room;
};

/* Calls to which a dead file server would never respond, in a process of their own: a probe that hangs cannot be interrupted, only left. What it finds
 * does not matter here. It shares the caller's memory, so it makes system calls and nothing else. */
static int probe_marker(void *argument)
{
	const struct probe *probe = argument;
	char byte;
	int root = open(probe->path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int marker = root < 0 ? -1 : jail_path_open(root, JAIL_MARKER, O_RDONLY | O_NONBLOCK);

	return marker >= 0 && read(marker, &byte, 1) < 0;
}

/* Where users' files are: /home may be a volume of its own. */
static int probe_room(void *argument)
{
	struct probe *probe = argument;
	int root = open(probe->path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int home = root < 0 ? -1 : openat(root, "home", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	probe->measured = fstatfs(home < 0 ? root : home, &probe->room) == 0;
	return 0;
}

/* Without a copy of the memory: that of slurmstepd took longer than the rest of the entry. No signal comes to the child, whose handlers
 * would be slurmstepd's; SIGKILL does. */
static pid_t start_probe(int (*at)(void *), struct probe *probe, int *ended)
{
	sigset_t all;
	sigset_t before;
	pid_t child;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	child = clone(at, (char *)probe + PROBE_STACK, CLONE_VM | CLONE_PIDFD | SIGCHLD, probe, ended);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return child;
}

/* True when it ended in time. errno is the child's as well, so it is not asked: a call that failed is made again. */
static bool has_ended(int ended, unsigned timeout)
{
	struct pollfd wanted = {.fd = ended, .events = POLLIN};
	struct timespec now;
	time_t deadline;

	clock_gettime(CLOCK_MONOTONIC, &now);
	deadline = now.tv_sec + (time_t)timeout;
	do {
		if (poll(&wanted, 1, (int)(deadline - now.tv_sec) * 1000) > 0)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < deadline);
	return false;
}

static int run_probe(const char *path, int (*at)(void *), unsigned timeout, struct probe *found, struct jail_error *error)
{
	int ended = -1;
	pid_t child;
	struct probe *probe = mmap(NULL, PROBE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (probe == MAP_FAILED)
		return jail_fail(error, "the jail %s cannot be checked (mmap: %s)", path, strerror(errno));
	probe->path = path;
	child = start_probe(at, probe, &ended);
	if (child < 0) {
		jail_fail(error, "the jail %s cannot be checked (clone: %s)", path, strerror(errno));
		munmap(probe, PROBE_STACK);
		return -1;
	}
	if (!has_ended(ended, timeout)) {
		/* Not waited for: it may take as long as the volume. Its stack stays with it. */
		kill(child, SIGKILL);
		close(ended);
		return jail_fail(error, "the jail %s%s did not respond within %u s: its volume hangs, check the storage and its mount on this node",
				 path, at == probe_room ? "/home" : "", timeout);
	}
	close(ended);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	*found = *probe;
	munmap(probe, PROBE_STACK);
	return 0;
}

/* Opens the root of a jail that was just waited for, for lookups in this mount namespace; a link in the place of the last name is refused. */
int jail_open(const char *path, struct jail_error *error)
{
	int saved;
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (root < 0)
		return jail_fail(error, "the jail %s cannot be opened as a directory (%s): check the volume's mount in this pod", path,
				 strerror(errno));
	if (check(root, path, error) == 0)
		return root;
	saved = errno;
	close(root);
	errno = saved;
	return -1;
}

/* Returns 0 when the jail is there, within "timeout" seconds for each probe. A missing one is probed again for "wait" seconds: a file server that
 * fails over should cost a job some seconds, not its start. */
int jail_await(const char *path, unsigned timeout, unsigned wait, struct jail_error *error)
{
	const struct timespec pause = {1, 0};
	struct probe probe;
	struct timespec start;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		int root = run_probe(path, probe_marker, timeout, &probe, error) < 0 ? -1 : jail_open(path, error);

		if (root >= 0) {
			error->text[0] = '\0';
			close(root);
			return 0;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec >= (time_t)wait)
			return -1;
		nanosleep(&pause, NULL);
	}
}

/* A file needs a block and an inode; some file systems count no inodes. */
#define ROOM_BYTES (1024UL * 1024)
#define ROOM_FILES 16

/* Whether users can write where their files are. Not asked by the entry: a job that writes elsewhere can do without, and who removes files must get
 * in. Without it a batch job ends as soon as it begins, with its output unwritten, and so would all that wait. */
int jail_has_room(const char *path, unsigned timeout, struct jail_error *error)
{
	struct probe probe;

	if (run_probe(path, probe_room, timeout, &probe, error) < 0)
		return -1;
	if (!probe.measured || ((uint64_t)probe.room.f_bavail * (uint64_t)probe.room.f_bsize >= ROOM_BYTES &&
			   (probe.room.f_files == 0 || probe.room.f_ffree >= ROOM_FILES)))
		return 0;
	return jail_fail(error, "the volume of %s/home is full (%llu KiB and %llu files more), and jobs could not write their output: remove files, or make it larger",
			 path, (unsigned long long)probe.room.f_bavail * (unsigned long long)probe.room.f_bsize / 1024, (unsigned long long)probe.room.f_ffree);
}

/* The image that the jail was made of, from its marker; only characters that an image's name has. Empty when the marker has none. */
int jail_image(const char *path, char *image, size_t size)
{
	static const char key[] = "\"image\": \"";
	char text[512];
	const char *start;
	size_t length = 0;
	ssize_t count = -1;
	int marker = -1;
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	image[0] = '\0';
	if (root >= 0)
		marker = jail_path_open(root, JAIL_MARKER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (marker >= 0) {
		count = read(marker, text, sizeof(text) - 1);
		close(marker);
	}
	if (root >= 0)
		close(root);
	if (count <= 0)
		return -1;
	text[count] = '\0';
	start = strstr(text, key);
	if (!start)
		return -1;
	start += sizeof(key) - 1;
	length = strspn(start, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@+-");
	if (length >= size)
		length = size - 1;
	memcpy(image, start, length);
	image[length] = '\0';
	return 0;
}
