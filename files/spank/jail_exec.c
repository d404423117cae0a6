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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jail.h"
#include "terminal.h"

#define FAILED 125 /* as env, nohup and timeout: not the command's own status */

static bool verbose;

static void print_line(const char *text)
{
	if (verbose)
		fprintf(stderr, "jail-exec: %s\n", text);
}

static const struct jail_log printer = {.info = print_line, .debug = print_line};

static int usage(FILE *to)
{
	fputs("usage: jail-exec [-v] [--room] [--job ID] [--ro|--overlay] KEY=VALUE... -- COMMAND [ARGUMENT...]\n"
	      "       jail-exec [-v] --try [--room] [--job ID] [--ro|--overlay] KEY=VALUE...\n"
	      "       jail-exec [-v] --prepare PATH [KEY=VALUE...]\n"
	      "       jail-exec [-v] --attach PATH bind=SOURCE:TARGET[:ro]...\n"
	      "       jail-exec --time COUNT [--job ID] KEY=VALUE...\n"
	      "\n"
	      "Runs COMMAND in the jail, as root without the capabilities that lead out of it, on a terminal of its own;\n"
	      "or enters and runs nothing;\n"
	      "or makes the mounts for a chroot to PATH in the current mount namespace (again: changes nothing);\n"
	      "or mounts the pod's directories below the jail at PATH, there, following no link (again: changes nothing);\n"
	      "or enters COUNT times and prints how long the median and the slowest of a hundred took, in microseconds.\n"
	      "KEY=VALUE are those of the plugin: jail= spool= tmp= shm= overlay= timeout= wait= bind= dev=.\n"
	      "plugstack=FILE: those that the plugin has in its plugstack.conf, outweighed by what else is given.\n"
	      "--room: not where users' files have no room. "
	      "--job ID: with what that job has of its own, and in its namespaces. --ro, --overlay: as a job has it with --jail-ro, --jail-overlay.\n",
	      to);
	return to == stdout ? EXIT_SUCCESS : FAILED;
}

static int refuse(const struct jail_error *error)
{
	fprintf(stderr, "jail-exec: %s\n", error->text);
	return FAILED;
}

static int execute(char **command)
{
	int code;

	execvp(command[0], command);
	code = errno == ENOENT ? 127 : 126;
	fprintf(stderr, "jail-exec: %s cannot be run in the jail: %s\n", command[0], strerror(errno));
	return code;
}

/* In the PID namespace that the next child is born into; ends as that does. */
static int execute_in(int pids, char **command)
{
	int status;
	pid_t child = jail_pid_lead(pids) < 0 ? -1 : fork();

	if (child == 0)
		_exit(execute(command));
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			child = -1;
	if (child > 0)
		return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	fprintf(stderr, "jail-exec: the command cannot be run in the job's PID namespace (%s)\n", strerror(errno));
	return FAILED;
}

static int run(const struct jail_plan *plan, uint32_t job, bool room, char **command)
{
	struct jail_view view;
	struct jail_error error;
	int pids;

	if (command && terminal_apart() != TERMINAL_HERE) {
		fprintf(stderr, "jail-exec: a terminal of its own for the command cannot be made (%s)\n", strerror(errno));
		return FAILED;
	}
	/* Before the entry, whose first check reports more about a missing jail. */
	if (room && jail_await(plan->jail, plan->timeout, plan->wait, &error) == 0 && jail_has_room(plan->jail, plan->timeout, &error) < 0)
		return refuse(&error);
	pids = jail_pid_open(plan, job, &error);
	if ((pids < 0 && error.text[0]) || jail_ipc_join(plan, job, &error) < 0)
		return refuse(&error);
	if (jail_enter(plan, job, &printer, &view, &error) < 0 || jail_strip(&view, &error) < 0 || jail_fence(&error) < 0 ||
	    jail_drop_capabilities(&error) < 0)
		return refuse(&error);
	jail_view_close(&view);
	if (!command)
		return EXIT_SUCCESS;
	return pids < 0 ? execute(command) : execute_in(pids, command);
}

/* One entry in a process of its own; microseconds, or -1 after the sentence. */
static long time_entry(const struct jail_plan *plan, uint32_t job)
{
	int result[2];
	long took = -1;
	pid_t child;

	if (pipe(result) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		struct jail_view view;
		struct jail_error error;
		struct timespec start;
		struct timespec end;

		clock_gettime(CLOCK_MONOTONIC, &start);
		if (jail_enter(plan, job, &printer, &view, &error) < 0)
			_exit(refuse(&error));
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (end.tv_sec - start.tv_sec) * 1000000L + (end.tv_nsec - start.tv_nsec) / 1000L;
		_exit(write(result[1], &took, sizeof(took)) == sizeof(took) ? 0 : FAILED);
	}
	close(result[1]);
	if (read(result[0], &took, sizeof(took)) != sizeof(took))
		took = -1;
	close(result[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	return took;
}

static int compare(const void *left, const void *right)
{
	long a = *(const long *)left;
	long b = *(const long *)right;

	return (a > b) - (a < b);
}

static int measure(const struct jail_plan *plan, uint32_t job, uint32_t count)
{
	long *times = calloc(count, sizeof(*times));
	int result = times ? EXIT_SUCCESS : FAILED;

	for (uint32_t i = 0; i < count && result == EXIT_SUCCESS; i++) {
		times[i] = time_entry(plan, job);
		if (times[i] < 0)
			result = FAILED;
	}
	if (result == EXIT_SUCCESS) {
		qsort(times, count, sizeof(*times), compare);
		printf("{\"entries\": %u, \"p50\": %ld, \"p99\": %ld, \"max\": %ld}\n", (unsigned)count, times[count / 2], times[(uint64_t)count * 99 / 100],
		       times[count - 1]);
	}
	free(times);
	return result;
}

static int read_number(const char *option, const char *text, uint32_t *number)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || end == text || value == 0 || value > UINT32_MAX) {
		fprintf(stderr, "jail-exec: %s %s is not a number from 1 on\n", option, text);
		return -1;
	}
	*number = (uint32_t)value;
	return 0;
}

/* The command line. "plan" has the arguments of the plan, with room for a jail= made of --prepare's or --attach's path. */
struct line {
	int count;
	char **plan;
	const char *plugstack; /* the file that has more of them */
	char *prepare;
	bool attach; /* "prepare" is --attach's path */
	char **command;
	uint32_t job;
	uint32_t times;
	enum jail_mode mode;
	bool try;
	bool room;
	bool help;
};

static int act(struct line *line)
{
	struct jail_plan plan;
	struct jail_error error;
	int result;

	result = line->plugstack ? jail_plan_of_plugin(&plan, line->plugstack, line->count, line->plan, &error) :
				   jail_plan_parse(&plan, line->count, line->plan, &error);
	if (result < 0 || jail_plan_choose_mode(&plan, line->mode, &error) < 0 ||
	    (line->mode == JAIL_OVERLAY && jail_overlay_mount(&plan, line->job, &error) < 0))
		result = refuse(&error);
	else if (line->attach)
		result = jail_attach_binds(&plan, &printer, &error) < 0 ? refuse(&error) : EXIT_SUCCESS;
	else if (line->prepare)
		result = jail_prepare(&plan, &printer, &error) < 0 ? refuse(&error) : EXIT_SUCCESS;
	else if (line->times)
		result = measure(&plan, line->job, line->times);
	else
		result = run(&plan, line->job, line->room, line->command);
	jail_plan_free(&plan);
	return result;
}

/* Reads one argument, or two of them, and returns how many; 0 for what is none. */
static int read_argument(struct line *line, int left, char **argument)
{
	const char *option = argument[0];
	const char *value = left > 1 ? argument[1] : NULL;

	if (strcmp(option, "-v") == 0)
		verbose = true;
	else if (strcmp(option, "--try") == 0)
		line->try = true;
	else if (strcmp(option, "--room") == 0)
		line->room = true;
	else if (strcmp(option, "--ro") == 0 && line->mode == JAIL_RW)
		line->mode = JAIL_RO;
	else if (strcmp(option, "--overlay") == 0 && line->mode == JAIL_RW)
		line->mode = JAIL_OVERLAY;
	else if (strcmp(option, "--job") == 0 && value)
		return read_number(option, value, &line->job) < 0 ? 0 : 2;
	else if (strcmp(option, "--time") == 0 && value)
		return read_number(option, value, &line->times) < 0 ? 0 : 2;
	else if ((strcmp(option, "--prepare") == 0 || strcmp(option, "--attach") == 0) && value && !line->prepare) {
		line->attach = option[2] == 'a';
		if (asprintf(&line->prepare, "jail=%s", value) < 0)
			return 0;
		line->plan[line->count++] = line->prepare;
		return 2;
	} else if (strncmp(option, JAIL_PLUGSTACK, strlen(JAIL_PLUGSTACK)) == 0 && !line->plugstack)
		line->plugstack = option + strlen(JAIL_PLUGSTACK);
	else if (option[0] != '-' && strchr(option, '='))
		line->plan[line->count++] = argument[0];
	else
		return 0;
	return 1;
}

/* True when the line has exactly one thing to do. */
static bool read_line(struct line *line, int count, char **argument)
{
	int i = 1;

	while (i < count && !line->command) {
		int taken;

		if (strcmp(argument[i], "--help") == 0 || strcmp(argument[i], "-h") == 0) {
			line->help = true;
			return true;
		}
		if (strcmp(argument[i], "--") == 0) {
			line->command = &argument[i + 1];
			break;
		}
		taken = read_argument(line, count - i, &argument[i]);
		if (taken == 0)
			return false;
		i += taken;
	}
	if (line->mode == JAIL_OVERLAY && line->job == 0)
		return false;
	return (line->prepare != NULL) + (line->command && line->command[0]) + (line->times > 0) + line->try == 1;
}

int main(int count, char **argument)
{
	struct line line = {.plan = calloc((size_t)count + 1, sizeof(char *))};
	int result;

	if (!line.plan || !read_line(&line, count, argument))
		result = usage(stderr);
	else if (line.help)
		result = usage(stdout);
	else
		result = act(&line);
	free(line.prepare);
	free(line.plan);
	return result;
}
