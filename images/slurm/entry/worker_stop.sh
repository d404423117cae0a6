#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Before slurmd is ended with its pod: slurmctld would find out only after SlurmdTimeout, and a job that it sent here meanwhile would hang. The node
# comes back when the next pod's slurmd registers (ReturnToService=2). A drain stays whose it is, and so does the reason of a node that is down.
# Never fails: the pod ends all the same.
#
# slurmctld carries out a command also when it gets to it late (while it reads its configuration, for instance) and the sender no longer waits. The node's next
# pod may run jobs by then, and they would be begun anew. So the order is good only for as long as it is waited for: an older one is refused. munge is asked for
# such a credential. Slurm's own live as long as sackd gives them, so a sackd for this order alone makes them, in a view of the pod where nobody else has its
# socket. That one serves also where the container sack has ended or is just starting: the key is in a volume that both have.
set -uo pipefail

conf=/run/slurm/conf/slurm.conf
sackd_conf=/run/slurm-key/sackd.conf
sockets=/run/slurm
patience=5

report() {
	local node state
	node=$(</run/corral-node)
	state=$(timeout "$patience" scontrol show node "$node" --oneliner 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p')
	[[ -n $state && $state != DOWN* && $state != *DRAIN* ]] || return
	timeout "$patience" scontrol update "nodename=$node" state=down \
		"reason=corral: pod: it ended, and the next one has not registered yet" >/dev/null 2>&1
}

with_own_sackd() {
	local tries=0 daemon
	mount -t tmpfs -o size=1m,mode=0755,uid=64030,gid=64030 own "$sockets" || return
	setpriv --reuid 64030 --regid 64030 --clear-groups env SLURM_SACK_JWKS="${sackd_conf%/*}/slurm.jwks" \
		/usr/sbin/sackd -D -f "$SACKD_CONF" >/dev/null 2>&1 &
	daemon=$!
	until [ -S "$sockets/sack.socket" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 40 ] || break
		sleep 0.05
	done
	[ ! -S "$sockets/sack.socket" ] || report
	kill "$daemon" 2>/dev/null
}

if [ "${1:-}" = with-own-sackd ]; then
	with_own_sackd
	exit 0
fi
# The configuration is where the sockets are.
orders=$(mktemp -d) || exit 0
export SLURM_CONF=$orders/slurm.conf SACKD_CONF=$orders/sackd.conf
if grep -q '^AuthInfo=socket=' "$conf"; then
	sed "s/^AuthInfo=socket=.*/&,ttl=$patience/" "$conf" >"$SLURM_CONF"
	report
elif [ -r "$sackd_conf" ]; then
	cp "$conf" "$SLURM_CONF"
	(cat "$sackd_conf" && echo "AuthInfo=ttl=$patience") >"$SACKD_CONF"
	chmod 0755 "$orders"
	unshare --mount -- "$0" with-own-sackd
fi
rm -rf "$orders"
exit 0
