#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# probe.sh slurmctld|slurmd|sackd|sshd|munged [alive]: exit 0 when the daemon of this container does its work, else 1 with the reason in
# one line. Asks the daemon itself where that costs it no line in its log. With "alive" only the daemon counts, and not what it needs.
set -uo pipefail

bad() {
	echo "$1"
	exit 1
}

# The container's first process is the daemon, unless the pod shares its processes.
running() {
	local comm
	for comm in /proc/1/comm /proc/[0-9]*/comm; do
		[ "$(cat "$comm" 2>/dev/null)" != "$1" ] || return 0
	done
	bad "$1 is not running"
}

# TCP port in state LISTEN, of either family, without a connection that the daemon would complain about.
listening() {
	local port
	port=$(printf ':%04X' "$1")
	grep -qE "^ *[0-9]+: [0-9A-F]+$port [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null || bad "$2 does not listen on port $1 yet"
}

case "${1:-}" in
munged)
	for socket in /run/munge/munge.socket.2 /run/munge/jail/munge.socket.2; do
		munge -n -S "$socket" 2>/dev/null | unmunge -S "$socket" >/dev/null 2>&1 || bad "munged does not answer on $socket"
	done
	;;
slurmctld)
	# A backup that has not seen its primary yet (controller.py).
	[ ! -e /tmp/corral-waiting ] || exit 0
	running slurmctld
	# Each pod answers for its own; a standby does its work when it answers.
	[ ! -e /tmp/corral-own.conf ] || export SLURM_CONF=/tmp/corral-own.conf
	answer=$(timeout 9 scontrol ping 2>&1) || bad "slurmctld does not answer: $(tail -n 1 <<<"$answer")"
	;;
slurmd)
	running slurmd
	listening "${SLURMD_PORT:-6818}" slurmd
	[ "${2:-}" != alive ] || exit 0
	[ -r /run/slurm/conf/slurm.conf ] || bad "slurmd has no configuration from slurmctld yet (/run/slurm/conf)"
	[ -e /mnt/jail/etc/corral-jail ] || bad "the jail at /mnt/jail is not mounted or not populated"
	# What the plugin does for a step, once: a pod in which no step has ever come up must not count as one that works, least of all in a roll-out.
	[ ! -e /run/corral-entered ] || exit 0
	said=$(/opt/corral/bin/jail-exec plugstack=/run/slurm/conf/plugstack.conf wait=0 timeout=3 -- /bin/true 2>&1) ||
		bad "no step can enter the jail: ${said#jail-exec: }"
	: >/run/corral-entered
	;;
sackd)
	running sackd
	[ -r /run/slurm/conf/slurm.conf ] || bad "sackd has no configuration from slurmctld yet (/run/slurm/conf)"
	;;
sshd)
	running sshd
	listening 22 sshd
	[ "${2:-}" != alive ] || exit 0
	[ -e /mnt/jail/etc/corral-jail ] || bad "the jail at /mnt/jail is not mounted or not populated"
	# What login.sh did, again: it changes nothing where all is there. A mount goes when its directory in the jail is removed where it is none,
	# and sshd has no capability left to bring it back.
	# shellcheck source-path=SCRIPTDIR source=common.sh
	. /usr/local/lib/corral/common.sh
	said=$(attach_submounts 2>&1) || bad "the jail's volumes are not all there: ${said#jail-exec: }"
	[ "${CORRAL_LOGIN_ENTRY:-Chroot}" = Chroot ] || exit 0
	said=$(/opt/corral/bin/jail-exec --prepare /mnt/jail wait=0 timeout=5 2>&1) || bad "the jail is not made ready for sessions: ${said#jail-exec: }"
	;;
*)
	bad "usage: probe.sh slurmctld|slurmd|sackd|sshd|munged"
	;;
esac
