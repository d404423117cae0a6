/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include "check.h"

#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>

static void refuses(const char *path, const char *part)
{
	struct jail_error error;

	CHECK(jail_await(path, 5, 0, &error) == -1);
	CHECK_HAS(error.text, part);
}

static void a_jail(void)
{
	struct jail_error error;
	int root;

	make_pod();
	root = jail_open(JAIL, &error);
	CHECK(root >= 0);
	close(root);
}

static void not_there(void)
{
	make_pod();
	refuses(POD "/none", "cannot be opened as a directory");
	refuses(POD "/iam-pod", "cannot be opened as a directory");
}

static void a_link_to_a_jail(void)
{
	make_pod();
	CHECK(symlink(JAIL, POD "/link") == 0);
	refuses(POD "/link", "cannot be opened as a directory");
}

static void of_somebody_else(void)
{
	make_pod();
	CHECK(chown(JAIL, 1000, 0) == 0);
	refuses(JAIL, "belongs to uid 1000");
}

static void writable_by_others(void)
{
	make_pod();
	CHECK(chmod(JAIL, 0775) == 0);
	refuses(JAIL, "mode 0775");
	CHECK(chmod(JAIL, 0757) == 0);
	refuses(JAIL, "mode 0757");
}

static void without_marker(void)
{
	make_pod();
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	refuses(JAIL, "no marker file");
}

static void marker_that_is_a_link(void)
{
	make_pod();
	CHECK(rename(JAIL "/etc/corral-jail", JAIL "/etc/real") == 0);
	CHECK(symlink("real", JAIL "/etc/corral-jail") == 0);
	refuses(JAIL, "marker file");
}

static void marker_of_a_user(void)
{
	make_pod();
	CHECK(chown(JAIL "/etc/corral-jail", 1000, 1000) == 0);
	refuses(JAIL, "not a plain file of root");
}

/* A file server that never answers: FUSE without anybody who reads the requests. */
static void that_hangs(void)
{
	char options[96];
	int server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct jail_error error;

	if (server < 0) {
		printf("skipped: no /dev/fuse to hang on\n");
		return;
	}
	make_pod();
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
	CHECK(mount("nobody", JAIL, "fuse", 0, options) == 0);
	CHECK(jail_await(JAIL, 1, 0, &error) == -1);
	CHECK_HAS(error.text, "did not respond within 1 s");
	close(server);
}

/* Answers each request with the error; the greeting alone as it should be. */
static void serve(int server, int error)
{
	union {
		struct fuse_in_header header;
		char bytes[FUSE_MIN_READ_BUFFER * 2];
	} request;

	while (read(server, &request, sizeof(request)) > 0) {
		struct {
			struct fuse_out_header header;
			struct fuse_init_out greeting;
		} answer = {.header = {.unique = request.header.unique, .len = sizeof(answer.header), .error = -error}};

		if (request.header.opcode == FUSE_INIT) {
			answer.header.error = 0;
			answer.header.len = sizeof(answer);
			answer.greeting = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
		}
		if (request.header.opcode != FUSE_FORGET && write(server, &answer, answer.header.len) < 0)
			break;
	}
	_exit(0);
}

/* As a file server that failed over and forgot its clients' handles, or a disk that fails. */
static void that_answers_with_errors(void)
{
	static const struct {
		int error;
		const char *text;
	} kinds[] = {{ESTALE, "Stale file handle"}, {EIO, "Input/output error): its mount on this node is dead"}, {ENOTCONN, "not connected"}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char options[96];
		int server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
		pid_t child;

		if (server < 0) {
			printf("skipped: no /dev/fuse to fail on\n");
			return;
		}
		make_pod();
		snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
		CHECK(mount("stale", JAIL, "fuse", 0, options) == 0);
		child = fork();
		if (child == 0)
			serve(server, kinds[i].error);
		refuses(JAIL, kinds[i].text);
		CHECK(umount2(JAIL, MNT_DETACH) == 0);
		close(server);
		CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
		CHECK(umount2(POD, MNT_DETACH) == 0);
	}
}

static void that_comes_back_in_time(void)
{
	struct jail_error error;
	pid_t child;

	make_pod();
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	child = fork();
	if (child == 0) {
		sleep(1);
		make_file(JAIL "/etc/corral-jail", "{}\n");
		_exit(0);
	}
	CHECK(jail_await(JAIL, 5, 10, &error) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	CHECK(jail_await(JAIL, 5, 1, &error) == -1);
	CHECK_HAS(error.text, "no marker file");
}

static void room_for_files(void)
{
	static const char *const kinds[] = {"size=512k", "nr_inodes=8"};
	struct jail_error error;

	make_pod();
	CHECK(jail_has_room(JAIL, 5, &error) == 0);
	CHECK(mkdir(JAIL "/home", 0755) == 0 || errno == EEXIST);
	CHECK(jail_has_room(JAIL, 5, &error) == 0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		CHECK(mount("home", JAIL "/home", "tmpfs", 0, kinds[i]) == 0);
		CHECK(jail_has_room(JAIL, 5, &error) == -1);
		CHECK_HAS(error.text, JAIL "/home is full");
		/* Entered all the same. */
		CHECK(jail_await(JAIL, 5, 0, &error) == 0);
		CHECK(umount(JAIL "/home") == 0);
	}
	CHECK(jail_has_room(JAIL, 5, &error) == 0);
}

static void image_of_the_marker(void)
{
	char image[64];
	char small[6];

	make_pod();
	CHECK(jail_image(JAIL, image, sizeof(image)) == -1 && image[0] == '\0');
	make_file(JAIL "/etc/corral-jail", "{\"version\": 1, \"image\": \"localhost/corral/jail:trixie\"}\n");
	CHECK(jail_image(JAIL, image, sizeof(image)) == 0 && strcmp(image, "localhost/corral/jail:trixie") == 0);
	CHECK(jail_image(JAIL, small, sizeof(small)) == 0 && strcmp(small, "local") == 0);
	make_file(JAIL "/etc/corral-jail", "{\"image\": \"a\nLD_PRELOAD=x\"}\n");
	CHECK(jail_image(JAIL, image, sizeof(image)) == 0 && strcmp(image, "a") == 0);
	CHECK(jail_image(POD "/nowhere", image, sizeof(image)) == -1);
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(a_jail);
	CASE(not_there);
	CASE(a_link_to_a_jail);
	CASE(of_somebody_else);
	CASE(writable_by_others);
	CASE(without_marker);
	CASE(marker_that_is_a_link);
	CASE(marker_of_a_user);
	CASE(that_hangs);
	CASE(that_answers_with_errors);
	CASE(that_comes_back_in_time);
	CASE(room_for_files);
	CASE(image_of_the_marker);
	return finish();
}
