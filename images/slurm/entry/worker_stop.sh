#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Before slurmd is ended with its pod: slurmctld would find out only after SlurmdTimeout, and a job that it sent here meanwhile would hang. The node
# comes back when the next pod's slurmd registers (ReturnToService=2). A drain stays whose it is, and so does the reason of a node that is down.
# Never fails: the pod ends all the same.
set -uo pipefail

conf=/run/slurm/conf/slurm.conf
patience=5
node=$(</run/corral-node)
state=$(timeout "$patience" scontrol show node "$node" --oneliner 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p')
if [[ -n $state && $state != DOWN* && $state != *DRAIN* ]]; then
	# slurmctld carries out a command also when it gets to it late (while it reads its configuration, for instance) and the sender no longer waits. The node's next
	# pod may run jobs by then, and they would be begun anew. So the order is good only for as long as it is waited for: munge refuses an older one. Slurm's own
	# credentials live as long as sackd has it, whatever a command asks for; then there is no order, and SlurmdTimeout detects the loss.
	orders=$(mktemp) || exit 0
	sed "s/^AuthInfo=socket=.*/&,ttl=$patience/" "$conf" >"$orders"
	! grep -q "^AuthInfo=.*,ttl=$patience\$" "$orders" ||
		SLURM_CONF=$orders timeout "$patience" scontrol update "nodename=$node" state=down \
			"reason=corral: pod: it ended, and the next one has not registered yet" >/dev/null 2>&1
	rm -f "$orders"
fi
exit 0
