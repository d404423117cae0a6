/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The plan: "key=value" arguments of plugstack.conf or of jail-exec's command line. Only the administrator writes them; nothing
 * of a job's environment is ever read here.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define DEFAULT_SPOOL "/var/spool/slurmd"
#define DEFAULT_TMP DEFAULT_SPOOL "/corral/tmp"
#define DEFAULT_SHM "/dev/shm/corral"
#define DEFAULT_TIMEOUT 10
#define DEFAULT_WAIT 20
#define MAX_SECONDS 3600
#define NAME_MAX_LENGTH 63
#define PLUGIN "spank_corral_jail.so"
#define WORDS_MAX 256

/* A path that can be mounted on or from: absolute, no "..", no doubled or trailing slash that would hide one name as another. */
static bool plain_path(const char *path)
{
	size_t length = strlen(path);

	if (path[0] != '/' || length < 2 || length >= PATH_MAX || path[length - 1] == '/')
		return false;
	for (const char *part = path; part; part = strchr(part + 1, '/')) {
		const char *name = part + 1;
		size_t size = strcspn(name, "/");

		if (size == 0 || (size == 1 && name[0] == '.') || (size == 2 && name[0] == '.' && name[1] == '.'))
			return false;
	}
	return true;
}

static int set_path(char **field, const char *key, const char *value, struct jail_error *error)
{
	if (!plain_path(value))
		return jail_fail(error, "%s=%s is not an absolute path without '.', '..' and empty parts: correct it in plugstack.conf", key, value);
	free(*field);
	*field = strdup(value);
	return *field ? 0 : jail_fail(error, "out of memory while reading %s=", key);
}

static int add_bind(struct jail_plan *plan, const char *value, struct jail_error *error)
{
	struct jail_bind bind = {NULL, NULL, false};
	struct jail_bind *grown;
	const char *colon = strchr(value, ':');
	const char *mode = colon ? strchr(colon + 1, ':') : NULL;

	if (!colon || (mode && strcmp(mode, ":ro") != 0 && strcmp(mode, ":rw") != 0))
		return jail_fail(error, "bind=%s is not SOURCE:TARGET or SOURCE:TARGET:ro: correct it in plugstack.conf", value);
	bind.read_only = mode && strcmp(mode, ":ro") == 0;
	bind.source = strndup(value, (size_t)(colon - value));
	bind.target = mode ? strndup(colon + 1, (size_t)(mode - colon - 1)) : strdup(colon + 1);
	grown = reallocarray(plan->binds, plan->bind_count + 1, sizeof(*grown));
	if (grown)
		plan->binds = grown;
	if (!bind.source || !bind.target || !grown) {
		free(bind.source);
		free(bind.target);
		return jail_fail(error, "out of memory while reading bind=");
	}
	plan->binds[plan->bind_count++] = bind;
	if (!plain_path(bind.source) || !plain_path(bind.target))
		return jail_fail(error, "bind=%s wants two absolute paths without '.', '..' and empty parts: correct it in plugstack.conf", value);
	return 0;
}

static int add_device(struct jail_plan *plan, const char *value, struct jail_error *error)
{
	char **grown;

	if (!value[0] || value[0] == '.' || strchr(value, '/'))
		return jail_fail(error, "dev=%s is not a name of /dev (a shell pattern without a slash): correct it in plugstack.conf", value);
	grown = reallocarray(plan->devices, plan->device_count + 1, sizeof(*grown));
	if (!grown)
		return jail_fail(error, "out of memory while reading dev=");
	plan->devices = grown;
	plan->devices[plan->device_count] = strdup(value);
	if (!plan->devices[plan->device_count])
		return jail_fail(error, "out of memory while reading dev=");
	plan->device_count++;
	return 0;
}

/* Letters, digits, '-', '_' and '.': what Slurm takes as a partition and what a command line needs no quotes for. */
static bool plain_name(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
			return false;
	return length > 0 && length <= NAME_MAX_LENGTH;
}

static struct jail_named *find_jail(const struct jail_plan *plan, const char *name)
{
	for (size_t i = 0; i < plan->jail_count; i++)
		if (strcmp(plan->jails[i].name, name) == 0)
			return &plan->jails[i];
	return NULL;
}

/* "argument" is NAME=PATH; the name alone is given as a length. */
static int add_jail(struct jail_plan *plan, const char *name, size_t length, const char *path, struct jail_error *error)
{
	struct jail_named jail = {NULL, NULL};
	struct jail_named *place;
	struct jail_named *grown;

	if (!plain_name(name, length))
		return jail_fail(error, "jail.%.*s= is not a jail's name of letters, digits, '-', '_' and '.': correct it in plugstack.conf", (int)length, name);
	jail.name = strndup(name, length);
	if (!jail.name)
		return jail_fail(error, "out of memory while reading jail=");
	place = find_jail(plan, jail.name);
	if (place) {
		free(jail.name);
		return set_path(&place->path, "jail", path, error);
	}
	if (set_path(&jail.path, "jail", path, error) < 0) {
		free(jail.name);
		return -1;
	}
	grown = reallocarray(plan->jails, plan->jail_count + 1, sizeof(*grown));
	if (!grown) {
		free(jail.name);
		free(jail.path);
		return jail_fail(error, "out of memory while reading jail=");
	}
	plan->jails = grown;
	plan->jails[plan->jail_count++] = jail;
	return 0;
}

static int add_partition(struct jail_plan *plan, const char *name, size_t length, const char *jail, struct jail_error *error)
{
	struct jail_partition partition;
	struct jail_partition *grown;

	if (!plain_name(name, length) || !plain_name(jail, strlen(jail)))
		return jail_fail(error, "partition.%.*s=%s is not PARTITION=JAIL, two names of letters, digits, '-', '_' and '.': correct it in plugstack.conf",
				 (int)length, name, jail);
	grown = reallocarray(plan->partitions, plan->partition_count + 1, sizeof(*grown));
	if (!grown)
		return jail_fail(error, "out of memory while reading partition.");
	plan->partitions = grown;
	partition.partition = strndup(name, length);
	partition.jail = strdup(jail);
	plan->partitions[plan->partition_count++] = partition;
	return partition.partition && partition.jail ? 0 : jail_fail(error, "out of memory while reading partition.");
}

/* Numbers only: names are looked up in the jail, where root could take another user's. */
static int add_outsiders(struct jail_plan *plan, const char *value, struct jail_error *error)
{
	const char *rest = value;

	while (*rest) {
		char *end;
		unsigned long uid;
		uid_t *grown;

		errno = 0;
		uid = strtoul(rest, &end, 10);
		if (errno || !isdigit((unsigned char)*rest) || uid >= UINT32_MAX || (*end && (*end != ',' || !end[1])))
			return jail_fail(error, "no-jail=%s is not a list of user ids such as 1000,1001: correct it in plugstack.conf", value);
		grown = reallocarray(plan->outsiders, plan->outsider_count + 1, sizeof(*grown));
		if (!grown)
			return jail_fail(error, "out of memory while reading no-jail=");
		plan->outsiders = grown;
		plan->outsiders[plan->outsider_count++] = (uid_t)uid;
		rest = *end ? end + 1 : end;
	}
	return 0;
}

static int set_seconds(unsigned *field, const char *key, const char *value, unsigned least, struct jail_error *error)
{
	char *end;
	unsigned long seconds;

	errno = 0;
	seconds = strtoul(value, &end, 10);
	if (errno || !isdigit((unsigned char)*value) || *end || seconds < least || seconds > MAX_SECONDS)
		return jail_fail(error, "%s=%s is not a number of seconds from %u to %d: correct it in plugstack.conf", key, value, least, MAX_SECONDS);
	*field = (unsigned)seconds;
	return 0;
}

static const char *value_of(const char *argument, const char *key)
{
	size_t length = strlen(key);

	return strncmp(argument, key, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

/* A path, or the value that stands for having none. */
static int set_path_or_none(char **field, const char *key, const char *value, const char *none, struct jail_error *error)
{
	if (strcmp(value, none) != 0)
		return set_path(field, key, value, error);
	free(*field);
	*field = NULL;
	return 0;
}

/* Whose namespace of a kind a job has. */
static int set_namespace(bool *of_job, const char *kind, const char *value, struct jail_error *error)
{
	*of_job = strcmp(value, "job") == 0;
	return *of_job || strcmp(value, "node") == 0 ? 0 : jail_fail(error, "%s=%s is neither job nor node: correct it in plugstack.conf", kind, value);
}

static int read_argument(struct jail_plan *plan, const char *argument, struct jail_error *error)
{
	const char *equals = strchr(argument, '=');
	const char *value;

	if ((value = value_of(argument, "jail")))
		return add_jail(plan, JAIL_DEFAULT, strlen(JAIL_DEFAULT), value, error);
	if (equals && strncmp(argument, "jail.", 5) == 0)
		return add_jail(plan, argument + 5, (size_t)(equals - argument) - 5, equals + 1, error);
	if (equals && strncmp(argument, "partition.", 10) == 0)
		return add_partition(plan, argument + 10, (size_t)(equals - argument) - 10, equals + 1, error);
	if ((value = value_of(argument, "spool")))
		return set_path_or_none(&plan->spool, "spool", value, "none", error);
	if ((value = value_of(argument, "bind")))
		return add_bind(plan, value, error);
	if ((value = value_of(argument, "dev")))
		return add_device(plan, value, error);
	if ((value = value_of(argument, "tmp")))
		return set_path_or_none(&plan->tmp, "tmp", value, "jail", error);
	if ((value = value_of(argument, "shm")))
		return set_path_or_none(&plan->shm, "shm", value, "pod", error);
	if ((value = value_of(argument, "ipc")))
		return set_namespace(&plan->ipc_of_job, "ipc", value, error);
	if ((value = value_of(argument, "pid")))
		return set_namespace(&plan->pid_of_job, "pid", value, error);
	if ((value = value_of(argument, "overlay")))
		return set_path(&plan->overlay, "overlay", value, error);
	if ((value = value_of(argument, "no-jail")))
		return add_outsiders(plan, value, error);
	if ((value = value_of(argument, "timeout")))
		return set_seconds(&plan->timeout, "timeout", value, 1, error);
	if ((value = value_of(argument, "wait")))
		return set_seconds(&plan->wait, "wait", value, 0, error);
	return jail_fail(error, "'%s' is not an argument of the jail (jail=, jail.NAME=, partition.NAME=, spool=, tmp=, shm=, ipc=, pid=, overlay=, no-jail=, timeout=, wait=, "
			 "bind=, dev=): correct it in plugstack.conf", argument);
}

static int check_plan(struct jail_plan *plan, struct jail_error *error)
{
	struct jail_named *jail = find_jail(plan, JAIL_DEFAULT);

	if (!jail)
		return jail_fail(error, "the argument jail=PATH is missing: add it in plugstack.conf");
	for (size_t i = 0; i < plan->partition_count; i++)
		if (!find_jail(plan, plan->partitions[i].jail))
			return jail_fail(error, "partition.%s=%s names a jail that there is no jail.%s= for: correct it in plugstack.conf",
					 plan->partitions[i].partition, plan->partitions[i].jail, plan->partitions[i].jail);
	plan->name = jail->name;
	plan->jail = jail->path;
	return 0;
}

/* On failure too the plan has to be freed. */
int jail_plan_parse(struct jail_plan *plan, int count, char **arguments, struct jail_error *error)
{
	memset(plan, 0, sizeof(*plan));
	plan->timeout = DEFAULT_TIMEOUT;
	plan->wait = DEFAULT_WAIT;
	plan->ipc_of_job = true;
	plan->spool = strdup(DEFAULT_SPOOL);
	plan->tmp = strdup(DEFAULT_TMP);
	plan->shm = strdup(DEFAULT_SHM);
	if (!plan->spool || !plan->tmp || !plan->shm)
		return jail_fail(error, "out of memory while reading the arguments of the jail");
	for (int i = 0; i < count; i++)
		if (read_argument(plan, arguments[i], error) < 0)
			return -1;
	return check_plan(plan, error);
}

/* The arguments after the plugin's name in plugstack.conf; "line" keeps their text. Returns their number, or -1. */
static int plugin_arguments(const char *file, char **line, char **arguments, struct jail_error *error)
{
	size_t size = 0;
	int count = -1;
	FILE *stream = fopen(file, "re");

	while (stream && count < 0 && getline(line, &size, stream) > 0) {
		char *rest = *line;
		char *argument = strsep(&rest, " \t\n");
		size_t length;

		if (argument[0] == '#')
			continue;
		while (rest && (argument = strsep(&rest, " \t\n"))) {
			length = strlen(argument);
			if (count >= 0 && length && count < WORDS_MAX)
				arguments[count++] = argument;
			else if (length >= strlen(PLUGIN) && strcmp(argument + length - strlen(PLUGIN), PLUGIN) == 0)
				count = 0;
		}
	}
	if (count < 0)
		jail_fail(error, "%s has no line of " PLUGIN " (%s): is slurmd running?", file, stream ? "it can be read" : strerror(errno));
	if (stream)
		fclose(stream);
	return count;
}

/* By the arguments that the SPANK plugin has in a plugstack.conf, and by "count" more, which outweigh them. On failure too the plan has to be freed. */
int jail_plan_of_plugin(struct jail_plan *plan, const char *file, int count, char **arguments, struct jail_error *error)
{
	char *line = NULL;
	char *found[WORDS_MAX * 2];
	int result;

	memset(plan, 0, sizeof(*plan));
	result = plugin_arguments(file, &line, found, error);
	for (int i = 0; result >= 0 && i < count && i < WORDS_MAX; i++)
		found[result++] = arguments[i];
	if (result >= 0)
		result = jail_plan_parse(plan, result, found, error);
	free(line);
	return result;
}

/* The jail that a user asks for; only the administrator's are there to be chosen. */
int jail_plan_choose(struct jail_plan *plan, const char *name, struct jail_error *error)
{
	struct jail_named *jail = find_jail(plan, name);
	char names[256] = "";

	if (jail) {
		plan->name = jail->name;
		plan->jail = jail->path;
		return 0;
	}
	for (size_t i = 0; i < plan->jail_count; i++) {
		strncat(names, i ? ", " : "", sizeof(names) - strlen(names) - 1);
		strncat(names, plan->jails[i].name, sizeof(names) - strlen(names) - 1);
	}
	return jail_fail(error, "there is no jail '%.64s': choose one of %s", name, names);
}

int jail_plan_choose_mode(struct jail_plan *plan, enum jail_mode mode, struct jail_error *error)
{
	if (mode == JAIL_OVERLAY && !plan->overlay)
		return jail_fail(error, "this cluster has no room for overlays of the jail: the administrator gives it by spec.jail.overlay of the cluster's "
				 "document (without Kubernetes: overlay= in plugstack.conf)");
	plan->mode = mode;
	return 0;
}

/* As users see it in CORRAL_JAIL_MODE. */
const char *jail_mode_name(enum jail_mode mode)
{
	static const char *const names[] = {[JAIL_RW] = "rw", [JAIL_RO] = "ro", [JAIL_OVERLAY] = "overlay"};

	return names[mode];
}

/* NULL: the default jail. */
const char *jail_plan_of_partition(const struct jail_plan *plan, const char *partition)
{
	for (size_t i = 0; i < plan->partition_count; i++)
		if (strcmp(plan->partitions[i].partition, partition) == 0)
			return plan->partitions[i].jail;
	return NULL;
}

bool jail_plan_lets_out(const struct jail_plan *plan, uid_t uid)
{
	for (size_t i = 0; i < plan->outsider_count; i++)
		if (plan->outsiders[i] == uid)
			return true;
	return false;
}

void jail_plan_free(struct jail_plan *plan)
{
	for (size_t i = 0; i < plan->bind_count; i++) {
		free(plan->binds[i].source);
		free(plan->binds[i].target);
	}
	for (size_t i = 0; i < plan->device_count; i++)
		free(plan->devices[i]);
	for (size_t i = 0; i < plan->jail_count; i++) {
		free(plan->jails[i].name);
		free(plan->jails[i].path);
	}
	for (size_t i = 0; i < plan->partition_count; i++) {
		free(plan->partitions[i].partition);
		free(plan->partitions[i].jail);
	}
	free(plan->jails);
	free(plan->partitions);
	free(plan->outsiders);
	free(plan->binds);
	free(plan->devices);
	free(plan->spool);
	free(plan->tmp);
	free(plan->shm);
	free(plan->overlay);
	memset(plan, 0, sizeof(*plan));
}
