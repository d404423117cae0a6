/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * The plan: "key=value" words of plugstack.conf or of jail-exec's command line. Only the administrator writes them; nothing
 * of a job's environment is ever read here.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define DEFAULT_SPOOL "/var/spool/slurmd"
#define DEFAULT_TMP DEFAULT_SPOOL "/corral/tmp"

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

static const char *value_of(const char *word, const char *key)
{
	size_t length = strlen(key);

	return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static int read_word(struct jail_plan *plan, const char *word, struct jail_error *error)
{
	const char *value;

	if ((value = value_of(word, "jail")))
		return set_path(&plan->jail, "jail", value, error);
	if ((value = value_of(word, "spool")))
		return set_path(&plan->spool, "spool", value, error);
	if ((value = value_of(word, "bind")))
		return add_bind(plan, value, error);
	if ((value = value_of(word, "dev")))
		return add_device(plan, value, error);
	if ((value = value_of(word, "tmp"))) {
		if (strcmp(value, "jail") != 0)
			return set_path(&plan->tmp, "tmp", value, error);
		free(plan->tmp);
		plan->tmp = NULL;
		return 0;
	}
	return jail_fail(error, "'%s' is not an argument of the jail (jail=, spool=, tmp=, bind=, dev=): correct it in plugstack.conf", word);
}

/* On failure too the plan has to be freed. */
int jail_plan_parse(struct jail_plan *plan, int count, char **words, struct jail_error *error)
{
	memset(plan, 0, sizeof(*plan));
	plan->spool = strdup(DEFAULT_SPOOL);
	plan->tmp = strdup(DEFAULT_TMP);
	if (!plan->spool || !plan->tmp)
		return jail_fail(error, "out of memory while reading the arguments of the jail");
	for (int i = 0; i < count; i++)
		if (read_word(plan, words[i], error) < 0)
			return -1;
	if (!plan->jail)
		return jail_fail(error, "the argument jail=PATH is missing: add it in plugstack.conf");
	return 0;
}

void jail_plan_free(struct jail_plan *plan)
{
	for (size_t i = 0; i < plan->bind_count; i++) {
		free(plan->binds[i].source);
		free(plan->binds[i].target);
	}
	for (size_t i = 0; i < plan->device_count; i++)
		free(plan->devices[i]);
	free(plan->binds);
	free(plan->devices);
	free(plan->jail);
	free(plan->spool);
	free(plan->tmp);
	memset(plan, 0, sizeof(*plan));
}
