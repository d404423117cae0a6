# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' API: requests, server-side apply in batches, prune, waits, diffs, exec. Knows neither Slurm nor Ansible."""
