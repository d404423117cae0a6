#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# /bin/su as slurmd sees it, which runs "su - USER -c ..." as root to learn a user's environment (sbatch --get-user-env, and --export with anything
# but ALL and NIL). That runs the user's login files, so it is done by the jail's su, in the jail, without the capabilities that lead out.
set -euo pipefail
shopt -s extglob

# Debian's slurmstepd, which is to print the environment and the limits, is not in the jail; the bundle's is.
tell=/usr/bin/env
if [ -x /opt/corral/sbin/slurmstepd ]; then
	tell="/opt/corral/sbin/slurmstepd getenv"
fi
exec /opt/corral/bin/jail-exec plugstack=/run/slurm/conf/plugstack.conf -- su "${@/; +([^;])\/slurmstepd getenv;/; $tell;}"
