#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmd's HealthCheckProgram: can a step enter the jail? A node that can not goes out of service, with a reason of ours, before jobs are
# lost on it; it comes back by itself when it can again. Reasons of others are left alone, but for the one that Slurm gives a node
# whose batch job could not enter.
set -euo pipefail

ours="corral: jail:"
node=$(</run/corral-node)

# The plugin's own words, so that this tries what a step does. At most one quick look: slurmd asks again.
words=()
while read -r word; do
	words+=("$word")
done < <(sed -n 's/^ *required .*spank_corral_jail\.so *//p' /run/slurm/conf/plugstack.conf | tr ' ' '\n')

code=0
said=$(/opt/corral/bin/jail-exec "${words[@]}" wait=0 timeout=5 -- /bin/true 2>&1) || code=$?
shown=$(scontrol show node "$node" --oneliner)
state=$(sed -n 's/.* State=\([^ ]*\).*/\1/p' <<<"$shown")
reason=$(sed -n 's/.* Reason=//p' <<<"$shown")

# 125: the entry failed; anything else is the command's.
if [ "$code" = 125 ]; then
	if [[ $state != *DRAIN* || $reason == "batch job complete failure"* ]]; then
		scontrol update "nodename=$node" state=drain "reason=$ours ${said#jail-exec: }"
	fi
elif [[ $state == *DRAIN* && $reason == "$ours"* ]]; then # an idle node keeps the reason that it had
	scontrol update "nodename=$node" state=resume
fi
