#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# sackd: fetches Slurm's configuration from slurmctld (SLURM_CONF_SERVER, host:port) into /run/slurm/conf and keeps it fresh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

[ -n "${SLURM_CONF_SERVER:-}" ] || die "SLURM_CONF_SERVER is not set: it names slurmctld as host:port"
run=()
if [ -d "$sack_key" ]; then
	# This sackd, too, makes a socket for credentials, where those in the jail have theirs. So to it root is nobody, and then the pod's link takes the place.
	run=(env LD_PRELOAD=/usr/local/lib/corral/auth_for_users.so)
	while :; do
		if [ -S /run/slurm/sack.socket ] && [ ! -L /run/slurm/sack.socket ]; then
			link_sack_socket
		fi
		sleep 1
	done &
else
	wait_for_munge
fi
# As the first process of its container it would ignore SIGTERM, and the pod would take the whole grace period to end.
exec "${run[@]}" tini -- /usr/sbin/sackd -D --conf-server "$(conf_servers)" "$@"
