# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugins with options, as Ansible's loader makes them. That one cannot be used where the collection has been imported the usual way before."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

from ansible import constants as C

Plugin = TypeVar("Plugin")


@functools.cache
def documentation(kind: str, name: str) -> dict[str, Any]:
    """What ansible-doc makes of a plugin: fragments merged in, defaults filled."""
    command = [str(Path(sys.executable).with_name("ansible-doc")), "--type", kind, "--json", name]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[name]
    return found


def configured(kind: str, name: str, made: Plugin) -> Plugin:
    """Have a plugin know its options."""
    C.config.initialize_plugin_configuration_definitions(kind, name, documentation(kind, name)["doc"]["options"])
    for attribute, value in {"_load_name": name, "ansible_name": name, "ansible_aliases": [name], "_redirected_names": [name]}.items():
        setattr(made, attribute, value)
    return made
