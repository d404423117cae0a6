# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator of SlurmClusters: watch, queue, a run of the playbook, status."""
