# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of ``ansible-playbook`` can be done once and for all, and the rest of it, which each run does.

This is ``ansible.cli.playbook.PlaybookCLI.run`` cut in two: its first half (plugin loader, inventory, the parsed files of the collection) is
made by the zygote, its second half (variables, playbook, tasks) by the fork. It is the only place that leans on ansible-core's inside.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleError
from ansible.executor.playbook_executor import PlaybookExecutor
from ansible.playbook import Playbook
from ansible.plugins.loader import action_loader, init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _get_collection_playbook_path
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

from corral_operator.play import KEYBOARD_INTERRUPT

PLAYBOOKS = ("corral.slurm.site", "corral.slurm.destroy", "corral.slurm.sync")

_made: dict[str, Any] = {}


def make() -> None:
    """Load what all runs share. Runs the playbooks to their first task, which fails for want of a document."""
    Path(constants.config.get_config_value("ANSIBLE_HOME")).expanduser().mkdir(mode=0o700, parents=True, exist_ok=True)
    cli = PlaybookCLI(["ansible-playbook", "-i", "localhost,", *PLAYBOOKS])
    cli.parse()
    init_plugin_loader()
    loader, inventory, variables = cli._play_prereqs()
    variables.extra_vars.update(slurm_cluster_file="/nonexistent")
    for playbook in PLAYBOOKS:
        PlaybookExecutor([playbook], inventory, variables, loader, {}).run()
    # These have not been run: each run finds them as they were loaded, in its own copy of this process.
    variables = VariableManager(loader=loader, inventory=inventory, version_info=PlaybookCLI.version_info(gitinfo=False))
    loaded = {path: Playbook.load(path, variables, loader) for path in (_get_collection_playbook_path(name)[1] for name in PLAYBOOKS)}
    collection = importlib.import_module("ansible_collections.corral.slurm")
    for path in sorted(Path(collection.__path__[0], "plugins", "action").glob("*.py")):
        action_loader.get(f"corral.slurm.{path.stem}", class_only=True)
    _made.update(loader=loader, inventory=inventory, variables=variables, playbooks=loaded)


def run(playbook: str, extravars: Path) -> int:
    """Do what ``ansible-playbook -i localhost, -e @extravars playbook`` does; return its exit status."""
    loader, inventory, variables = _made["loader"], _made["inventory"], _made["variables"]
    load: Any = Playbook.load
    # mypy lets nobody assign to a method, and ruff would have it assigned.
    setattr(Playbook, "load", staticmethod(lambda path, *rest, **named: _made["playbooks"].get(path) or load(path, *rest, **named)))  # noqa: B010
    try:
        variables.extra_vars.update(loader.load_from_file(str(extravars), cache="none", trusted_as_template=True))
        return int(PlaybookExecutor([playbook], inventory, variables, loader, {}).run())
    except KeyboardInterrupt:
        return KEYBOARD_INTERRUPT
    except AnsibleError as error:
        Display().error(error)
        return int(error._exit_code)
