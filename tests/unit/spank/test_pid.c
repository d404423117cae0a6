/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * A job has a PID namespace of its own on a node, if its plan says so: what it starts sees nobody else and ends with it.
 */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

static struct jail_error error;
static struct jail_view view;
static int told[2];

static struct jail_plan plan_with(char *word)
{
	char *words[] = {"jail=" JAIL, "spool=" SPOOL, "tmp=" SPOOL "/corral/tmp", "shm=/run/shm/corral", "wait=0", word};
	struct jail_plan plan;

	CHECK(jail_plan_parse(&plan, word ? 6 : 5, words, &error) == 0);
	return plan;
}

static void make_pod_with_proc(void)
{
	make_pod();
	CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
	CHECK(pipe(told) == 0);
}

/* As slurmstepd: joins, enters, forks a task, which acts in the jail. Returns the task, by the pod's number. */
static pid_t step(uint32_t job, void (*act)(void))
{
	struct jail_plan plan = plan_with("pid=job");
	int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	int namespace = jail_pid_open(&plan, job, &error);
	pid_t task;

	CHECK(own >= 0 && namespace >= 0);
	CHECK(jail_enter(&plan, job, NULL, &view, &error) == 0);
	CHECK(there_is("/proc/self"));
	CHECK(jail_pid_lead(namespace) == 0);
	task = fork();
	CHECK(task >= 0);
	if (task == 0) {
		CHECK(getppid() == 0);
		CHECK(jail_strip(&view, &error) == 0);
		act();
		exit(0);
	}
	CHECK(jail_pid_lead(own) == 0);
	jail_plan_free(&plan);
	return task;
}

static void of_step(uint32_t job, void (*act)(void))
{
	int status;
	pid_t stepd = fork();

	CHECK(stepd >= 0);
	if (stepd == 0) {
		pid_t task = step(job, act);

		CHECK(waitpid(task, &status, 0) == task);
		exit(status != 0);
	}
	CHECK(waitpid(stepd, &status, 0) == stepd && status == 0);
}

static int count_processes(void)
{
	struct dirent *entry;
	int count = 0;
	DIR *list = opendir("/proc");

	CHECK(list);
	while ((entry = readdir(list)))
		count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
	closedir(list);
	return count;
}

static void see_nobody_else(void)
{
	/* The first process and itself. */
	CHECK(count_processes() == 2);
	CHECK(there_is("/proc/self/status"));
	/* As in any jail: what a container has not is masked. */
	CHECK(open("/proc/sysrq-trigger", O_WRONLY) == -1);
}

static void a_task_sees_its_job_alone(void)
{
	make_pod_with_proc();
	of_step(1, see_nobody_else);
	of_step(2, see_nobody_else);
	CHECK(jail_pid_remove(1, &error) == 0 && jail_pid_remove(2, &error) == 0);
	CHECK(!there_is(JAIL_TEMPLATES "/pid-1") && !there_is(JAIL_TEMPLATES "/pid-2"));
}

/* Left behind in a session of its own, without a parent; its last words come when it ends. */
static void leave_somebody(void)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(setsid() > 0);
		child = fork();
		CHECK(child >= 0);
		while (child == 0)
			pause();
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child);
}

static void find_somebody(void)
{
	CHECK(count_processes() == 3);
}

static void what_a_step_left_ends_with_the_job(void)
{
	char end;

	make_pod_with_proc();
	of_step(1, leave_somebody);
	of_step(1, find_somebody);
	of_step(2, see_nobody_else);
	close(told[1]);
	CHECK(fcntl(told[0], F_SETFL, O_NONBLOCK) == 0);
	CHECK(read(told[0], &end, 1) == -1 && errno == EAGAIN);
	CHECK(jail_pid_remove(1, &error) == 0);
	/* Nobody has the pipe any more. */
	CHECK(read(told[0], &end, 1) == 0);
	CHECK(jail_pid_remove(1, &error) == 0);
	CHECK(jail_pid_remove(2, &error) == 0);
}

/* As sudo in a job: root, without what jobs never have. */
static void attack_the_first(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
	const uint32_t sudos = 1U << CAP_KILL | 1U << CAP_DAC_OVERRIDE | 1U << CAP_SETUID;
	struct __user_cap_data_struct capabilities[2] = {{.effective = sudos, .permitted = sudos}, {.effective = 0}};

	CHECK(syscall(SYS_capset, &header, capabilities) == 0);
	CHECK(kill(1, SIGKILL) == 0 && kill(1, SIGTERM) == 0);
	CHECK(kill(-1, SIGKILL) == -1 && errno == ESRCH);
	CHECK(open("/proc/1/root", O_PATH) == -1 && errno == EACCES);
	CHECK(open("/proc/1/mem", O_RDONLY) == -1 && errno == EACCES);
	CHECK(ptrace(PTRACE_SEIZE, 1, NULL, NULL) == -1 && errno == EPERM);
}

static void root_of_the_jail_does_nothing_to_the_first_process(void)
{
	make_pod_with_proc();
	of_step(1, attack_the_first);
	of_step(1, see_nobody_else);
	CHECK(jail_pid_remove(1, &error) == 0);
}

static void die_with_the_first(void)
{
	for (;;)
		pause();
}

/* By the kernel, for memory. */
static void one_without_its_first_process_is_made_anew(void)
{
	struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int status;
	int lock;
	pid_t stepd;
	char go;

	make_pod_with_proc();
	stepd = fork();
	CHECK(stepd >= 0);
	if (stepd == 0) {
		pid_t task = step(1, die_with_the_first);

		CHECK(write(told[1], "", 1) == 1);
		CHECK(waitpid(task, &status, 0) == task && WIFSIGNALED(status));
		exit(0);
	}
	CHECK(read(told[0], &go, 1) == 1);
	lock = open(JAIL_TEMPLATES "/pid-1/lock", O_RDWR | O_CLOEXEC);
	CHECK(lock >= 0 && fcntl(lock, F_GETLK, &asked) == 0 && asked.l_type == F_WRLCK && asked.l_pid > 0);
	CHECK(kill(asked.l_pid, SIGKILL) == 0);
	CHECK(waitpid(stepd, &status, 0) == stepd && status == 0);
	of_step(1, see_nobody_else);
	CHECK(jail_pid_remove(1, &error) == 0);
}

static void the_default_is_the_nodes(void)
{
	struct jail_plan plan;

	make_pod_with_proc();
	plan = plan_with(NULL);
	CHECK(jail_pid_open(&plan, 1, &error) == -1 && !error.text[0]);
	CHECK(!there_is(JAIL_TEMPLATES));
	CHECK(jail_pid_remove(1, &error) == 0);
	jail_plan_free(&plan);
}

static void slurmd_that_is_started_anew_leaves_those_of_jobs(void)
{
	make_pod_with_proc();
	of_step(1, leave_somebody);
	jail_templates_forget();
	of_step(1, find_somebody);
	CHECK(jail_pid_remove(1, &error) == 0);
	jail_templates_forget();
	CHECK(!there_is(JAIL_TEMPLATES));
}

static void where_none_can_be_had_nothing_is_run(void)
{
	struct jail_plan plan;

	make_pod_with_proc();
	make_file(JAIL_TEMPLATES, "");
	plan = plan_with("pid=job");
	CHECK(jail_pid_open(&plan, 1, &error) == -1);
	CHECK_HAS(error.text, "spec.slurm.isolation.pid: Node");
	jail_plan_free(&plan);
}

static void come_in(void)
{
	CHECK(there_is("/proc/self/status"));
}

static void step_of_one_job(int number)
{
	int status;
	pid_t task = step(1, come_in);

	(void)number;
	CHECK(waitpid(task, &status, 0) == task && status == 0);
}

static void fifty_steps_at_once_make_one(void)
{
	make_pod_with_proc();
	fifty_at_once(step_of_one_job);
	of_step(1, see_nobody_else);
	CHECK(jail_pid_remove(1, &error) == 0);
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(a_task_sees_its_job_alone);
	CASE(what_a_step_left_ends_with_the_job);
	CASE(root_of_the_jail_does_nothing_to_the_first_process);
	CASE(one_without_its_first_process_is_made_anew);
	CASE(the_default_is_the_nodes);
	CASE(slurmd_that_is_started_anew_leaves_those_of_jobs);
	CASE(where_none_can_be_had_nothing_is_run);
	CASE(fifty_steps_at_once_make_one);
	return finish();
}
