/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * jail-exec: a command inside the jail, or the mounts of a login pod's chroot, by the very code of the SPANK plugin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jail.h"

#define FAILED 125 /* as env, nohup and timeout: not the command's own status */

static bool verbose;

static void say(const char *text)
{
	if (verbose)
		fprintf(stderr, "jail-exec: %s\n", text);
}

static const struct jail_log narrator = {.info = say, .debug = say};

static int usage(FILE *to)
{
	fputs("usage: jail-exec [-v] [--job ID] KEY=VALUE... -- COMMAND [ARGUMENT...]\n"
	      "       jail-exec [-v] --prepare PATH [KEY=VALUE...]\n"
	      "\n"
	      "Runs COMMAND in the jail, as root without the capabilities that lead out of it,\n"
	      "or makes the mounts for a chroot to PATH in the current mount namespace (again: changes nothing).\n"
	      "KEY=VALUE are those of the plugin: jail= spool= tmp= bind= dev=. --job ID: with that job's /tmp.\n",
	      to);
	return to == stdout ? EXIT_SUCCESS : FAILED;
}

static int refuse(const struct jail_error *error)
{
	fprintf(stderr, "jail-exec: %s\n", error->text);
	return FAILED;
}

static int run(const struct jail_plan *plan, uint32_t job, char **command)
{
	struct jail_view view;
	struct jail_error error;
	int code;

	if (jail_enter(plan, job, &narrator, &view, &error) < 0 || jail_strip(&view, &error) < 0 || jail_drop_capabilities(&error) < 0)
		return refuse(&error);
	jail_view_close(&view);
	execvp(command[0], command);
	code = errno == ENOENT ? 127 : 126;
	fprintf(stderr, "jail-exec: %s can not be run in the jail: %s\n", command[0], strerror(errno));
	return code;
}

static int read_job(const char *text, uint32_t *job)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || end == text || value == 0 || value > UINT32_MAX) {
		fprintf(stderr, "jail-exec: --job %s is not the number of a job\n", text);
		return -1;
	}
	*job = (uint32_t)value;
	return 0;
}

/* Words of the plan, with room for a jail= made of --prepare's path. */
struct words {
	int count;
	char **word;
	char *prepare;
};

static int act(struct words *words, bool prepare, uint32_t job, char **command)
{
	struct jail_plan plan;
	struct jail_error error;
	int result;

	if (jail_plan_parse(&plan, words->count, words->word, &error) < 0)
		result = refuse(&error);
	else if (prepare)
		result = jail_prepare(&plan, &narrator, &error) < 0 ? refuse(&error) : EXIT_SUCCESS;
	else
		result = run(&plan, job, command);
	jail_plan_free(&plan);
	return result;
}

int main(int count, char **argument)
{
	struct words words = {0, calloc((size_t)count + 1, sizeof(char *)), NULL};
	char **command = NULL;
	uint32_t job = 0;
	bool bad = words.word == NULL;
	int result;

	for (int i = 1; i < count && !bad && !command; i++) {
		const char *word = argument[i];

		if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
			free(words.word);
			free(words.prepare);
			return usage(stdout);
		}
		if (strcmp(word, "-v") == 0)
			verbose = true;
		else if (strcmp(word, "--") == 0)
			command = &argument[i + 1];
		else if (strcmp(word, "--job") == 0 && i + 1 < count)
			bad = read_job(argument[++i], &job) < 0;
		else if (strcmp(word, "--prepare") == 0 && i + 1 < count && !words.prepare) {
			bad = asprintf(&words.prepare, "jail=%s", argument[++i]) < 0;
			words.word[words.count++] = words.prepare;
		} else if (word[0] != '-' && strchr(word, '='))
			words.word[words.count++] = argument[i];
		else
			bad = true;
	}
	if (bad || !words.prepare == !(command && command[0]))
		result = usage(stderr);
	else
		result = act(&words, words.prepare != NULL, job, command);
	free(words.prepare);
	free(words.word);
	return result;
}
