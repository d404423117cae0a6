#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# probe.sh slurmctld|slurmd|slurmdbd|slurmrestd|exporter|sackd|sshd|munged|sack [alive|SECONDS]: exit 0 when the daemon of this container does its work, else 1 with the reason in
# one line. Asks the daemon itself where that costs it no line in its log. With "alive" only the daemon counts, and not what it needs.
# With SECONDS it waits so long for the daemon: starting a probe costs a Kubernetes node more than all that is checked here, so many
# pods that start together would slow each other down with a probe each second.
set -uo pipefail

why=
bad() {
	why=$1
	return 1
}

# The container's first process is the daemon, unless the pod shares its processes or tini stands before it.
running() {
	local file comm
	for file in /proc/1/comm /proc/[0-9]*/comm; do
		{ read -r comm <"$file"; } 2>/dev/null && [ "$comm" = "$1" ] && return 0
	done
	bad "$1 is not running"
}

# TCP port in state LISTEN, of either family, without a connection that the daemon would complain about.
listening() {
	local port
	port=$(printf ':%04X' "$1")
	grep -qE "^ *[0-9]+: [0-9A-F]+$port [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null || bad "$2 does not listen on port $1 yet"
}

configured() {
	[ -r /run/slurm/conf/slurm.conf ] || bad "$1 has no configuration from slurmctld yet (/run/slurm/conf)"
}

populated() {
	[ -e /mnt/jail/etc/corral-jail ] || bad "the jail at /mnt/jail is not mounted or not populated"
}

munged() {
	local socket
	for socket in /run/munge/munge.socket.2 /run/munge/jail/munge.socket.2; do
		if [ ! -S "$socket" ] || ! munge -n -S "$socket" >/dev/null 2>&1; then
			bad "munged does not respond on $socket"
			return
		fi
	done
}

# sack.sh ends with either of its two.
sack() {
	local socket
	running sackd || return
	for socket in /run/slurm/sack.socket /run/slurm/jail/sack.socket; do
		if [ ! -S "$socket" ]; then
			bad "sackd has not made $socket yet"
			return
		fi
	done
}

slurmctld() {
	local answer
	# A backup that has not reached its primary yet (controller.py).
	[ ! -e /tmp/corral-waiting ] || return 0
	# controller.py waits for the cluster's own database: restarting it gives none back.
	if [ -s /tmp/corral-refused ]; then
		[ "$depth" = alive ] || bad "$(cat /tmp/corral-refused)"
		return
	fi
	running slurmctld || return
	# Each pod probes its own; a standby does its work when it responds.
	[ ! -e /tmp/corral-own.conf ] || export SLURM_CONF=/tmp/corral-own.conf
	answer=$(timeout 9 scontrol ping 2>&1) || bad "slurmctld does not respond: $(tail -n 1 <<<"$answer")"
}

slurmd() {
	local said
	running slurmd && listening "${SLURMD_PORT:-6818}" slurmd || return
	[ "$depth" != alive ] || return 0
	configured slurmd && populated || return
	# What the plugin does for a step, once: a pod in which no step has ever come up must not count as one that works, least of all in a roll-out.
	[ ! -e /run/corral-entered ] || return 0
	said=$(/opt/corral/bin/jail-exec --try plugstack=/run/slurm/conf/plugstack.conf wait=0 timeout=3 2>&1) ||
		bad "no step can enter the jail: ${said#jail-exec: }" || return
	: >/run/corral-entered
}

# It listens when it has its database; a backup (slurmdbd.sh) does only while it has control.
slurmdbd() {
	if [ -e /run/slurm/waiting ]; then
		[ "$depth" = alive ] || [ -e /run/slurm/standby ] || [ "$depth" -gt 0 ] || bad "slurmdbd waits for the primary, which has to start first"
		return
	fi
	running slurmdbd || return
	[ "$depth" != alive ] || return 0
	listening "${SLURMDBD_PORT:-6819}" slurmdbd && return
	[ ! -e /run/slurm/standby ] || return 0
	# A first start of a new release can take hours, and one that is ended begins again: the start succeeds, and the pod is not ready.
	if [ -e /run/slurm/converting ]; then
		[ "$depth" -gt 0 ] || bad "slurmdbd changes the tables of its database to those of its release; see its log"
		return
	fi
	timeout 3 bash -c "exec 3<>/dev/tcp/${CORRAL_DATABASE_ADDRESS/:/\/}" 2>/dev/null ||
		bad "slurmdbd waits for its database: nothing answers at $CORRAL_DATABASE_ADDRESS" || return
	[ ! -s /run/slurm/last_error ] || bad "slurmdbd has no database: $(tail -n 1 /run/slurm/last_error)"
	return 1
}

slurmrestd() {
	running slurmrestd || return
	[ "$depth" != alive ] || return 0
	grep -q ' 00010000 .* /run/slurmrestd/rest.sock$' /proc/net/unix 2>/dev/null || bad "slurmrestd does not listen yet"
}

# It responds without slurmctld, with old values.
exporter() {
	listening 9341 "the exporter"
}

sackd() {
	running sackd && configured sackd
}

sshd() {
	local said
	running sshd && listening 22 sshd || return
	[ "$depth" != alive ] || return 0
	populated || return
	# What login.sh did, again: it changes nothing where all is there. A mount goes when its directory in the jail is removed where it is none,
	# and sshd has no capability left to bring it back.
	# shellcheck source-path=SCRIPTDIR source=common.sh
	. /usr/local/lib/corral/common.sh
	said=$(attach_submounts 2>&1) || bad "the jail's volumes are not all there: ${said#jail-exec: }" || return
	[ "${CORRAL_LOGIN_ENTRY:-Chroot}" = Chroot ] || return 0
	said=$(/opt/corral/bin/jail-exec --prepare /mnt/jail wait=0 timeout=5 2>&1) || bad "the jail is not made ready for sessions: ${said#jail-exec: }"
}

daemon=${1:-}
depth=${2:-0}
if ! [[ "$daemon:$depth" =~ ^(slurmctld|slurmd|slurmdbd|slurmrestd|exporter|sackd|sshd|munged|sack):(alive|[0-9]+)$ ]]; then
	echo "usage: probe.sh slurmctld|slurmd|slurmdbd|slurmrestd|exporter|sackd|sshd|munged|sack [alive|SECONDS]"
	exit 1
fi
last=${depth/alive/0}
pause=0.1
until "$daemon"; do
	if [ "$SECONDS" -ge "$last" ]; then
		echo "$why"
		exit 1
	fi
	sleep "$pause"
	case $pause in
	0.1) pause=0.2 ;;
	0.2) pause=0.4 ;;
	*) pause=1 ;;
	esac
done
