# shellcheck shell=bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# What must have been done before a daemon starts; sourced by slurmd.sh and login.sh, which have common.sh. slurmd.sh sets the node's name.

ours="corral: start:"
name=${name:-}

# What slurmctld reports of this node; nothing when it does not respond, which counts as a node that is in service. scontrol's status is no failure here:
# it is 1 for a node that is not shown, too, with a line on stdout that reports it, and set -e would end the start.
shown_node() {
	timeout 15 scontrol show node "$name" --oneliner 2>/dev/null || true
}

# A node that cannot be made ready goes out of service with the reason, and slurmd is not started: it would register with less than slurm.conf
# promises, or die. A drain of another owner stays.
out_of_service() {
	local shown
	# A login node is none of Slurm's: only its pod reports the error.
	[ -n "$name" ] || die "$1"
	shown=$(shown_node)
	# slurmctld has a node without an address, as every new one is until its first slurmd reports it, as FUTURE, and hides it.
	# What fails here fails again below, and is reported there.
	[[ $shown != *"not found"* ]] || timeout 15 scontrol update "nodename=$name" state=down "reason=$ours $1" || true
	if [[ $shown != *State=*DRAIN* || $shown == *"Reason=$ours"* ]]; then
		timeout 15 scontrol update "nodename=$name" state=drain "reason=$ours $1" ||
			echo "${0##*/}: slurmctld was not informed that this node is out of service" >&2
	fi
	die "$1"
}

taken_out() {
	[[ $(shown_node) == *State=*DRAIN*"Reason=$ours"* ]]
}

# slurmctld prints "Invalid node state" for a node that has never registered, and still does it (observed with 24.11.5): so what it shows counts.
back_in_service() {
	local said
	taken_out || return 0
	said=$(timeout 15 scontrol update "nodename=$name" state=undrain 2>&1) || true
	! taken_out || die "slurmctld did not take this node, $name, back into service: $said"
}

# Called where no step of the node can be alive: its container is a new one. What slurmctld still takes for running there ended with the container, or the
# pod, before this one. When slurmd registers, slurmctld misses them, but not those that had begun less than 20 seconds before: these it would take for running
# until it asks the node again, at every twentieth ping (24.11.5, 26.05). A node that is down has none; its slurmd brings it back (ReturnToService=2). A drain
# stays whose it is.
jobs_are_lost() {
	local state
	state=$(shown_node | sed -n 's/.* State=\([^ ]*\).*/\1/p')
	if [[ ($state == ALLOCATED* || $state == MIXED*) && $state != *DRAIN* ]]; then
		timeout 15 scontrol update "nodename=$name" state=down "reason=corral: pod: its container was killed, and the jobs with it" ||
			echo "${0##*/}: slurmctld was not informed of jobs that ended with this node's container" >&2
	fi
}

# ready WHAT SECONDS COMMAND: its output goes to the log when it is done; its last line is the reason if it fails.
ready() {
	local what=$1 seconds=$2 began=${EPOCHREALTIME//[!0-9]/} code=0 said
	said=$(mktemp)
	shift 2
	timeout -k 5 "$seconds" "$@" >"$said" 2>&1 </dev/null || code=$?
	cat "$said" >&2
	# 137: it did not end on request; or something else killed it, earlier. In microseconds: SECONDS counts the clock's whole ones, of which a short
	# command may meet one.
	if [ "$code" = 124 ] || { [ "$code" = 137 ] && [ $((${EPOCHREALTIME//[!0-9]/} - began)) -ge $((seconds * 1000000)) ]; }; then
		out_of_service "$what took longer than $seconds s$(last_line "$said")"
	elif [ "$code" != 0 ]; then
		out_of_service "$what ended with status $code$(last_line "$said")"
	fi
	rm -f "$said"
}

#   CORRAL_INIT_SCRIPTS  NAME:SECONDS each: scripts in /etc/corral/init, in the order in which they are run, and how long each may take
run_init_scripts() {
	local script
	for script in ${CORRAL_INIT_SCRIPTS:-}; do
		ready "init script ${script%:*}" "${script##*:}" "/etc/corral/init/${script%:*}"
	done
}

#   CORRAL_NODE_EXTRA  the file into which a script may write what slurmctld has to keep as the node's Extra
export CORRAL_NODE_EXTRA=${CORRAL_NODE_EXTRA:-/run/corral-extra}
node_extra() {
	local lines
	mapfile -t lines <"$CORRAL_NODE_EXTRA"
	printf '%s' "${lines[*]}" | tr -d '[:cntrl:]'
}

# What Slurm can keep of it.
last_line() {
	local line
	# Nothing but empty lines is no failure.
	line=$(grep -v '^[[:space:]]*$' "$1" | tail -n 1 | tr -c '[:print:]\n' ' ' | cut -c 1-300) || true
	printf '%s' "${line:+: $line}"
}
