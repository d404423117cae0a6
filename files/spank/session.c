/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Who comes to a running job by ssh: into which jail, and until when. A directory a job below SlurmdSpoolDir, root's alone: the note
 * "jail" is written by the job's steps, and a file a session is named by its process. The job's epilog ends the sessions that are still
 * there: a process tracking that has no containers (proctrack/linuxproc) does not know them.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define NOTE "jail"

static int base_of(const struct jail_plan *plan, char *base, size_t size, struct jail_error *error)
{
	if (!plan->spool || snprintf(base, size, "%s/corral/job", plan->spool) >= (int)size)
		return jail_fail(error, "a job's sessions need Slurm's spool directory: give spool=PATH");
	return 0;
}

/* A short file, whole or not at all. */
static int write_file(int directory, const char *name, const char *text)
{
	char new[32];
	ssize_t length = (ssize_t)strlen(text);
	bool written;
	int fd;

	/* Steps of one job begin at the same time. */
	snprintf(new, sizeof(new), ".new-%d", (int)getpid());
	fd = openat(directory, new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	written = fd >= 0 && write(fd, text, (size_t)length) == length;
	if (fd >= 0)
		close(fd);
	return written && renameat(directory, new, directory, name) == 0 ? 0 : -1;
}

/* -1 with errno; else the text's length. */
static ssize_t read_file(int directory, const char *name, char *text, size_t size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	if (length >= 0)
		text[length] = '\0';
	return length;
}

static int note_in(const struct jail_plan *plan, uint32_t job, const char *name, const char *text, struct jail_error *error)
{
	char base[PATH_MAX];
	int directory;
	int result;

	if (base_of(plan, base, sizeof(base), error) < 0)
		return -1;
	directory = jail_job_open(base, job, 0700, error);
	if (directory < 0)
		return -1;
	result = write_file(directory, name, text);
	if (result < 0)
		jail_fail(error, "%s/%u/%s cannot be written (%s): check the node's local scratch", base, (unsigned)job, name, strerror(errno));
	close(directory);
	return result;
}

/* Where the job's steps are, for who comes later. The default needs no note. */
int jail_note(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char text[128];

	if (plan->mode == JAIL_RW && strcmp(plan->name, JAIL_DEFAULT) == 0)
		return 0;
	snprintf(text, sizeof(text), "%s %s\n", plan->name, jail_mode_name(plan->mode));
	return note_in(plan, job, NOTE, text, error);
}

static int open_job(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char base[PATH_MAX];
	char path[PATH_MAX + 16];

	if (base_of(plan, base, sizeof(base), error) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/%u", base, (unsigned)job);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Chooses the jail and the mode of the job's steps. */
int jail_follow_note(struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char text[128];
	char *mode;
	int directory = open_job(plan, job, error);
	ssize_t length = directory < 0 ? -1 : read_file(directory, NOTE, text, sizeof(text));

	if (directory >= 0)
		close(directory);
	if (length <= 0)
		return 0;
	text[strcspn(text, "\n")] = '\0';
	mode = strchr(text, ' ');
	if (mode)
		*mode++ = '\0';
	for (enum jail_mode known = JAIL_RW; mode && known <= JAIL_OVERLAY; known++)
		if (strcmp(mode, jail_mode_name(known)) == 0)
			return jail_plan_choose(plan, text, error) < 0 ? -1 : jail_plan_choose_mode(plan, known, error);
	return jail_fail(error, "the note of job %u on where its steps are cannot be understood ('%s'): remove the job's directory below %s/corral/job",
			 (unsigned)job, text, plan->spool);
}

/* When a process began, in clock ticks since boot: with its id it names the process for good. 0: there is none. */
static unsigned long long began(pid_t process)
{
	char path[64];
	char text[1024];
	char *at;
	unsigned long long ticks = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
	if (read_file(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	/* The name is in parentheses and may hold anything; the 22nd field of proc_pid_stat(5) is the 20th after it. */
	at = strrchr(text, ')');
	for (int field = 0; at && field < 20; field++)
		at = strchr(at + 1, ' ');
	if (at)
		sscanf(at + 1, "%llu", &ticks);
	return ticks;
}

/* The calling process is a session in this job. */
int jail_session_begin(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char name[16];
	char text[32];

	snprintf(name, sizeof(name), "%d", (int)getpid());
	snprintf(text, sizeof(text), "%llu\n", began(getpid()));
	return note_in(plan, job, name, text, error);
}

struct family {
	pid_t *members;
	size_t count;
	size_t room;
};

static int add_member(struct family *family, pid_t process)
{
	if (family->count == family->room) {
		size_t room = family->room ? family->room * 2 : 64;
		pid_t *grown = reallocarray(family->members, room, sizeof(*grown));

		if (!grown)
			return -1;
		family->members = grown;
		family->room = room;
	}
	family->members[family->count++] = process;
	return 0;
}

static int add_children(struct family *family, pid_t process)
{
	char path[80];
	int child;
	int result = 0;
	FILE *children;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)process, (int)process);
	children = fopen(path, "re");
	while (children && result == 0 && fscanf(children, "%d", &child) == 1)
		result = add_member(family, child);
	if (children)
		fclose(children);
	return result;
}

/* All that a session's process has started, and itself: stopped first, each before its children are read, so that none gets away to another
 * parent unseen; killed when all are known, children first, so that no number is another process' by then. No recursion and no bounds: their
 * user decides how deep and how many they are. Without memory for more, those that were found are ended. */
static void end_tree(pid_t process)
{
	struct family family = {NULL, 0, 0};
	int result = add_member(&family, process);

	for (size_t i = 0; result == 0 && i < family.count; i++) {
		kill(family.members[i], SIGSTOP);
		result = add_children(&family, family.members[i]);
	}
	for (size_t i = family.count; i > 0; i--)
		kill(family.members[i - 1], SIGKILL);
	free(family.members);
}

/* Ends the job's sessions and forgets the job. Returns the number of sessions ended, or -1. */
int jail_sessions_end(const struct jail_plan *plan, uint32_t job, struct jail_error *error)
{
	char base[PATH_MAX];
	struct dirent *entry;
	int ended = 0;
	int directory;
	DIR *list;

	if (!plan->spool)
		return 0;
	directory = open_job(plan, job, error);
	list = directory < 0 ? NULL : fdopendir(directory);
	if (!list) {
		if (directory >= 0)
			close(directory);
		return directory < 0 && errno == ENOENT ? 0 : jail_fail(error, "the sessions of job %u cannot be looked up (%s)", (unsigned)job, strerror(errno));
	}
	while ((entry = readdir(list))) {
		char text[32];
		pid_t process = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)atoi(entry->d_name) : 0;

		if (process > 1 && read_file(directory, entry->d_name, text, sizeof(text)) > 0) {
			unsigned long long then = strtoull(text, NULL, 10);

			if (then != 0 && then == began(process)) {
				end_tree(process);
				ended++;
			}
		}
	}
	closedir(list);
	if (base_of(plan, base, sizeof(base), error) < 0 || jail_job_remove(base, job, error) < 0)
		return -1;
	return ended;
}
