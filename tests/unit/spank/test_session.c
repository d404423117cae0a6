/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define BASE POD "/spool/corral/job"

static char *words[] = {"jail=" POD "/jail", "jail.old=" POD "/old", "spool=" POD "/spool", "overlay=" POD "/overlay"};

static void parse(struct jail_plan *plan)
{
	struct jail_error error;

	CHECK(jail_plan_parse(plan, 4, words, &error) == 0);
}

static void a_session_follows_its_job(void)
{
	struct jail_plan step, session;
	struct jail_error error;

	make_pod();
	parse(&step);
	CHECK(jail_plan_choose(&step, "old", &error) == 0);
	CHECK(jail_plan_choose_mode(&step, JAIL_RO, &error) == 0);
	CHECK(jail_note(&step, 7, &error) == 0);
	parse(&session);
	CHECK(jail_follow_note(&session, 7, &error) == 0);
	CHECK(strcmp(session.name, "old") == 0 && strcmp(session.jail, POD "/old") == 0 && session.mode == JAIL_RO);
	CHECK(jail_follow_note(&session, 8, &error) == 0);
	jail_plan_free(&step);
	jail_plan_free(&session);
}

static void the_default_leaves_no_note(void)
{
	struct jail_plan plan;
	struct jail_error error;

	make_pod();
	parse(&plan);
	CHECK(jail_note(&plan, 7, &error) == 0);
	CHECK(!there_is(BASE));
	CHECK(jail_follow_note(&plan, 7, &error) == 0);
	CHECK(strcmp(plan.name, JAIL_DEFAULT) == 0 && plan.mode == JAIL_RW);
	CHECK(jail_sessions_end(&plan, 7, &error) == 0);
	jail_plan_free(&plan);
}

static void a_note_that_is_nonsense_is_refused(void)
{
	struct jail_plan plan;
	struct jail_error error;
	int directory;

	make_pod();
	parse(&plan);
	directory = jail_job_open(BASE, 7, 0700, &error);
	CHECK(directory >= 0);
	close(directory);
	make_file(BASE "/7/jail", "old sideways\n");
	CHECK(jail_follow_note(&plan, 7, &error) == -1);
	CHECK_HAS(error.text, "job 7");
	make_file(BASE "/7/jail", "gone rw\n");
	CHECK(jail_follow_note(&plan, 7, &error) == -1);
	CHECK_HAS(error.text, "there is no jail 'gone'");
	jail_plan_free(&plan);
}

static void without_a_spool_there_are_no_sessions(void)
{
	struct jail_plan plan;
	struct jail_error error;
	char *login[] = {"jail=" POD "/jail", "spool=none", "tmp=/tmp"};

	CHECK(jail_plan_parse(&plan, 3, login, &error) == 0);
	CHECK(jail_session_begin(&plan, 7, &error) == -1);
	CHECK_HAS(error.text, "spool=PATH");
	CHECK(jail_sessions_end(&plan, 7, &error) == 0);
	jail_plan_free(&plan);
}

/* A session with a child that has a child; all write their ids before they wait. */
static pid_t start_session(struct jail_plan *plan, uint32_t job, int *ids)
{
	int ready[2];
	pid_t session;

	CHECK(pipe(ready) == 0);
	session = fork();
	if (session == 0) {
		struct jail_error error;

		CHECK(jail_session_begin(plan, job, &error) == 0);
		for (int i = 0; i < 2; i++)
			if (fork() != 0)
				break;
		CHECK(write(ready[1], &(pid_t){getpid()}, sizeof(pid_t)) == sizeof(pid_t));
		for (;;)
			pause();
	}
	for (int i = 0; i < 3; i++)
		CHECK(read(ready[0], &ids[i], sizeof(pid_t)) == sizeof(pid_t));
	close(ready[0]);
	close(ready[1]);
	return session;
}

static bool ends(pid_t process)
{
	for (int i = 0; i < 500; i++) {
		if (kill(process, 0) < 0)
			return true;
		waitpid(process, NULL, WNOHANG);
		usleep(10000);
	}
	return false;
}

static void a_job_takes_its_sessions_with_it(void)
{
	struct jail_plan plan;
	struct jail_error error;
	int ids[3], others[3];
	pid_t other;

	make_pod();
	parse(&plan);
	/* Children of the dead are this process' own, or they would stay as zombies. */
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
	start_session(&plan, 7, ids);
	other = start_session(&plan, 8, others);
	CHECK(jail_sessions_end(&plan, 7, &error) == 1);
	for (int i = 0; i < 3; i++)
		CHECK(ends(ids[i]));
	CHECK(kill(other, 0) == 0);
	CHECK(!there_is(BASE "/7"));
	CHECK(jail_sessions_end(&plan, 8, &error) == 1);
	for (int i = 0; i < 3; i++)
		CHECK(ends(others[i]));
	jail_plan_free(&plan);
}

/* A session of so many processes, each the parent of the next or all the children of one; ends only when all of them have ended. */
static void end_many(int count, bool deep)
{
	struct jail_plan plan;
	struct jail_error error;
	int alive[2];
	char byte;

	make_pod();
	parse(&plan);
	CHECK(pipe(alive) == 0);
	if (fork() == 0) {
		CHECK(jail_session_begin(&plan, 7, &error) == 0);
		for (int i = 1; i < count; i++)
			if ((fork() != 0) == deep)
				break;
		alarm(60);
		CHECK(write(alive[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	close(alive[1]);
	for (int i = 0; i < count; i++)
		CHECK(read(alive[0], &byte, 1) == 1);
	CHECK(jail_sessions_end(&plan, 7, &error) == 1);
	alarm(20);
	CHECK(read(alive[0], &byte, 1) == 0);
	jail_plan_free(&plan);
}

/* More than a page of /proc has room for. */
static void a_session_of_many_processes(void)
{
	end_many(900, false);
}

/* Deeper than the stack of who ends it. */
static void a_session_of_a_long_line_of_processes(void)
{
	struct rlimit stack = {262144, 262144};

	CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
	end_many(120, true);
}

static void another_process_of_the_same_id_is_left_alone(void)
{
	struct jail_plan plan;
	struct jail_error error;
	char name[64];

	make_pod();
	parse(&plan);
	CHECK(jail_session_begin(&plan, 7, &error) == 0);
	snprintf(name, sizeof(name), BASE "/7/%d", (int)getpid());
	CHECK(there_is(name));
	make_file(name, "12\n");
	CHECK(jail_sessions_end(&plan, 7, &error) == 0);
	CHECK(!there_is(BASE "/7"));
	jail_plan_free(&plan);
}

int main(void)
{
	CASE(a_session_follows_its_job);
	CASE(the_default_leaves_no_note);
	CASE(a_note_that_is_nonsense_is_refused);
	CASE(without_a_spool_there_are_no_sessions);
	CASE(a_job_takes_its_sessions_with_it);
	CASE(a_session_of_many_processes);
	CASE(a_session_of_a_long_line_of_processes);
	CASE(another_process_of_the_same_id_is_left_alone);
	return finish();
}
