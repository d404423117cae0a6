# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of slurm_cluster_model: the module's backend in the controller's process, which has the keys of vaulted documents."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from ansible.parsing.vault import is_encrypted

from ansible_collections.corral.slurm.plugins.module_utils import _live
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.plugin_utils._action import RENDERED, BackendAction, plain

_MOST = 16 << 20
_VAULTED = re.compile(r"\s*\$ANSIBLE_VAULT;[0-9A-Za-z.;_-]+\s[0-9a-f\s]+")


class ActionModule(BackendAction):
    """Checks a SlurmCluster document and returns the model of the cluster."""

    def prepare(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Read the file, once, for it may be a pipe; decrypt a vaulted one, and values that are vaulted in one."""
        path = params.get("path")
        if not path or not self._runs_here():
            return params
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MOST)
        except (OSError, ValueError):
            return params  # the module says why
        if is_encrypted(data):
            return {**params, "path": None, "document": self._decrypted(data, path)}
        document = self.module.parse(data, path, lambda value: self._decrypted_value(value, path))
        return {**params, "path": None, "document": document}

    def render(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the model as a pass has it where there is no cluster yet."""
        # A fact, which a cache may still have of another run.
        return {**_live.without_cluster(self.module.given(params)), "changed": False, "ansible_facts": {RENDERED: []}}

    def _decrypted_value(self, value: str, path: str) -> str:
        """Return the text of a value with the tag ``!vault``. Of the document, Ansible's reader sees this value alone: it has no bounds."""
        if not _VAULTED.fullmatch(value):
            raise CorralError(f"The document {path} has a value with the tag !vault that ansible-vault did not make; correct it there.")
        loader: Any = self._loader
        lines = "\n".join(f"  {line}" for line in value.split())
        return str(plain(loader.load(f"- !vault |\n{lines}\n", file_name=str(Path(path).absolute())))[0])

    def _decrypted(self, data: bytes, path: str) -> Any:
        loader: Any = self._loader
        name = str(Path(path).absolute())
        with tempfile.NamedTemporaryFile() as copy:
            source = name
            if not Path(path).is_file():  # a pipe is empty by now
                copy.write(data)
                copy.flush()
                source = copy.name
            real = loader.get_real_file(source)
            try:
                return self.module.read(real)
            except CorralError as error:
                raise CorralError(str(error).replace(real, name)) from error
            finally:
                loader.cleanup_tmp_file(real)
