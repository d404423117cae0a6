#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmd's HealthCheckProgram: can a step enter the jail, and users write there? A node that cannot goes out of service, with a reason of ours, before jobs are
# lost on it; it comes back by itself when it can again. Reasons of others are left alone, but for the one that Slurm gives a node
# whose batch job could not enter. So are nodes that others have set down or failing: "resume" would take that back, too.
#
# When more than a quarter of the nodes are out for that, it is the volume and not they: the next ones are not drained. A reservation of all
# nodes holds new jobs instead, renewed as long as a node fails, and removed by the first that finds all well.
set -euo pipefail

ours="corral: jail:"
outage=corral-jail-outage
node=$(</run/corral-node)

# With the plugin's own arguments, so that this tries what a step does; nothing of the jail is run, which would be whatever root there put in its place. At most
# one quick check: slurmd runs it again.
code=0
said=$(/opt/corral/bin/jail-exec --try --room plugstack=/run/slurm/conf/plugstack.conf wait=0 timeout=5 2>&1) || code=$?
# Without a response, or for a node that slurmctld does not show, this ends here: a drain that is not visible may belong to somebody.
shown=$(scontrol show node "$node" --oneliner)
state=$(sed -n 's/.* State=\([^ ]*\).*/\1/p' <<<"$shown")
reason=$(sed -n 's/.* Reason=//p' <<<"$shown")

# Sets $nodes, $out: how many of the others we took out of service, and $before: how many of those come before this one by name.
count_nodes() {
	local seen
	seen=$(sinfo -h -N -o '%N %T %E' | sort -u)
	nodes=$(wc -l <<<"$seen")
	read -r out before < <(awk -v node="$node" -v ours="$ours" '
		$1 != node && $2 ~ /^drain/ && index($0, ours) { out++; before += ($1 < node) }
		END { print out + 0, before + 0 }' <<<"$seen")
}

hold_jobs() {
	scontrol update "reservation=$outage" endtime=now+5minutes >/dev/null 2>&1 ||
		scontrol create "reservationname=$outage" starttime=now duration=5 nodes=ALL users=root flags=MAINT,IGNORE_JOBS
}

drain() {
	scontrol update "nodename=$node" state=drain "reason=$ours ${said#jail-exec: }"
}

# Down by Slurm's own doing, or its pod's: slurmd has responded since, so it is in service in a moment (ReturnToService=2). What slurmctld printed last counts.
comes_back() {
	case ${reason##* : } in
	"Not responding"* | "Node unexpectedly rebooted"* | "ResumeTimeout reached"* | "Communication error"*) return 0 ;;
	esac
	[[ $reason == "NO NETWORK ADDRESS FOUND"* || $reason == "corral: pod:"* || $reason == "corral: start:"* || $reason == "$ours"* ]]
}

others_took_it() {
	[[ $state == *+FAIL* ]] || { [[ $state == DOWN* ]] && ! comes_back; }
}

# 125: the entry failed; anything else, such as a signal, is no result about the jail.
if [ "$code" = 125 ]; then
	count_nodes
	most=$((nodes < 8 ? 1 : nodes / 4))
	if [[ $state != *DRAIN* ]]; then
		[ "$out" -ge "$most" ] || others_took_it || drain
	elif [[ $reason == "batch job complete failure"* ]]; then
		drain
	elif [[ $reason == "$ours"* && $before -ge $most ]]; then
		# Nodes that checked at the same time did not see each other.
		hold_jobs
		scontrol update "nodename=$node" state=resume
	fi
	[ "$out" -lt "$most" ] || hold_jobs
	exit 0
fi
# A registration that slurmctld refuses drains the node, with why, or first with the reason that it had before, if it had one. A good one leaves the drain as
# it is (24.11.5), so the node would stay out for ever by a message on how it began, or on what it lacked then. The messages are slurmctld's: see _slurm/reasons.py.
refusal='(Low socket\*core\*thread count|Low CPUs|Low TmpDisk|Low RealMemory \(reported:[^()]*\)'
refusal+='|[^ ,]+ count (reported lower than configured|too low) \([^()]*\))'
leftover() {
	[[ $state != *INVALID_REG* ]] || return 1
	[[ $reason == "NO NETWORK ADDRESS FOUND"* || $reason == "corral: pod:"* || $reason =~ ^$refusal(, $refusal)*\ \[slurm@[^][]*\](\ .*)?$ ]]
}

if [[ $state == *DRAIN* ]] && { [[ $reason == "$ours"* ]] || leftover; }; then # an idle node keeps the reason that it had
	scontrol update "nodename=$node" state=resume
fi
if [[ $state == *MAINT* ]] && scontrol show reservation "$outage" >/dev/null 2>&1; then
	count_nodes
	if [ "$out" = 0 ]; then
		scontrol delete "reservation=$outage"
	fi
fi
