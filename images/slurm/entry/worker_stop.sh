#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Before slurmd is ended with its pod: slurmctld would find out only after SlurmdTimeout, and a job that it sent here meanwhile would hang. The node
# comes back when the next pod's slurmd registers (ReturnToService=2). A drain stays whose it is, and so does the reason of a node that is down.
# Never fails: the pod goes all the same.
set -uo pipefail

node=$(</run/corral-node)
state=$(timeout 5 scontrol show node "$node" --oneliner 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p')
if [[ -n $state && $state != DOWN* && $state != *DRAIN* ]]; then
	timeout 5 scontrol update "nodename=$node" state=down "reason=corral: pod: it ended, and the next one has not registered yet" >/dev/null 2>&1
fi
exit 0
