#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# sackd: fetches Slurm's configuration from slurmctld (SLURM_CONF_SERVER, host:port) into /run/slurm/conf and keeps it fresh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

[ -n "${SLURM_CONF_SERVER:-}" ] || die "SLURM_CONF_SERVER is not set: it names slurmctld as host:port"
wait_for_munge
# As the first process of its container it would ignore SIGTERM, and the pod would take the whole grace period to end.
exec tini -- /usr/sbin/sackd -D --conf-server "$(conf_servers)" "$@"
