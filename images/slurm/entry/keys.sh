#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Has a daemon use rotated keys, without an end of its pod. Run in its container, munged's, a login node's sshd's
# or slurmd's, by a run that rotates; for Slurm's own keys in the container sack, and then in that of each daemon that has them.
#   keys.sh munge|slurm|host_keys mounted    print what the pod's volume has: the first 16 digits of the SHA-256 of its files
#   keys.sh munge|slurm|host_keys use HASH   exit status 0 when the daemon uses what has this hash
set -euo pipefail
export LC_ALL=C
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

declare -A volumes=([munge]=/etc/corral/munge [slurm]=/etc/corral/slurm-key [host_keys]=/etc/corral/host-keys)

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

# Slurm's daemons read their keys when they execute themselves anew, which SIGHUP has them do: jobs, sockets and their pid stay. What sack.sh has put into
# the volume that the containers share counts, and the name of a process does not: users may run one of any name in slurmd's container.
use_slurm() {
	local tries=0 daemon pid before
	if [ -d "${volumes[slurm]}" ]; then
		until [ "$(cat "$sack_key/used" 2>/dev/null)" = "$1" ]; do
			[ "$tries" -lt 200 ] || die "sackd did not take the new keys within 20 s: see the log of the container sack"
			[ $((tries % 50)) != 0 ] || kill -HUP 1
			tries=$((tries + 1))
			sleep 0.1
		done
		exec /usr/local/lib/corral/probe.sh sack 10
	fi
	[ "$(cat "$sack_key/used" 2>/dev/null)" = "$1" ] || die "the container sack has other keys"
	daemon=$(the_daemon)
	pid=${daemon#* }
	daemon=${daemon% *}
	# One that does not run reads them when it starts, such as a slurmdbd or a slurmctld that waits for the primary.
	[ -n "$pid" ] || return 0
	[ ! -e /run/slurm/converting ] || die "slurmdbd changes the tables of its database, and must not be ended"
	/usr/local/lib/corral/probe.sh "$daemon" 10
	handles_hangup "$pid" || die "$daemon is beginning anew"
	before=$(execution "$pid") || die "$daemon cannot be observed"
	# A standby restarts (controller.py), and so does slurmdbd, which takes no keys while it runs (slurmdbd.sh).
	case $daemon in
	slurmctld) kill -HUP 1 "$pid" ;;
	slurmdbd) kill -HUP 1 ;;
	*) kill -HUP "$pid" ;;
	esac
	until [ "$(execution "$pid" 2>/dev/null || echo gone)" != "$before" ]; do
		[ "$tries" -lt 100 ] || die "$daemon did not begin anew within 10 s: see its log"
		tries=$((tries + 1))
		sleep 0.1
	done
}

# SIGHUP ends a daemon that executes itself anew just now, as slurmctld has it do too; with slurmd all jobs of its pod would end.
handles_hangup() {
	local mask
	while read -r mask; do
		! ((0x$mask & 1)) || return 0
	done < <(sed -n 's/^Sig\(Cgt\|Blk\):\t//p' "/proc/$1/status" 2>/dev/null)
	return 1
}

# The name of the container's daemon with a key, and its pid: that of the process with its program that is no child of another.
the_daemon() {
	local name process parent
	for name in slurmctld slurmdbd slurmd sackd; do
		[ -e "/usr/sbin/$name" ] || continue
		for process in /proc/[0-9]*; do
			[ "$process/exe" -ef "/usr/sbin/$name" ] || continue
			parent=$(sed -n 's/^PPid:\t//p' "$process/status" 2>/dev/null)
			[ "/proc/$parent/exe" -ef "/usr/sbin/$name" ] || {
				echo "$name ${process#/proc/}"
				return
			}
		done
	done
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
munge:mounted:2 | slurm:mounted:2 | host_keys:mounted:2) mounted "$1" ;;
munge:use:3 | slurm:use:3 | host_keys:use:3)
	[ ! -d "${volumes[$1]}" ] || [ "$(mounted "$1")" = "$3" ] || die "the pod's volume has other keys"
	"use_$1" "$3"
	;;
*) die "usage: keys.sh munge|slurm|host_keys mounted | use HASH" ;;
esac
