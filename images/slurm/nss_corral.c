/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Name service of the pods: users and groups of the jail's passwd and group, for programs that have capabilities or an identity of the pod. Root in the jail
 * can put anything in the place of these files, so
 * - no link is followed, and what is no plain file is not there: opened by O_PATH, then by descriptor without waiting, so no pipe, device or lease holds
 *   anybody up;
 * - a file is read up to FILE_MOST, and a line up to LINE_MOST, however they grow meanwhile;
 * - no account gets an id of the pod's own accounts or one that means "leave it" or "none" to system calls and Slurm, nor a name of one; nor a name or a home
 *   that means something else where it is put into a command or a path.
 * Lines are read by the C library's own parser.
 *
 * /var/lib/extrausers/passwd and group are plain files (slurmstepd's root has them so, files/spank/view.c), or links to where the jail has its own.
 *
 * gcc -O2 -fPIC -shared -o libnss_corral.so.2 nss_corral.c
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <nss.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef NAMES
#define NAMES "/var/lib/extrausers/"
#endif
#ifndef OF_THE_POD
#define OF_THE_POD "/etc/"
#endif
#define FILE_MOST (32 << 20)
#define LINE_MOST (1 << 20)

/* Each directory on the way, and the file, by no link. A descriptor that only names it. */
static int reach(const char *path)
{
	char name[NAME_MAX + 1];
	int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	while (at >= 0 && *path) {
		size_t length = strcspn(path, "/");
		int next;

		if (length > NAME_MAX) {
			close(at);
			return -1;
		}
		memcpy(name, path, length);
		name[length] = 0;
		path += length + strspn(path + length, "/");
		if (!length)
			continue;
		next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC | (*path ? O_DIRECTORY : 0));
		close(at);
		at = next;
	}
	return at;
}

/* NULL: there is no such plain file of a size that is read. */
static FILE *open_names(const char *path)
{
	char link[PATH_MAX];
	ssize_t length = readlink(path, link, sizeof(link) - 1);
	struct stat status;
	FILE *stream = NULL;
	int place, file = -1;

	if (length > 0)
		link[length] = 0;
	place = reach(length > 0 ? link : path);
	if (place >= 0 && fstat(place, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= FILE_MOST) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", place);
		file = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	if (place >= 0)
		close(place);
	if (file >= 0 && !(stream = fdopen(file, "re")))
		close(file);
	return stream;
}

static bool is_id(unsigned id)
{
	return id >= 500 && (id <= 60000 || id > 65535) && id < 0xfffffffe;
}

static bool is_plain_name(const char *name)
{
	size_t length = strlen(name);

	if (!length || strchr("-+~.", name[0]) || strspn(name, "0123456789") == length)
		return false;
	for (; *name; name++)
		if (iscntrl((unsigned char)*name) || strchr(" /,", *name))
			return false;
	return true;
}

static bool is_path(const char *path)
{
	const char *part = path;

	if (path[0] != '/')
		return false;
	for (; *path; path++)
		if (iscntrl((unsigned char)*path))
			return false;
	while ((part = strstr(part, "/.."))) {
		part += 3;
		if (!*part || *part == '/')
			return false;
	}
	return true;
}

/* Two of each: what is taken from a line, and who has it among the pod's own. */
#define KIND(kind, structure, prefix, read, file)                                                                                                              \
	static bool is_pods_##kind(const char *name)                                                                                                           \
	{                                                                                                                                                      \
		FILE *stream = fopen(OF_THE_POD file, "re");                                                                                                   \
		struct structure entry, *found;                                                                                                                \
		char buffer[4096];                                                                                                                             \
		bool is = false;                                                                                                                               \
                                                                                                                                                               \
		while (stream && !is && read(stream, &entry, buffer, sizeof(buffer), &found) == 0)                                                             \
			is = strcmp(entry.prefix##_name, name) == 0;                                                                                           \
		if (stream)                                                                                                                                    \
			fclose(stream);                                                                                                                        \
		return is;                                                                                                                                     \
	}                                                                                                                                                      \
                                                                                                                                                               \
	/* The next that is taken. ERANGE asks for a larger buffer, as long as a line may be that long. */                                                     \
	static enum nss_status next_##kind(FILE *stream, struct structure *entry, char *buffer, size_t size, int *error)                                       \
	{                                                                                                                                                      \
		struct structure *found;                                                                                                                       \
		int result;                                                                                                                                    \
                                                                                                                                                               \
		while (ftello(stream) <= FILE_MOST && (result = read(stream, entry, buffer, size, &found)) != ENOENT) {                                        \
			if (result == ERANGE && size < LINE_MOST) {                                                                                            \
				*error = ERANGE;                                                                                                               \
				return NSS_STATUS_TRYAGAIN;                                                                                                    \
			}                                                                                                                                      \
			if (result != 0)                                                                                                                       \
				break;                                                                                                                         \
			if (takes_##kind(entry))                                                                                                               \
				return NSS_STATUS_SUCCESS;                                                                                                     \
		}                                                                                                                                              \
		*error = ENOENT;                                                                                                                               \
		return NSS_STATUS_NOTFOUND;                                                                                                                    \
	}                                                                                                                                                      \
                                                                                                                                                               \
	static enum nss_status find_##kind(const char *name, unsigned id, struct structure *entry, char *buffer, size_t size, int *error)                      \
	{                                                                                                                                                      \
		FILE *stream = open_names(NAMES file);                                                                                                         \
		enum nss_status status;                                                                                                                        \
                                                                                                                                                               \
		if (!stream) {                                                                                                                                 \
			*error = ENOENT;                                                                                                                       \
			return NSS_STATUS_UNAVAIL;                                                                                                             \
		}                                                                                                                                              \
		do                                                                                                                                             \
			status = next_##kind(stream, entry, buffer, size, error);                                                                              \
		while (status == NSS_STATUS_SUCCESS &&                                                                                                         \
		       ((name ? strcmp(entry->prefix##_name, name) != 0 : id_of_##kind(entry) != id) || is_pods_##kind(entry->prefix##_name)));                \
		fclose(stream);                                                                                                                                \
		return status;                                                                                                                                 \
	}                                                                                                                                                      \
                                                                                                                                                               \
	static FILE *all_##kind;

static unsigned id_of_user(const struct passwd *entry)
{
	return entry->pw_uid;
}

/* The group "users" (100) is some sites' for all. */
static bool takes_user(const struct passwd *entry)
{
	return is_id(entry->pw_uid) && (is_id(entry->pw_gid) || entry->pw_gid == 100) && is_plain_name(entry->pw_name) && is_path(entry->pw_dir);
}

static unsigned id_of_group(const struct group *entry)
{
	return entry->gr_gid;
}

static bool takes_group(const struct group *entry)
{
	return is_id(entry->gr_gid) && is_plain_name(entry->gr_name);
}

KIND(user, passwd, pw, fgetpwent_r, "passwd")
KIND(group, group, gr, fgetgrent_r, "group")

enum nss_status _nss_corral_getpwnam_r(const char *name, struct passwd *entry, char *buffer, size_t size, int *error)
{
	return find_user(name, 0, entry, buffer, size, error);
}

enum nss_status _nss_corral_getpwuid_r(uid_t id, struct passwd *entry, char *buffer, size_t size, int *error)
{
	return find_user(NULL, id, entry, buffer, size, error);
}

enum nss_status _nss_corral_getgrnam_r(const char *name, struct group *entry, char *buffer, size_t size, int *error)
{
	return find_group(name, 0, entry, buffer, size, error);
}

enum nss_status _nss_corral_getgrgid_r(gid_t id, struct group *entry, char *buffer, size_t size, int *error)
{
	return find_group(NULL, id, entry, buffer, size, error);
}

/* All of them, one after the other: the C library lets one thread in at a time. */
static enum nss_status start(FILE **all, const char *path)
{
	if (*all)
		fclose(*all);
	*all = path ? open_names(path) : NULL;
	return *all || !path ? NSS_STATUS_SUCCESS : NSS_STATUS_UNAVAIL;
}

enum nss_status _nss_corral_setpwent(int stay)
{
	(void)stay;
	return start(&all_user, NAMES "passwd");
}

enum nss_status _nss_corral_endpwent(void)
{
	return start(&all_user, NULL);
}

enum nss_status _nss_corral_getpwent_r(struct passwd *entry, char *buffer, size_t size, int *error)
{
	if (!all_user && start(&all_user, NAMES "passwd") != NSS_STATUS_SUCCESS) {
		*error = ENOENT;
		return NSS_STATUS_UNAVAIL;
	}
	return next_user(all_user, entry, buffer, size, error);
}

enum nss_status _nss_corral_setgrent(int stay)
{
	(void)stay;
	return start(&all_group, NAMES "group");
}

enum nss_status _nss_corral_endgrent(void)
{
	return start(&all_group, NULL);
}

enum nss_status _nss_corral_getgrent_r(struct group *entry, char *buffer, size_t size, int *error)
{
	if (!all_group && start(&all_group, NAMES "group") != NSS_STATUS_SUCCESS) {
		*error = ENOENT;
		return NSS_STATUS_UNAVAIL;
	}
	return next_group(all_group, entry, buffer, size, error);
}

/* The groups whose members have that name, beside "main". "limit": how many at most, or none. */
enum nss_status _nss_corral_initgroups_dyn(const char *user, gid_t main, long *count, long *size, gid_t **groups, long limit, int *error)
{
	FILE *stream = open_names(NAMES "group");
	size_t room = 4096;
	char *buffer = stream ? malloc(room) : NULL;
	enum nss_status status = buffer ? NSS_STATUS_SUCCESS : NSS_STATUS_UNAVAIL;
	struct group entry;

	while (status == NSS_STATUS_SUCCESS && (limit <= 0 || *count < limit)) {
		char **member;

		status = next_group(stream, &entry, buffer, room, error);
		if (status == NSS_STATUS_TRYAGAIN) {
			char *larger = realloc(buffer, room * 4);

			if (!larger)
				break;
			buffer = larger;
			room *= 4;
			status = NSS_STATUS_SUCCESS;
			continue;
		}
		if (status != NSS_STATUS_SUCCESS || entry.gr_gid == main)
			continue;
		for (member = entry.gr_mem; *member && strcmp(*member, user) != 0; member++)
			;
		if (!*member || is_pods_group(entry.gr_name))
			continue;
		if (*count == *size) {
			gid_t *larger = realloc(*groups, (size_t)*size * 2 * sizeof(gid_t));

			if (!larger) {
				status = NSS_STATUS_TRYAGAIN;
				*error = ENOMEM;
				break;
			}
			*groups = larger;
			*size *= 2;
		}
		(*groups)[(*count)++] = entry.gr_gid;
	}
	free(buffer);
	if (stream)
		fclose(stream);
	return status == NSS_STATUS_NOTFOUND ? NSS_STATUS_SUCCESS : status;
}
