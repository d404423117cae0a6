# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of slurm_cluster_model: the module's backend in the controller's process."""

from __future__ import annotations

from ansible_collections.corral.slurm.plugins.modules import slurm_cluster_model
from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction


class ActionModule(BackendAction):
    """Checks a SlurmCluster document and returns the model of the cluster."""

    argument_spec = staticmethod(slurm_cluster_model.argument_spec)
    backend = staticmethod(slurm_cluster_model.run)
    constraints = slurm_cluster_model.CONSTRAINTS
