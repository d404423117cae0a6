#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmctld, as user slurm, with the configuration of a ConfigMap in /etc/slurm and its state in /var/spool/slurmctld.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

[ -r /etc/slurm/slurm.conf ] || die "/etc/slurm/slurm.conf is missing: mount the cluster's ConfigMap there"
[ -w /var/spool/slurmctld ] || die "/var/spool/slurmctld is not writable by uid $(id -u): give the pod fsGroup 64030 or own the volume by 64030"
install_token_key
wait_for_auth
exec /usr/bin/python3 /usr/local/lib/corral/controller.py run "$@"
