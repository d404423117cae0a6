# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster is compared in the controller's process when the connection is local, else by the module."""

from __future__ import annotations

from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction


class ActionModule(BackendAction):
    """See the module for the options."""
