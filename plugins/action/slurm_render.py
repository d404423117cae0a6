# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are written in the controller's process when the connection is local, else by the module."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction


class ActionModule(BackendAction):
    """See the module for the options."""

    def render(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Write the objects: the one task of corral.slurm.render that does something."""
        return self.module.backend(params, check=bool(self._task.check_mode), diff=bool(self._task.diff))
