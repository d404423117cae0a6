#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Two sackd, as user slurm, in the place of munged where Slurm authenticates by itself (spec.slurm.auth). They make credentials for commands and for
# slurmstepd; the daemons have the key and make their own. Neither asks slurmctld for anything: what they need to know of the cluster is CORRAL_CLUSTER.
#
# The first is for those in the jail (auth_for_users.c); the directory of its socket is what they see as /run/sack.
# Every sackd of 24.11 makes its socket in /run/slurm, which here is the volume that the pod's other containers have at /run/sack. A socket that is
# moved stays the one that its daemon listens to.
#
# The key comes from the Secret's volume, whose files are root's; Slurm refuses a key that others may read. So all containers of the pod share a copy
# in memory. This script stays the container's first process: it ends when either of them does, so that the container is started again at once.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

key=/etc/corral/slurm-key/slurm.key
sockets=/run/slurm
plugin=/opt/corral/lib/slurm/auth_slurm.so

[ -r "$key" ] || die "$key is missing or not readable by uid $(id -u): mount the Secret of Slurm's key there"
[ -e "$plugin" ] || die "this image's Slurm has no $plugin: choose an image of Slurm 24.05 or newer, or set spec.slurm.auth: munge"
rm -f "$sockets"/sack.socket "$sockets"/jail/sack.socket
install -m 0400 "$key" "$SLURM_SACK_KEY"
conf=${SLURM_SACK_KEY%/*}/sackd.conf
cat >"$conf" <<-END
	ClusterName=$CORRAL_CLUSTER
	SlurmctldHost=none
	SlurmUser=slurm
	AuthType=auth/slurm
	CredType=cred/slurm
	PluginDir=${plugin%/*}
END

daemons=()
trap 'end_daemons; exit 0' TERM

begin() {
	local tries=0
	"$@" /usr/sbin/sackd -D -f "$conf" &
	daemons+=("$!")
	until [ -S "$sockets/sack.socket" ]; do
		tries=$((tries + 1))
		if [ "$tries" -ge 200 ] || ! kill -0 "$!" 2>/dev/null; then
			end_daemons
			die "a sackd did not make its socket: its output stands above"
		fi
		sleep 0.05
	done
}

begin env LD_PRELOAD=/usr/local/lib/corral/auth_for_users.so
mkdir -p "$sockets/jail"
mv "$sockets/sack.socket" "$sockets/jail/sack.socket"
begin env
status=0
wait -n "${daemons[@]}" || status=$?
end_daemons
die "a sackd ended with status $status; the container is started again"
