/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * A job has an IPC namespace of its own on a node, which its steps and sessions share and which ends with it.
 */
#include "check.h"

#include <errno.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/shm.h>

static struct jail_error error;
static struct jail_view view;

#define KEY 0x636f7272
#define QUEUE "/corral-test"

static struct jail_plan plan_with(char *word)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "wait=0", word};
	struct jail_plan plan;

	CHECK(jail_plan_parse(&plan, word ? 6 : 5, words, &error) == 0);
	return plan;
}

/* In a child that has joined, for each is a process of its own. */
static void of_job(uint32_t job, char *word, void (*act)(void))
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		struct jail_plan plan = plan_with(word);

		CHECK(jail_ipc_join(&plan, job, &error) == 0);
		act();
		jail_plan_free(&plan);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void leave_memory(void)
{
	CHECK(shmget(KEY, 4096, IPC_CREAT | IPC_EXCL | 0666) >= 0);
}

static void find_memory(void)
{
	CHECK(shmget(KEY, 4096, 0) >= 0);
}

static void find_none(void)
{
	CHECK(shmget(KEY, 4096, 0) == -1 && errno == ENOENT);
}

static void steps_of_a_job_share_what_others_do_not_see(void)
{
	make_pod();
	of_job(1, NULL, leave_memory);
	of_job(1, NULL, find_memory);
	of_job(2, NULL, find_none);
	of_job(2, NULL, leave_memory);
	find_none();
}

static void it_ends_with_the_job(void)
{
	make_pod();
	of_job(1, NULL, leave_memory);
	CHECK(there_is(JAIL_TEMPLATES "/ipc-1"));
	CHECK(jail_ipc_remove(1, &error) == 0);
	CHECK(!there_is(JAIL_TEMPLATES "/ipc-1"));
	/* As a job that is put back into the queue. */
	of_job(1, NULL, find_none);
	CHECK(jail_ipc_remove(1, &error) == 0);
	CHECK(jail_ipc_remove(1, &error) == 0);
}

static void the_administrator_shares_the_nodes(void)
{
	make_pod();
	CHECK(unshare(CLONE_NEWIPC) == 0);
	of_job(1, "ipc=node", leave_memory);
	of_job(2, "ipc=node", find_memory);
	of_job(0, NULL, find_memory);
	find_memory();
	CHECK(!there_is(JAIL_TEMPLATES));
	CHECK(jail_ipc_remove(1, &error) == 0);
}

static void slurmd_that_is_started_anew_leaves_those_of_jobs(void)
{
	make_pod();
	of_job(1, NULL, leave_memory);
	jail_templates_forget();
	of_job(1, NULL, find_memory);
	CHECK(jail_ipc_remove(1, &error) == 0);
	jail_templates_forget();
	CHECK(!there_is(JAIL_TEMPLATES));
}

static void who_was_interrupted_left_a_file(void)
{
	make_pod();
	of_job(2, NULL, find_none);
	make_file(JAIL_TEMPLATES "/ipc-1", "");
	of_job(1, NULL, leave_memory);
	of_job(1, NULL, find_memory);
	make_file(JAIL_TEMPLATES "/ipc-3", "");
	CHECK(jail_ipc_remove(3, &error) == 0 && !there_is(JAIL_TEMPLATES "/ipc-3"));
}

static void where_none_can_be_had_nothing_is_run(void)
{
	struct jail_plan plan;

	make_pod();
	make_file(JAIL_TEMPLATES, "");
	plan = plan_with(NULL);
	CHECK(jail_ipc_join(&plan, 1, &error) == -1);
	CHECK_HAS(error.text, "spec.slurm.isolation.ipc: Node");
	jail_plan_free(&plan);
}

static void enter_and_make_a_queue(void)
{
	struct jail_plan plan = plan_with(NULL);
	mqd_t queue;

	CHECK(jail_enter(&plan, 1, NULL, &view, &error) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	queue = mq_open(QUEUE, O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
	CHECK(queue >= 0);
	CHECK(there_is("/dev/mqueue" QUEUE));
	mq_close(queue);
	jail_plan_free(&plan);
}

static void enter_and_find_no_queue(void)
{
	struct jail_plan plan = plan_with(NULL);

	CHECK(jail_enter(&plan, 2, NULL, &view, &error) == 0);
	CHECK(jail_strip(&view, &error) == 0);
	CHECK(there_is("/dev/mqueue") && !there_is("/dev/mqueue" QUEUE));
	jail_plan_free(&plan);
}

static void the_jail_shows_its_message_queues(void)
{
	make_pod();
	make_dev();
	make_directory(POD "/dev/mqueue", 0755);
	CHECK(mount("mqueue", POD "/dev/mqueue", "mqueue", 0, NULL) == 0);
	show_dev();
	of_job(1, NULL, enter_and_make_a_queue);
	of_job(2, NULL, enter_and_find_no_queue);
	CHECK(!there_is("/dev/mqueue" QUEUE));
	/* A dressed jail of before is still good: a job's namespace is no mount of the pod's. */
	of_job(2, NULL, enter_and_find_no_queue);
}

static void join_and_make_memory(int number)
{
	struct jail_plan plan = plan_with(NULL);

	CHECK(jail_ipc_join(&plan, 1, &error) == 0);
	CHECK(shmget(KEY + number, 4096, IPC_CREAT | IPC_EXCL | 0666) >= 0);
	jail_plan_free(&plan);
}

static void fifty_steps_at_once_make_one(void)
{
	make_pod();
	fifty_at_once(join_and_make_memory);
	for (int i = 0; i < FIFTY; i++) {
		struct jail_plan plan = plan_with(NULL);

		CHECK(jail_ipc_join(&plan, 1, &error) == 0);
		CHECK(shmget(KEY + i, 4096, 0) >= 0);
		jail_plan_free(&plan);
	}
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(steps_of_a_job_share_what_others_do_not_see);
	CASE(it_ends_with_the_job);
	CASE(the_administrator_shares_the_nodes);
	CASE(slurmd_that_is_started_anew_leaves_those_of_jobs);
	CASE(who_was_interrupted_left_a_file);
	CASE(where_none_can_be_had_nothing_is_run);
	CASE(the_jail_shows_its_message_queues);
	CASE(fifty_steps_at_once_make_one);
	return finish();
}
