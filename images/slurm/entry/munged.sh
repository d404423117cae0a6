#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# munged, as user munge. The key comes from the Secret's volume, whose files are links that anybody of the pod's group may read;
# munged wants a plain file of its own, so it gets a copy in a volume in memory.
#
# A second one is for those in the jail (auth_for_users.c); the directory of its socket is what they see as /run/munge.
#
# This script stays the container's first process: it ends when either of them does, so that the container is started again at once and not when
# somebody asks, and it takes in what a probe that was ended has left. SIGHUP has both start again with the key that the volume has now (keys.sh); Slurm's
# plugin tries for two seconds to reach a munged that is away.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

key=/etc/corral/munge/munge.key
copy=/run/munge-key/munge.key

[ -r "$key" ] || die "$key is missing or not readable by uid $(id -u): mount the munge Secret there"
munged=(/usr/sbin/munged --foreground --force --num-threads="${MUNGE_THREADS:-4}" --key-file="$copy")

begin() {
	umask 077
	rm -f "$copy"
	cp -L "$key" "$copy"
	chmod 0400 "$copy"
	# Users talk to the second one; nothing else lies in the directory of its socket.
	umask 022
	mkdir -p /run/munge/jail
	LD_PRELOAD=/usr/local/lib/corral/auth_for_users.so "${munged[@]}" \
		--socket=/run/munge/jail/munge.socket.2 --pid-file=/run/munge-key/jail.pid --seed-file=/run/munge-key/jail.seed &
	daemons=("$!")
	"${munged[@]}" --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid --seed-file=/run/munge-key/munged.seed &
	daemons+=("$!")
	sha256sum <"$copy" | cut -c 1-16 >/run/munge-key/used
}

daemons=()
renew=
trap 'renew=yes' HUP
trap 'end_daemons; exit 0' TERM
begin
while :; do
	status=0
	# By their pids: without them bash may report one that has ended before, on request.
	[ -n "$renew" ] || wait -n "${daemons[@]}" || status=$?
	[ -n "$renew" ] || break
	renew=
	echo "munged.sh: both munged start again with the key that the Secret has now" >&2
	end_daemons
	begin
done
die "a munged ended with status $status; the container is started again"
