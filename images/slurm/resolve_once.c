/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Preloaded into slurmctld. Debian's Slurm tries a name that does not resolve ten times with a second between (its patch "Retry getaddrinfo
 * five times before giving up", for hosts whose network comes up late), and slurmctld holds its locks meanwhile: each node whose pod
 * does not exist yet would cost ten seconds of its start, and each job of a client whose host name it can not resolve ten seconds of
 * everybody's time. Here a name that was just not found is not found again at once, and the pause after it is none.
 *
 * Only what directly follows a failed look-up in the same thread is changed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <time.h>

/* Long enough for Debian's ten tries, short enough that a pod that comes up is found by the next one who asks. Seconds. */
#define REMEMBERED 1

static __thread struct {
	char host[256];
	struct timespec when;
	int error;
	int pauses;
} missed;

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef unsigned int pause_for(unsigned int);

static int is_missed(const char *host)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return missed.error != 0 && strcmp(missed.host, host) == 0 && now.tv_sec - missed.when.tv_sec <= REMEMBERED;
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
	if (host && (error == EAI_NONAME || error == EAI_NODATA || error == EAI_AGAIN) && strlen(host) < sizeof(missed.host)) {
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
