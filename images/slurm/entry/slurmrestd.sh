#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmrestd, as a user of its own, on a socket for the proxy beside it. It has no key: it passes tokens on to slurmctld and slurmdbd.
#   CORRAL_OPENAPI  slurmctld, and slurmdbd where there is accounting, without which slurmrestd does not load that part
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

export SLURM_CONF=/etc/corral/rest/slurm.conf
[ -r "$SLURM_CONF" ] || die "$SLURM_CONF is missing: mount its ConfigMap there"

# The names of users are read where a jail would have them, and from plain files alone, which those of a ConfigMap are not.
copy_accounts() {
	local file
	for file in passwd group; do
		cmp -s "/etc/corral/rest/$file" "/mnt/jail/etc/$file" && continue
		install -m 0644 "/etc/corral/rest/$file" "/mnt/jail/etc/.$file"
		mv -f "/mnt/jail/etc/.$file" "/mnt/jail/etc/$file"
	done
}
copy_accounts
while sleep 60; do
	copy_accounts || echo "slurmrestd.sh: the names of users cannot be read again" >&2
done &

# Its unshare(2) is refused by RuntimeDefault's seccomp, and no other process of this container has anything to share.
export SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files
# Of the container before.
rm -f /run/slurmrestd/rest.sock
# The proxy logs requests, and slurmrestd would log those of the proxy's own probe too. Errors stay.
exec tini -- /usr/sbin/slurmrestd -a rest_auth/jwt -s "$CORRAL_OPENAPI" --max-connections 64 "$@" unix:/run/slurmrestd/rest.sock \
	2> >(exec grep --line-buffered -Ev 'operations_router: \[[^]]*\] [A-Z]+ /|token authentication pass through$' >&2)
