/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Preloaded into the munged, or the sackd, that a jail's users talk to. Both believe the kernel who asks, and who asks as root, or as Slurm's own
 * account, may command each daemon of the cluster: slurmd writes a file for such a one anywhere in its pod (sbcast), and for munged's account where
 * munged's socket is. Root of a jail is no root of the pods, and can become any account. So those that a pod has of its own are nobody here, and
 * no user has their numbers; the pod's daemons have another munged, or sackd.
 *
 * gcc -O2 -fPIC -shared -o auth_for_users.so auth_for_users.c
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

#define NOBODY 65534

/* No user of a document is in either; nss_corral.c shows none of them. A directory may use the group "users" (100). */
static int of_the_pod(unsigned id, unsigned first)
{
	return id < first || (id > 60000 && id <= 65535);
}

int getsockopt(int socket, int level, int name, void *restrict value, socklen_t *restrict length)
{
	static int (*ask)(int, int, int, void *restrict, socklen_t *restrict);
	int result;

	if (!ask)
		ask = (int (*)(int, int, int, void *restrict, socklen_t *restrict))dlsym(RTLD_NEXT, "getsockopt");
	result = ask(socket, level, name, value, length);
	if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED && *length >= sizeof(struct ucred)) {
		struct ucred *who = value;

		if (of_the_pod(who->uid, 500)) {
			who->uid = NOBODY;
			who->gid = NOBODY;
		}
		if (of_the_pod(who->gid, 100))
			who->gid = NOBODY;
	}
	return result;
}
