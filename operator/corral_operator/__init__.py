# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator of SlurmClusters: it watches, queues, runs playbooks and writes the status."""
