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
	CHECK(plan.bind_count == 0 && plan.device_count == 0);
	jail_plan_free(&plan);
}

static void everything(void)
{
	struct jail_plan plan;
	struct jail_error error;

	CHECK(PARSE("jail=/a", "jail=/mnt/jail", "spool=/s", "tmp=jail", "bind=/x:/y", "bind=/x/z:/w:ro", "bind=/q:/r:rw", "dev=rtc*", "dev=kvm") == 0);
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
	CASE(longest_paths);
	return finish();
}
