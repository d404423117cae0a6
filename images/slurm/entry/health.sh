#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmd's HealthCheckProgram by the name that slurm.conf has for it; see health.py, which lies beside this file, or beside its folder in a checkout.
set -eu

exec /usr/bin/python3 -Es "$(dirname "$(readlink -f "$0")")/health.py" "$@"
