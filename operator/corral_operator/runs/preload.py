# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of ``ansible-playbook`` can be done once and for all, and the rest of it, which each run does.

This is ``ansible.cli.playbook.PlaybookCLI.run`` cut in two: its first half (plugin loader, inventory, the parsed files of the collection) is
made by the zygote, its second half (variables, playbook, tasks) by the fork. It is the only place that leans on ansible-core's inside.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleError
from ansible.executor.playbook_executor import PlaybookExecutor
from ansible.playbook import Playbook
from ansible.plugins.loader import action_loader, init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _get_collection_playbook_path
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

from corral_operator.runs import in_process
from corral_operator.runs.processes import INTERRUPTED

PLAYBOOKS = ("corral.slurm.site", "corral.slurm.destroy", "corral.slurm.sync")
# Any document does: it is about the code that it takes, and nothing of it is kept.
_DOCUMENT = {
    "apiVersion": "corral.hpc/v1alpha1",
    "kind": "SlurmCluster",
    "metadata": {"name": "rehearsal", "namespace": "rehearsal"},
    "spec": {
        "images": {"slurm": "rehearsal"},
        "controller": {"stateVolume": {"hostPath": "/rehearsal", "size": "1Gi"}},
        "nodeSets": [{"name": "cpu", "replicas": 1, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "partitions": [{"name": "main", "default": True}],
        "jail": {"volume": {"hostPath": "/rehearsal", "size": "1Gi"}, "populate": {"image": "rehearsal"}},
    },
}
# What a pass sees that finds all as it shall be.
_LIVE: dict[str, Any] = {
    "note": False,
    "pending": False,
    "removed_users": [],
    "api_server": {"ipv4": [], "ipv6": [], "within": {"0.0.0.0/0": [], "::/0": []}, "record": ""},
    "new_node_sets": [],
    "shrinks": False,
    "retired": [],
    "retained_lines": [],
    "files": None,
}
# What a module returns of each type that finds nothing to do.
_NOTHING: dict[str, Any] = {"bool": False, "int": 0, "str": "", "list": [], "dict": {}}

_made: dict[str, Any] = {}


def make() -> None:
    """Load what all runs share, and rehearse the playbook that makes clusters: what Ansible and Jinja remember of it is there for all runs."""
    Path(constants.config.get_config_value("ANSIBLE_HOME")).expanduser().mkdir(mode=0o700, parents=True, exist_ok=True)
    cli = PlaybookCLI(["ansible-playbook", "-i", "localhost,", *PLAYBOOKS])
    cli.parse()
    init_plugin_loader()
    in_process.install()
    loader, inventory, variables = cli._play_prereqs()
    collection = importlib.import_module("ansible_collections.corral.slurm")
    names = [path.stem for path in sorted(Path(collection.__path__[0], "plugins", "action").glob("*.py"))]
    actions = [action_loader.get(f"corral.slurm.{name}", class_only=True) for name in names]
    _made.update(loader=loader, inventory=inventory, variables=variables, playbooks={}, rehearsed={}, tasks={}, actions=actions)
    rehearse(PLAYBOOKS[0])


def rehearse(playbook: str) -> None:
    """Run a playbook that asks and tells nobody, and load it once more for the runs. Until that is done a run loads it by itself."""
    loader, inventory, variables = _made["loader"], _made["inventory"], _made["variables"]
    variables.extra_vars.update(slurm_cluster=_DOCUMENT, confirm="rehearsal", keep_data=True)
    before = in_process.begun
    with _rehearsal(_made["actions"]):
        _made["rehearsed"][playbook] = int(PlaybookExecutor([playbook], inventory, variables, loader, {}).run())
    _made["tasks"][playbook] = in_process.begun - before
    variables.extra_vars.clear()  # all managers of a process share them
    # This one has not been run: each run finds it as it was loaded, in its own copy of this process.
    variables = _made["variables"] = VariableManager(
        loader=loader, inventory=inventory, version_info=PlaybookCLI.version_info(gitinfo=False)
    )
    path = _get_collection_playbook_path(playbook)[1]
    _made["playbooks"][path] = Playbook.load(path, variables, loader)


@contextlib.contextmanager
def _rehearsal(actions: list[Any]) -> Iterator[None]:
    """Let none of the collection's actions ask or tell anybody. The model is computed in earnest, of the document alone."""
    backends = {action: action.backend for action in actions}
    for action, backend in backends.items():
        name = action.__module__.rpartition(".")[2]
        answer = functools.partial(_model, backend) if name == "slurm_cluster_model" else functools.partial(_nothing_to_do, name)
        action.backend = staticmethod(answer)
    try:
        yield
    finally:
        for action, backend in backends.items():
            action.backend = staticmethod(backend)


def _model(backend: Any, params: dict[str, Any], **modes: bool) -> dict[str, Any]:
    return {**backend({**params, "live": False}, **modes), "live": _LIVE}


def _nothing_to_do(name: str, _params: dict[str, Any], **_modes: bool) -> dict[str, Any]:
    """Answer as a module does, by its own documentation, when all is as it shall be."""
    return {"changed": False, **{key: copy.copy(_NOTHING[kind]) for key, kind in _returned(name).items()}}


@functools.cache
def _returned(name: str) -> dict[str, str]:
    """Return what a module returns in any case, and of which type."""
    documented = yaml.safe_load(importlib.import_module(f"ansible_collections.corral.slurm.plugins.modules.{name}").RETURN)
    return {key: one["type"] for key, one in documented.items() if one["returned"].startswith(("always", "success", "with "))}


def plan(playbook: str) -> dict[str, Any] | None:
    """Return what is told of a run before it begins: of how many tasks it is, if it finds nothing to do."""
    tasks = _made["tasks"].get(playbook)
    return None if tasks is None else {"kind": "plan", "tasks": tasks}


def run(playbook: str, extravars: Path) -> int:
    """Do what ``ansible-playbook -i localhost, -e @extravars playbook`` does; return its exit status."""
    loader, inventory, variables = _made["loader"], _made["inventory"], _made["variables"]
    load: Any = Playbook.load
    in_process.replace(
        Playbook, "load", staticmethod(lambda path, *rest, **named: _made["playbooks"].get(path) or load(path, *rest, **named))
    )
    try:
        variables.extra_vars.update(loader.load_from_file(str(extravars), cache="none", trusted_as_template=True))
        return int(PlaybookExecutor([playbook], inventory, variables, loader, {}).run())
    except KeyboardInterrupt:
        return INTERRUPTED
    except AnsibleError as error:
        Display().error(error)
        return int(error._exit_code)
