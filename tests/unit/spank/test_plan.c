/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include "check.h"

static int parse(struct jail_plan *plan, struct jail_error *error, char **words)
{
	int count = 0;

	while (words[count])
		count++;
	error->text[0] = '\0';
	return jail_plan_parse(plan, count, words, error);
}

#define PARSE(...) parse(&plan, &error, (char *[]){__VA_ARGS__, NULL})

static void defaults(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail=/mnt/jail") == 0);
	CHECK(strcmp(plan.jail, "/mnt/jail") == 0);
	CHECK(strcmp(plan.spool, "/var/spool/slurmd") == 0);
	CHECK(strcmp(plan.tmp, "/var/spool/slurmd/corral/tmp") == 0);
	CHECK(strcmp(plan.shm, "/dev/shm/corral") == 0 && plan.overlay == NULL && plan.timeout == 10 && plan.wait == 20);
	CHECK(strcmp(plan.name, "default") == 0 && plan.mode == JAIL_RW);
	CHECK(plan.bind_count == 0 && plan.device_count == 0 && plan.outsider_count == 0);
	CHECK(plan.ipc_of_job && !plan.pid_of_job);
	jail_plan_free(&plan);
}

static void everything(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail=/a", "jail=/mnt/jail", "spool=/s", "tmp=jail", "bind=/x:/y", "bind=/x/z:/w:ro", "bind=/q:/r:rw", "dev=rtc*", "dev=kvm", "ipc=node", "pid=job") == 0);
	CHECK(!plan.ipc_of_job && plan.pid_of_job);
	CHECK(strcmp(plan.jail, "/mnt/jail") == 0);
	CHECK(strcmp(plan.spool, "/s") == 0);
	CHECK(plan.tmp == NULL);
	CHECK(plan.bind_count == 3);
	CHECK(strcmp(plan.binds[0].source, "/x") == 0 && strcmp(plan.binds[0].target, "/y") == 0 && !plan.binds[0].read_only);
	CHECK(strcmp(plan.binds[1].source, "/x/z") == 0 && strcmp(plan.binds[1].target, "/w") == 0 && plan.binds[1].read_only);
	CHECK(!plan.binds[2].read_only);
	CHECK(plan.device_count == 2 && strcmp(plan.devices[0], "rtc*") == 0);
	jail_plan_free(&plan);
}

static void words_of_the_plugin(void)
{
	static const char lines[] = "# required /x/spank_corral_jail.so jail=/commented\n\nrequired /x/other.so jail=/others\n"
				    "required\t/x/spank_corral_jail.so  jail=/mnt/jail wait=7 timeout=8\nrequired /x/spank_corral_jail.so jail=/second\n";
	char path[] = "/tmp/corral-plugstack-XXXXXX";
	char *more[] = {"wait=0", "nonsense"};
	struct jail_plan plan;
	struct jail_error error;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, lines, 10) == 10);
	CHECK(jail_plan_of_plugin(&plan, path, 0, NULL, &error) == -1);
	CHECK_HAS(error.text, "has no line of spank_corral_jail.so (it can be read)");
	jail_plan_free(&plan);
	CHECK(pwrite(fd, lines, sizeof(lines) - 1, 0) == sizeof(lines) - 1);
	CHECK(jail_plan_of_plugin(&plan, path, 1, more, &error) == 0);
	CHECK(strcmp(plan.jail, "/mnt/jail") == 0 && plan.wait == 0 && plan.timeout == 8);
	jail_plan_free(&plan);
	CHECK(jail_plan_of_plugin(&plan, path, 2, more, &error) == -1);
	CHECK_HAS(error.text, "'nonsense' is not an argument");
	jail_plan_free(&plan);
	close(fd);
	unlink(path);
	CHECK(jail_plan_of_plugin(&plan, path, 0, NULL, &error) == -1);
	CHECK_HAS(error.text, "No such file or directory");
	jail_plan_free(&plan);
}

static void refused(void)
{
	static const char *const cases[][2] = {
		{"jail", "is not an argument"},
		{"jail=", "jail="},
		{"jail=mnt", "not an absolute path"},
		{"jail=/", "not an absolute path"},
		{"jail=/mnt/", "not an absolute path"},
		{"jail=/mnt/../etc", "not an absolute path"},
		{"jail=/mnt/./jail", "not an absolute path"},
		{"jail=//mnt", "not an absolute path"},
		{"spool=x", "spool=x"},
		{"tmp=x", "tmp=x"},
		{"ipc=own", "ipc=own is neither job nor node"},
		{"pid=own", "pid=own is neither job nor node"},
		{"bind=/a", "SOURCE:TARGET"},
		{"bind=/a:/b:wo", "SOURCE:TARGET"},
		{"bind=/a:/b:ro:ro", "SOURCE:TARGET"},
		{"bind=a:/b", "two absolute paths"},
		{"bind=/a:/b/..", "two absolute paths"},
		{"bind=/a:", "two absolute paths"},
		{"dev=", "not a name of /dev"},
		{"dev=a/b", "not a name of /dev"},
		{"dev=..", "not a name of /dev"},
		{"option=1", "'option=1' is not an argument"},
		{"shm=x", "shm=x"},
		{"overlay=none", "overlay=none"},
		{"timeout=0", "timeout=0"},
		{"timeout=-1", "timeout=-1"},
		{"timeout=9999", "timeout=9999"},
		{"timeout=1s", "timeout=1s"},
		{"wait=-1", "wait=-1"},
		{"no-jail=demo", "list of user ids"},
		{"no-jail=1,", "list of user ids"},
		{"no-jail=-1", "list of user ids"},
		{"no-jail=4294967295", "list of user ids"},
		{"no-jail=1,,2", "list of user ids"},
		{"jail.=/a", "not a jail's name"},
		{"jail.a/b=/a", "not a jail's name"},
		{"jail.a=b", "not an absolute path"},
		{"partition.gpu=", "PARTITION=JAIL"},
		{"partition.gpu=big", "there is no jail.big="},
		{"jailx=/a", "is not an argument"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct jail_plan plan;
		struct jail_error error;
		char word[64];

		snprintf(word, sizeof(word), "%s", cases[i][0]);
		CHECK(PARSE("jail=/mnt/jail", word) == -1);
		CHECK_HAS(error.text, cases[i][1]);
		jail_plan_free(&plan);
	}
}

static void jail_is_required(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("spool=/s") == -1);
	CHECK_HAS(error.text, "jail=PATH is missing");
	jail_plan_free(&plan);
}

static void several_jails(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail.big=/mnt/jails/big", "jail=/mnt/jail", "partition.gpu=big", "jail.old-1.2=/mnt/jails/old", "partition.cpu=default") == 0);
	CHECK(strcmp(plan.name, "default") == 0 && strcmp(plan.jail, "/mnt/jail") == 0);
	CHECK(jail_plan_choose(&plan, "big", &error) == 0);
	CHECK(strcmp(plan.name, "big") == 0 && strcmp(plan.jail, "/mnt/jails/big") == 0);
	CHECK(jail_plan_choose(&plan, "default", &error) == 0 && strcmp(plan.jail, "/mnt/jail") == 0);
	CHECK(jail_plan_choose(&plan, "huge", &error) == -1);
	CHECK_HAS(error.text, "there is no jail 'huge': choose one of big, default, old-1.2");
	CHECK(strcmp(jail_plan_of_partition(&plan, "gpu"), "big") == 0);
	CHECK(jail_plan_of_partition(&plan, "gp") == NULL);
	jail_plan_free(&plan);
}

static void overlays_want_room(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail=/mnt/jail") == 0);
	CHECK(jail_plan_choose_mode(&plan, JAIL_OVERLAY, &error) == -1);
	CHECK_HAS(error.text, "overlay=");
	CHECK(jail_plan_choose_mode(&plan, JAIL_RO, &error) == 0 && plan.mode == JAIL_RO);
	jail_plan_free(&plan);
}

static void who_may_leave(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail=/mnt/jail", "no-jail=0,1000", "no-jail=7") == 0);
	CHECK(jail_plan_lets_out(&plan, 0) && jail_plan_lets_out(&plan, 1000) && jail_plan_lets_out(&plan, 7));
	CHECK(!jail_plan_lets_out(&plan, 100) && !jail_plan_lets_out(&plan, 1001));
	jail_plan_free(&plan);
	CHECK(PARSE("jail=/mnt/jail") == 0);
	CHECK(!jail_plan_lets_out(&plan, 0));
	jail_plan_free(&plan);
}

static void longest_paths(void)
{
	struct jail_plan plan;
	struct jail_error error;
	char word[5000] = "jail=/";

	memset(word + 6, 'x', 4090);
	word[6 + 4090] = '\0';
	CHECK(PARSE(word) == 0);
	jail_plan_free(&plan);
	memset(word + 6, 'x', 4900);
	word[6 + 4900] = '\0';
	CHECK(PARSE(word) == -1);
	jail_plan_free(&plan);
}

int main(void)
{
	CASE(defaults);
	CASE(everything);
	CASE(refused);
	CASE(jail_is_required);
	CASE(words_of_the_plugin);
	CASE(several_jails);
	CASE(overlays_want_room);
	CASE(who_may_leave);
	CASE(longest_paths);
	return finish();
}
