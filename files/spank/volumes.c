/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The pod's volumes below its jails stay there. Whoever removes such a directory where it is no mount point (on another node, on the file
 * server) removes the mount here, and the kernel reports nothing, and what jobs write then would go to the shared root. So jail-exec --attach
 * writes down what it attached, and each entry checks that all of it is there: what is missing is attached again, or nothing is run.
 *
 * Looked up in mountinfo and not by a name in the jail: crossing into a volume whose server is away would hang.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "internal.h"

/* A line a volume: JAIL TARGET SOURCE:TARGET[:ro], without blanks in the paths, as --attach got them. */
#define RECORD "/run/corral-volumes"

/* The volumes of a pod below its jail, in the mount namespace of the caller, so that every entry takes them along. Not mounted there by the
 * container's runtime: it follows links, and root in the jail could plant one that leads over the pod's own programs. A second call changes
 * nothing. */
static int attach(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error)
{
	struct jail_layers binds = {0, NULL};
	int result = -1;
	int root;

	if (jail_await(plan->jail, plan->timeout, plan->wait, error) < 0)
		return -1;
	root = jail_open(plan->jail, error);
	if (root < 0)
		return -1;
	if (jail_binds_collect(plan, log, &binds, error) == 0)
		result = jail_layers_apply(&binds, log, root, true, error);
	jail_layers_close(&binds);
	jail_close(root);
	return result;
}

static bool has_line(FILE *record, const char *wanted)
{
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	rewind(record);
	while (!found && getline(&line, &size, record) > 0)
		found = strcmp(line, wanted) == 0;
	free(line);
	return found;
}

static int write_down(FILE *record, const char *jail, const struct jail_bind *bind)
{
	char *line;
	int result = 0;

	if (asprintf(&line, "%s %s %s:%s%s\n", jail, bind->target, bind->source, bind->target, bind->read_only ? ":ro" : "") < 0)
		return -1;
	if (!has_line(record, line))
		result = fseek(record, 0, SEEK_END) < 0 || fputs(line, record) == EOF || fflush(record) == EOF ? -1 : 0;
	free(line);
	return result;
}

/* All binds of the plan, which were just attached. */
static int write_down_all(const struct jail_plan *plan, struct jail_error *error)
{
	FILE *record = fopen(RECORD, "a+e");
	int result = record ? 0 : -1;

	for (size_t i = 0; i < plan->bind_count && result == 0; i++)
		result = strpbrk(plan->jail, " \n") || strpbrk(plan->binds[i].target, " \n") || strpbrk(plan->binds[i].source, " \n")
				 ? 0
				 : write_down(record, plan->jail, &plan->binds[i]);
	if (result < 0)
		jail_fail(error, RECORD " cannot be written (%s): check the pod's root file system", strerror(errno));
	if (record)
		fclose(record);
	return result;
}

/* Attaches them, and each entry sees to it that they stay. */
int jail_attach_binds(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error)
{
	return attach(plan, log, error) < 0 ? -1 : write_down_all(plan, error);
}

struct volume {
	char *target;
	char *argument;
	bool there;
};

struct volumes {
	char *text;
	struct volume *volume;
	size_t count;
};

static void forget(struct volumes *volumes)
{
	free(volumes->text);
	free(volumes->volume);
}

static char *read_all(FILE *file)
{
	char *text = NULL;
	size_t size = 0;

	/* No text has a zero byte. */
	if (getdelim(&text, &size, '\0', file) >= 0)
		return text;
	free(text);
	return NULL;
}

/* Those of this jail. */
static int recorded(FILE *record, const char *jail, struct volumes *volumes)
{
	char *rest = NULL;

	volumes->text = read_all(record);
	for (char *line = volumes->text ? strtok_r(volumes->text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
		char *target = strchr(line, ' ');
		char *argument = target ? strchr(target + 1, ' ') : NULL;
		struct volume *grown;

		if (!argument)
			continue;
		*target++ = '\0';
		*argument++ = '\0';
		if (strcmp(line, jail) != 0)
			continue;
		grown = reallocarray(volumes->volume, volumes->count + 1, sizeof(*grown));
		if (!grown)
			return -1;
		volumes->volume = grown;
		volumes->volume[volumes->count++] = (struct volume){target, argument, false};
	}
	return 0;
}

/* Marks those that are mounted; the number of those that are not, or -1. */
static int look_for(struct volumes *volumes, const char *jail)
{
	size_t length = strlen(jail);
	char *line = NULL;
	size_t size = 0;
	int missing = (int)volumes->count;
	FILE *file = fopen("/proc/thread-self/mountinfo", "re");

	if (!file)
		return -1;
	while (missing > 0 && getline(&line, &size, file) > 0) {
		const char *path = jail_mount_point(line);

		if (!path || strncmp(path, jail, length) != 0)
			continue;
		for (size_t i = 0; i < volumes->count; i++)
			if (!volumes->volume[i].there && strcmp(path + length, volumes->volume[i].target) == 0) {
				volumes->volume[i].there = true;
				missing--;
			}
	}
	free(line);
	fclose(file);
	return missing;
}

static int attach_again(const char *jail, const struct volume *volume, const struct jail_log *log, struct jail_error *error)
{
	struct jail_plan plan;
	struct jail_error why;
	char *arguments[2] = {NULL, NULL};
	int result = -1;

	if (asprintf(&arguments[0], "jail=%s", jail) < 0 || asprintf(&arguments[1], "bind=%s", volume->argument) < 0)
		return jail_fail(error, "out of memory while reading the jail's volumes");
	if (jail_plan_parse(&plan, 2, arguments, &why) == 0)
		result = attach(&plan, log, &why);
	jail_plan_free(&plan);
	free(arguments[0]);
	free(arguments[1]);
	if (result == 0) {
		jail_info(log, "the volume at %s was lost, since its directory in the jail %s was removed elsewhere; it is attached again", volume->target, jail);
		return 0;
	}
	return jail_fail(error, "the volume at %s is lost, since its directory in the jail %s was removed, and nothing is run without it: make the directory again, "
			 "plain and root's (%s)", volume->target, jail, why.text);
}

/* In the pod's mount namespace, before it is left. */
int jail_volumes_check(const struct jail_plan *plan, const struct jail_log *log, struct jail_error *error)
{
	struct volumes volumes = {NULL, NULL, 0};
	FILE *record = fopen(RECORD, "re");
	int missing;
	int result = 0;

	if (!record)
		return errno == ENOENT ? 0 : jail_fail(error, RECORD " cannot be read (%s)", strerror(errno));
	missing = recorded(record, plan->jail, &volumes) < 0 ? -1 : look_for(&volumes, plan->jail);
	/* Steps may begin together; who comes second finds what the first one did. */
	if (missing > 0)
		missing = flock(fileno(record), LOCK_EX) < 0 ? -1 : look_for(&volumes, plan->jail);
	if (missing < 0)
		result = jail_fail(error, "the volumes of the jail %s cannot be looked up (%s)", plan->jail, strerror(errno));
	for (size_t i = 0; i < volumes.count && missing > 0 && result == 0; i++)
		if (!volumes.volume[i].there)
			result = attach_again(plan->jail, &volumes.volume[i], log, error);
	forget(&volumes);
	fclose(record);
	return result;
}
