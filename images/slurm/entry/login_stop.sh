#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# login_stop.sh SECONDS COMMAND…: before sshd ends with its pod. No new session begins, users who are there get a message on the terminal, and the pod ends when COMMAND
# reports that no user is left (exit code 0), or after SECONDS. Whatever ends the pod runs this: another template, fewer replicas, a drain of the Kubernetes node.
# Never fails: the pod ends all the same.
set -uo pipefail

seconds=$1
shift
until=$((SECONDS + seconds))
host=$(hostname)

# Kubernetes takes the pod out of its Service, unless there is no other one. For both ways in, PAM's nologin module refuses all but root.
echo "The login node $host is about to end. Log in again: another one takes you, or this one when it is back." >/etc/nologin

# On every terminal of the pod: only sessions have any. One that is stopped (Ctrl-S) takes no more when its buffer is full.
tell() {
	local terminal
	for terminal in /dev/pts/[0-9]*; do
		[ ! -c "$terminal" ] || printf '\r\n\a*** %s ***\r\n' "$1" | timeout 1 tee "$terminal" >/dev/null 2>&1
	done
}

# At the beginning, and again when a tenth of that time is left, and of that.
remind=$seconds
while ! "$@" >/dev/null 2>&1; do
	left=$((until - SECONDS))
	[ "$left" -gt 0 ] || break
	if [ "$left" -le "$remind" ]; then
		tell "The login node $host ends at $(date -u -d "+$left seconds" +%H:%M:%S) UTC, and everything that runs on it: save your work and log out. Jobs in Slurm continue."
		remind=$((left / 10))
	fi
	sleep 1
done
exit 0
