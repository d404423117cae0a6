# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""k8s_apply in the controller's process; renders the templates wherever the objects are applied from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render, warm
from ansible_collections.corral.slurm.plugins.module_utils._kube.rendered import members
from ansible_collections.corral.slurm.plugins.module_utils._kube.run import run
from ansible_collections.corral.slurm.plugins.plugin_utils._action import RENDERED, BackendAction, plain

# Ansible imports an action once and forks a worker for each task: what is warm here is warm in all of them.
warm()

# The model that was made plain last, and what came of it: one process may do many tasks of a run.
_plain: list[Any] = [None, None]


class ActionModule(BackendAction):
    """See the module for the options."""

    backend = staticmethod(run)

    def prepare(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Put the templates' objects behind the given ones."""
        names = params.pop("templates")
        variables = {**self._model(task_vars), **params.pop("variables")}
        paths = [Path(path) for path in params.pop("template_paths")]
        if names:
            templates = [Path(cast(Any, self)._find_needle("templates", name)) for name in names]
            rendered, origins = render(templates, variables, paths)
            given = params["objects"]
            params["objects"] = [*given, *rendered]
            params["origins"] = [*(f"objects[{index}]" for index in range(len(given))), *origins]
        return params

    def render(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Collect the objects for the last task of corral.slurm.render."""
        if params["state"] == "absent":
            return super().render(params, task_vars)
        namespace = str(params.get("namespace") or "")
        objects = members(params["objects"], params.get("applyset"), namespace)
        return {"changed": False, "ansible_facts": {RENDERED: [*task_vars["ansible_facts"].get(RENDERED, ()), *objects]}}

    def _model(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the variable ``corral`` as it stands: it is data, and templating a big dict again costs more than applying it."""
        model = task_vars.get("corral")
        if isinstance(model, str):  # written as an expression in vars
            model = self._templar.template(model)
        if _plain[0] is not model:
            _plain[:] = model, plain(model)
        return {} if model is None else {"corral": _plain[1]}
