#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# limit_user.sh FILE=VALUE...: puts a session, and all that comes of it, into the cgroup that a user's sessions in this pod share. Called by PAM
# (pam_exec), as root, in a child of the process of sshd that the session comes of. The cgroup stays for the user's next session.
set -euo pipefail
exec 2>>/proc/1/fd/2 # the container's log: PAM takes what is printed away

group=/sys/fs/cgroup/user-$(id -u "$PAM_USER")
mkdir -p "$group"
for limit in "$@"; do
	echo "${limit#*=}" >"$group/${limit%%=*}"
done
echo "$PPID" >"$group/cgroup.procs"
