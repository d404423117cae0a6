/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Preloaded into the munged that a jail's users talk to. munged believes the kernel who asks, and who asks as root, or as Slurm's own account, may
 * tell each daemon of the cluster what to do: slurmd writes a file for such a one anywhere in its pod (sbcast). Root of a jail is no root of the
 * pods, and can become any account of the jail. So both are nobody here; the pod's daemons have another munged.
 *
 * gcc -O2 -fPIC -shared -o munged_for_users.so munged_for_users.c
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

/* The account slurm of the image. */
#define SLURM 64030
#define NOBODY 65534

int getsockopt(int socket, int level, int name, void *restrict value, socklen_t *restrict length)
{
	static int (*ask)(int, int, int, void *restrict, socklen_t *restrict);
	int result;

	if (!ask)
		ask = (int (*)(int, int, int, void *restrict, socklen_t *restrict))dlsym(RTLD_NEXT, "getsockopt");
	result = ask(socket, level, name, value, length);
	if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED && *length >= sizeof(struct ucred)) {
		struct ucred *who = value;

		if (who->uid == 0 || who->uid == SLURM) {
			who->uid = NOBODY;
			who->gid = NOBODY;
		}
	}
	return result;
}
