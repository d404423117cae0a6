#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Has a daemon use rotated keys, without an end of its pod. Run in its container, munged's, a login node's sshd's
# or slurmd's, by a run that rotates.
#   keys.sh munge|host_keys mounted    print what the pod's volume has: the first 16 digits of the SHA-256 of its files
#   keys.sh munge|host_keys use HASH   exit status 0 when the daemon uses what has this hash
set -euo pipefail
export LC_ALL=C
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

declare -A volumes=([munge]=/etc/corral/munge [host_keys]=/etc/corral/host-keys)

mounted() {
	cat "${volumes[$1]}"/* | sha256sum | cut -c 1-16
}

# munged.sh notes what its daemons began with. A signal that comes while it starts is lost, so it is sent again.
use_munge() {
	local tries=0
	until [ "$(cat /run/munge-key/used 2>/dev/null)" = "$1" ]; do
		[ "$tries" -lt 100 ] || die "munged did not start with the new key within 10 s: see the log of the container munged"
		[ $((tries % 20)) != 0 ] || kill -HUP 1
		tries=$((tries + 1))
		sleep 0.1
	done
	exec /usr/local/lib/corral/probe.sh munged 10
}

# sshd's own socket of port 22: another one is that of an sshd that has begun anew. Without IPv6 there is no tcp6.
listener() {
	{ cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } | awk '$2 ~ /:0016$/ && $4 == "0A" {print $10}'
}

# sshd executes itself anew and reads its keys; sessions are processes of their own, and stay. One that it does not start with would end it.
use_host_keys() {
	local before tries=0 sshd=1
	# A worker's is beside slurmd; worker_sshd.sh notes its number.
	[ "$(cat /proc/1/comm)" = sshd ] || sshd=$(cat /run/sshd.pid 2>/dev/null) || sshd=none
	[ "$(cat "/proc/$sshd/comm" 2>/dev/null)" = sshd ] || die "sshd does not run in this container"
	install_host_keys
	/usr/sbin/sshd -t || die "sshd does not take these keys"
	before=$(listener)
	kill -HUP "$sshd"
	until [ -n "$(listener)" ] && [ "$(listener)" != "$before" ]; do
		[ "$tries" -lt 100 ] || die "sshd did not begin anew within 10 s: see its log"
		tries=$((tries + 1))
		sleep 0.1
	done
}

case ${1:-}:${2:-}:$# in
munge:mounted:2 | host_keys:mounted:2) mounted "$1" ;;
munge:use:3 | host_keys:use:3)
	[ "$(mounted "$1")" = "$3" ] || die "the pod's volume has other keys"
	"use_$1" "$3"
	;;
*) die "usage: keys.sh munge|host_keys mounted | use HASH" ;;
esac
