# shellcheck shell=bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# What the entry points share; sourced, never run.

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# Slurm's daemons hang for minutes in their start when munge does not answer.
wait_for_munge() {
	local tries=0
	until [ -S /run/munge/munge.socket.2 ] && munge -n -S /run/munge/munge.socket.2 >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || die "munged did not answer on /run/munge/munge.socket.2 within 60 s: look at the log of the container munged"
		sleep 0.1
	done
}

# Attaches the pod's volumes below each of its jails. Not the container's runtime does it: that follows links, which root in a jail can plant.
#   CORRAL_JAILS      roots of jails
#   CORRAL_SUBMOUNTS  SOURCE:PATH[:ro] each
#   CORRAL_SCRATCH    those sources that the kubelet makes anew, writable by all: to be like /tmp
attach_submounts() {
	local jail mount
	local -a binds=() jails=() scratch=()
	read -ra jails <<<"${CORRAL_JAILS:-/mnt/jail}"
	read -ra scratch <<<"${CORRAL_SCRATCH:-}"
	for mount in ${CORRAL_SUBMOUNTS:-}; do
		binds+=("bind=$mount")
	done
	[ ${#scratch[@]} = 0 ] || chmod 1777 "${scratch[@]}"
	[ ${#binds[@]} != 0 ] || return 0
	for jail in "${jails[@]}"; do
		/opt/corral/bin/jail-exec --attach "$jail" "${binds[@]}" || exit 1
	done
}
