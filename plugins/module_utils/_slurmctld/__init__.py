# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live scheduler: backends that ask and tell slurmctld by commands in its pod. What is decided there is decided in _slurm."""
