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
# in memory, slurm.jwks, which has all files of the Secret: a key that is being rotated has another beside it (keys.sh), and the one without a suffix is
# that which signs. This script stays the container's first process: it ends when either of them does, so that the container is started again at once.
# SIGHUP has both take the keys that the volume has now. They keep their sockets.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

key=/etc/corral/slurm-key/slurm.key
sockets=/run/slurm
plugin=/opt/corral/lib/slurm/auth_slurm.so

[ -r "$key" ] || die "$key is missing or not readable by uid $(id -u): mount the Secret of Slurm's key there"
[ -e "$plugin" ] || die "this image's Slurm has no $plugin: choose an image of Slurm 24.05 or newer, or set spec.slurm.auth: munge"
rm -f "$sockets"/sack.socket "$sockets"/jail/sack.socket

digest() {
	cat "${key%/*}"/* | sha256sum | cut -c 1-16
}

# The kubelet exchanges all files at once, maybe while they are read.
take_keys() {
	local file kid use list known before=
	while [ "$before" != "$(digest)" ]; do
		before=$(digest)
		list='' known=' ' use=',"use":"default"'
		for file in "$key" "$key".*; do
			[ -s "$file" ] || continue
			kid=$(sha256sum <"$file" | cut -c 1-16)
			# Slurm ends with two of one name.
			[[ $known != *" $kid "* ]] || continue
			known+="$kid "
			list+="${list:+,}{\"alg\":\"HS256\",\"kty\":\"oct\",\"kid\":\"$kid\",\"k\":\"$(base64 -w 0 "$file")\"$use}"
			use=''
		done
	done
	install -m 0400 "$key" "$SLURM_SACK_KEY"
	rm -f "$SLURM_SACK_JWKS.new"
	(umask 0377 && printf '{"keys":[%s]}\n' "$list" >"$SLURM_SACK_JWKS.new")
	mv -f "$SLURM_SACK_JWKS.new" "$SLURM_SACK_JWKS"
	taken=$before
}

rm -f "${SLURM_SACK_KEY%/*}/used"
take_keys
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

# A daemon that did not take them in time must not go on with the former ones.
reload() {
	local pid tries before
	for pid in "${daemons[@]}"; do
		before=$(execution "$pid") && kill -HUP "$pid" || return 1
		tries=0
		until [ "$(execution "$pid" 2>/dev/null)" != "$before" ]; do
			tries=$((tries + 1))
			[ "$tries" -lt 100 ] || return 1
			sleep 0.1
		done
	done
	echo "$taken" >"${SLURM_SACK_KEY%/*}/used"
}

renew=
trap 'renew=yes' HUP
begin env LD_PRELOAD=/usr/local/lib/corral/auth_for_users.so
mkdir -p "$sockets/jail"
mv "$sockets/sack.socket" "$sockets/jail/sack.socket"
begin env
echo "$taken" >"${SLURM_SACK_KEY%/*}/used"
while :; do
	status=0
	# By their pids: without them bash may report one that has ended before, on request.
	[ -n "$renew" ] || wait -n "${daemons[@]}" || status=$?
	[ -n "$renew" ] || break
	renew=
	echo "sack.sh: both sackd take the keys that the Secret has now" >&2
	take_keys
	if ! reload; then
		end_daemons
		die "a sackd did not take the new keys within 10 s; the container is started again"
	fi
done
end_daemons
die "a sackd ended with status $status; the container is started again"
