/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Preloaded into slurmctld. Debian's Slurm tries a name that does not resolve ten times with a second between (its patch "Retry getaddrinfo
 * five times before giving up", for hosts whose network comes up late), and slurmctld holds its locks meanwhile: each node whose pod
 * does not exist yet would cost ten seconds of its start, and each job of a client whose host name it cannot resolve ten seconds of
 * everybody's time. Here a name that was just not found is not found again at once, and the pause after it is none.
 *
 * Only what directly follows a failed look-up in the same thread is changed. "Try again" is no "not found": slurmctld takes a node whose name it cannot
 * resolve out of service, and hides it, until it reads its configuration once more. So where the name server does not respond, Slurm's tries go on as they
 * would, until it has been silent for too long.
 *
 * slurmctld takes a node whose name is not found for one that is yet to come (FUTURE), and forgets all that it had written down of it: a drain and its
 * reason, the job that was there. So the name of a node that its state file knows as more than that resolves to this pod itself, where nothing listens: the node
 * keeps its state, does not respond, and slurmd reports its true address when it starts (entry/slurmd.sh).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long a name server that does not respond is waited for, by all threads together. Seconds. */
#ifndef PATIENCE
#define PATIENCE 60
#endif

/* Long enough for Debian's ten tries, short enough that a pod that comes up is found by the next one who asks. Seconds. */
#define REMEMBERED 1

/* Where slurmctld keeps what it knows of its nodes, and the save before that one. */
#ifndef STATE
#define STATE "/var/spool/slurmctld/node_state"
#endif

/* Of a saved node, between its NodeHostName and its state: the strings from comment to cpu_spec_list, then next_state (src/common/node_conf.c,
 * the same in 24.11 and 26.05). */
#define WORDS_BEFORE_STATE 9

/* The lower bits of a state, and the value that FUTURE has there (slurm/slurm.h). */
#define STATE_BASE 0xf
#define STATE_FUTURE 6

static __thread struct {
	char host[256];
	struct timespec when;
	int error;
	int pauses;
} missed;

/* Since when the name server has not responded; 0 while it does. */
static _Atomic time_t silent_since;

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef unsigned int pause_for(unsigned int);

static int is_missed(const char *host)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return missed.error != 0 && strcmp(missed.host, host) == 0 && now.tv_sec - missed.when.tv_sec <= REMEMBERED;
}

/* True when it is of no use to ask for the name again. */
static int is_final(int error)
{
	struct timespec now;
	time_t since;

	if (error != EAI_AGAIN) {
		silent_since = 0;
		return error == EAI_NONAME || error == EAI_NODATA;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	since = silent_since;
	if (!since)
		silent_since = since = now.tv_sec;
	return now.tv_sec - since >= PATIENCE;
}

/* The state file as it was when it was first asked for. slurmctld begins a new process each time it reads its configuration. */
static struct {
	const unsigned char *bytes;
	size_t size;
} saved;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static int read_state(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	unsigned char *bytes = NULL;
	size_t size = 0;

	if (file < 0)
		return 0;
	if (fstat(file, &about) == 0 && about.st_size > 0 && (bytes = malloc((size_t)about.st_size))) {
		ssize_t got;

		while (size < (size_t)about.st_size && (got = read(file, bytes + size, (size_t)about.st_size - size)) > 0)
			size += (size_t)got;
	}
	close(file);
	if (size == 0) {
		free(bytes);
		return 0;
	}
	saved.bytes = bytes;
	saved.size = size;
	return 1;
}

static void read_saved(void)
{
	if (!read_state(STATE))
		read_state(STATE ".old");
}

static uint32_t number_at(const unsigned char *at)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	return ntohl(number);
}

/* The base of the state that follows so many strings of a saved node; FUTURE for what cannot be read. */
static uint32_t state_after(const unsigned char *at, int strings)
{
	const unsigned char *end = saved.bytes + saved.size;
	int string;

	for (string = 0; string < strings; string++) {
		uint32_t length;

		if (end - at < 4)
			return STATE_FUTURE;
		length = number_at(at);
		at += 4;
		/* Slurm packs a string with its final NUL, none at all as length 0. */
		if (length > (size_t)(end - at) || (length && at[length - 1]))
			return STATE_FUTURE;
		at += length;
	}
	return end - at < 8 ? STATE_FUTURE : number_at(at + 4) & STATE_BASE;
}

/* Behind the place where a string is in the file so many times in a row; NULL where it is not. */
static const unsigned char *behind(const char *string, int times)
{
	size_t length = strlen(string) + 1;
	unsigned char packed[2 * (sizeof(missed.host) + 4)];
	const unsigned char *at;
	uint32_t number = htonl((uint32_t)length);

	memcpy(packed, &number, 4);
	memcpy(packed + 4, string, length);
	memcpy(packed + 4 + length, packed, 4 + length);
	at = memmem(saved.bytes, saved.size, packed, (size_t)times * (4 + length));
	return at ? at + (size_t)times * (4 + length) : NULL;
}

/*
 * True for a node that has registered with slurmctld. It is found by its NodeAddr, which the file has before NodeName and NodeHostName. A worker has reported its pod's
 * address instead, but its name follows from that of the pod, CLUSTER-NODE, and stands twice on end.
 */
static int is_known(const char *host)
{
	const char *cluster = getenv("CORRAL_CLUSTER");
	size_t before = cluster ? strlen(cluster) : 0, length;
	const unsigned char *at;
	char node[sizeof(missed.host)];

	pthread_once(&once, read_saved);
	if (!saved.bytes || strlen(host) >= sizeof(node))
		return 0;
	at = behind(host, 1);
	if (at && state_after(at, 2 + WORDS_BEFORE_STATE) != STATE_FUTURE)
		return 1;
	if (!before || strncmp(host, cluster, before) != 0 || host[before] != '-')
		return 0;
	length = strcspn(host + before + 1, ".");
	memcpy(node, host + before + 1, length);
	node[length] = 0;
	at = behind(node, 2);
	return at && state_after(at, WORDS_BEFORE_STATE) != STATE_FUTURE;
}

/* This pod itself, where no slurmd listens; of the family that it has. */
static int not_found(look_up *real, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	return real("127.0.0.1", service, hints, found) == 0 ? 0 : real("::1", service, hints, found);
}

int getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
	static look_up *real;
	int error;

	if (!real)
		real = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
	if (host && is_missed(host)) {
		missed.pauses = 1;
		return missed.error;
	}
	error = real(host, service, hints, found);
	missed.error = 0;
	missed.pauses = 0;
	if (!host || !is_final(error))
		return error;
	/* Not where the name server is silent: the node may be there, and its jobs would be ended if it did not respond for long. */
	if (error != EAI_AGAIN && is_known(host))
		return not_found(real, service, hints, found);
	if (strlen(host) < sizeof(missed.host)) {
		strcpy(missed.host, host);
		clock_gettime(CLOCK_MONOTONIC, &missed.when);
		missed.error = error;
		missed.pauses = 1;
	}
	return error;
}

unsigned int sleep(unsigned int seconds)
{
	static pause_for *real;

	if (missed.pauses) {
		missed.pauses = 0;
		return 0;
	}
	if (!real)
		real = (pause_for *)dlsym(RTLD_NEXT, "sleep");
	return real(seconds);
}
