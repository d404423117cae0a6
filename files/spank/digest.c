/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What is mounted, as one number, to know whether it still is what it was. Since Linux 6.8 the kernel lists the ids of mounts, which are never given
 * again, and reports how each is mounted: 1 us per mount. The text of mountinfo takes four times as long, and every entry checks it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* FNV-1a. Only root of the pod controls the input. */
void jail_digest_add(struct jail_digest *digest, const void *data, size_t size)
{
	const unsigned char *byte = data;

	for (size_t i = 0; i < size; i++)
		digest->value = (digest->value ^ byte[i]) * 0x100000001b3;
}

/* From linux/mount.h of Linux 6.8, which may be newer than the headers that this is built with. */
#ifndef __NR_statmount
#define __NR_statmount 457
#define __NR_listmount 458
#endif
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif
#define ALL_OF_THIS_ROOT UINT64_MAX /* LSMT_ROOT */
#define HOW_IT_IS_MOUNTED 3	    /* STATMOUNT_SB_BASIC | STATMOUNT_MNT_BASIC */
#define AT_ONCE 256

struct question { /* mnt_id_req */
	uint32_t size;
	uint32_t spare;
	uint64_t id;
	uint64_t more;
};

struct mount_info { /* statmount, as far as it is asked for */
	uint32_t size;
	uint32_t options;
	uint64_t mask;
	uint32_t device[2];
	uint64_t magic;
	uint32_t flags;
	uint32_t type;
	uint64_t id;
	uint64_t parent;
	uint32_t old_ids[2];
	uint64_t attributes;
	uint64_t propagation;
	uint64_t peers;
	uint64_t master;
};

/* Of the mount that has this directory for its root; 0: there is none. */
static uint64_t id_of(const char *path)
{
	struct statx status;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_MNT_ID_UNIQUE, &status) < 0 ||
	    !(status.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return 0;
	return status.stx_mnt_id;
}

/* All mounts but that one and those on it. -1 with errno: this kernel does not support it. */
static int add_ids_without(uint64_t left_out, struct jail_digest *digest)
{
	uint64_t ids[AT_ONCE];
	struct question question = {.size = sizeof(question), .id = ALL_OF_THIS_ROOT};
	struct mount_info info;
	long count;

	do {
		count = syscall(__NR_listmount, &question, ids, AT_ONCE, 0);
		for (long i = 0; i < count; i++) {
			struct question one = {.size = sizeof(one), .id = ids[i], .more = HOW_IT_IS_MOUNTED};

			question.more = ids[i];
			memset(&info, 0, sizeof(info));
			/* One that went meanwhile is not there. */
			if (syscall(__NR_statmount, &one, &info, sizeof(info), 0) < 0 && errno != ENOENT)
				return -1;
			if (info.id && (!left_out || (info.id != left_out && info.parent != left_out)))
				jail_digest_add(digest, &info, sizeof(info));
		}
	} while (count == AT_ONCE);
	return count < 0 ? -1 : 0;
}

/* The same by its path. It may be mounted between the check for it and the list, where it would count. */
static int add_ids(const char *without, struct jail_digest *digest)
{
	const struct jail_digest before = *digest;
	uint64_t left_out;
	int result;

	do {
		*digest = before;
		left_out = id_of(without);
		result = add_ids_without(left_out, digest);
	} while (result == 0 && id_of(without) != left_out);
	return result;
}

/* Is that mount point this path, or below it? */
static bool lies_in(const char *point, size_t length, const char *path)
{
	size_t size = path ? strlen(path) : 0;

	return size > 0 && length >= size && memcmp(point, path, size) == 0 && (length == size || point[size] == '/');
}

/* A line of mountinfo(5): its fifth field is the mount point. Ids are in it too: a volume that was mounted anew is another one. */
static void add_line(const struct jail_plan *plan, const char *line, size_t length, struct jail_digest *digest)
{
	const char *const shown[] = {plan->jail, plan->spool, "/dev", "/proc", "/sys", "/opt/corral", "/etc"};
	const char *point = line;
	size_t size;

	for (int field = 0; field < 4; field++) {
		point = memchr(point, ' ', length - (size_t)(point - line));
		if (!point)
			return;
		point++;
	}
	size = strcspn(point, " \n");
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		if (lies_in(point, size, shown[i])) {
			jail_digest_add(digest, line, length);
			return;
		}
}

/* Without stdio, which reads files of /proc by the kilobyte. NULL with errno; ends with a zero byte. */
static char *read_mounts(void)
{
	size_t room = 64 * 1024;
	size_t length = 0;
	ssize_t count = -1;
	char *text = malloc(room);
	int file = open("/proc/thread-self/mountinfo", O_RDONLY | O_CLOEXEC);

	while (text && file >= 0 && (count = read(file, text + length, room - length - 1)) > 0) {
		length += (size_t)count;
		if (room - length < 4096) {
			char *grown = realloc(text, room *= 2);

			if (!grown)
				break;
			text = grown;
		}
	}
	if (file >= 0)
		close(file);
	if (count == 0) {
		text[length] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

static int add_lines(const struct jail_plan *plan, struct jail_digest *digest)
{
	char *mounts = read_mounts();

	if (!mounts)
		return -1;
	for (char *line = mounts; *line;) {
		size_t length = strcspn(line, "\n");

		add_line(plan, line, length, digest);
		line += length + (line[length] == '\n');
	}
	free(mounts);
	return 0;
}

/* What is mounted at "without" and right below it does not count; -1 with errno. A kernel that lists ids lists all mounts and not only those
 * that a jail shows: where others come and go, a template is made anew more often than it had to be. */
int jail_digest_add_mounts(const struct jail_plan *plan, const char *without, struct jail_digest *digest)
{
	struct jail_digest before = *digest;

	if (add_ids(without, digest) == 0)
		return 0;
	*digest = before;
	return add_lines(plan, digest);
}
