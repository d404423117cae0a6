/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Preloaded into slurmctld. Debian's Slurm tries a name that does not resolve ten times with a second between (its patch "Retry getaddrinfo
 * five times before giving up", for hosts whose network comes up late), and slurmctld holds its locks meanwhile: each node whose pod
 * does not exist yet would cost ten seconds of its start, and each job of a client whose host name it can not resolve ten seconds of
 * everybody's time. Here a name that was just not found is not found again at once, and the pause after it is none.
 *
 * Only what directly follows a failed look-up in the same thread is changed. "Try again" is no "not found": slurmctld takes a node whose name it can not
 * resolve out of service, and hides it, until it reads its configuration once more. So where the name server does not answer, Slurm's tries go on as they
 * would, until it has been silent for too long.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <time.h>

/* How long a name server that does not answer is waited for, by all threads together. Seconds. */
#ifndef PATIENCE
#define PATIENCE 60
#endif

/* Long enough for Debian's ten tries, short enough that a pod that comes up is found by the next one who asks. Seconds. */
#define REMEMBERED 1

static __thread struct {
	char host[256];
	struct timespec when;
	int error;
	int pauses;
} missed;

/* Since when the name server has not answered; 0 while it does. */
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
	if (host && is_final(error) && strlen(host) < sizeof(missed.host)) {
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
