# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of slurm_cluster_model: the module's backend in the controller's process, which has the keys of vaulted documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.parsing.vault import is_encrypted

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.modules import slurm_cluster_model
from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction, plain

_MOST = 16 << 20


class ActionModule(BackendAction):
    """Checks a SlurmCluster document and returns the model of the cluster."""

    argument_spec = staticmethod(slurm_cluster_model.argument_spec)
    backend = staticmethod(slurm_cluster_model.run)
    constraints = slurm_cluster_model.CONSTRAINTS

    def prepare(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Decrypt a vaulted file, and values that are vaulted in one. All other files are the module's to read."""
        path = params.get("path")
        if path and self._runs_here():
            try:
                with Path(path).open("rb") as file:
                    beginning = file.read(_MOST)
            except (OSError, ValueError):
                return params  # the module says why
            if is_encrypted(beginning):
                return {**params, "path": None, "document": self._decrypted(Path(path).absolute())}
            if re.search(rb":\s+!vault\s", beginning):
                loader: Any = self._loader
                return {**params, "path": None, "document": plain(loader.load_from_file(str(Path(path).absolute()), cache="none"))}
        return params

    def _decrypted(self, path: Path) -> Any:
        loader: Any = self._loader
        real = loader.get_real_file(str(path))
        try:
            return slurm_cluster_model.read(real)
        except CorralError as error:
            raise CorralError(str(error).replace(real, str(path))) from error
        finally:
            loader.cleanup_tmp_file(real)
