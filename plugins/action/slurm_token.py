# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens are made in the controller's process when the connection is local, else by the module; none is shown."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction


class ActionModule(BackendAction):
    """See the module for the options."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Have Ansible show the result as if the task had no_log, unless it holds an error alone."""
        result = super().run(tmp, task_vars)
        return {**result, "_ansible_no_log": True} if "token" in result else result
