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
