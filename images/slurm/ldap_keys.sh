#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Takes sss_ssh_authorizedkeys, which asks a pod's sssd for the ssh keys of a user, with those libraries that the image does not have: all of
# sssd would be ten times that. Run inside the image's build, with patchelf at hand.
set -eu

to=$1
before=$(mktemp)
ldconfig -p | awk '/=>/ {print $1}' | sort -u >"$before"
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends sssd-common

mkdir -p "$to/lib"
# Not to be read by who runs it: such a process cannot be traced, from its first moment on, and its /proc/<pid> leads nowhere (exec's would_dump). It
# sees the pod, and root in a jail can become its account.
install -m 0711 /usr/bin/sss_ssh_authorizedkeys "$to/"
ldd "$to/sss_ssh_authorizedkeys" | awk '$2 == "=>" {print $3}' | while read -r library; do
	grep -qxF "${library##*/}" "$before" || install -m 0644 "$library" "$to/lib/"
done
for object in "$to/sss_ssh_authorizedkeys" "$to"/lib/*; do
	patchelf --force-rpath --set-rpath "$to/lib" "$object"
done
rm -f "$before"
