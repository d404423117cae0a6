# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.health.prolog and epilog: Slurm's Prolog and Epilog, their settings and the site's scripts. Pure.

slurmctld sends both programs to slurmd with its configuration, because their paths are relative. So a pod has them as soon as slurm.conf names them: where
Slurm does not find its Prolog it drains the node and refuses the job. What they run is in the slurm image (images/slurm/entry/job_hook.sh), and an image
that is older than slurm.conf has none.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

HOOKS = ("prolog", "epilog")
PROGRAM = "/usr/local/lib/corral/job_hook.sh"
# Where the pods have the scripts of the document.
FOLDER = "/etc/corral/health"
# A failing prolog has the job requeued; without this it would then wait for an administrator.
NO_HOLD = "nohold_on_prolog_fail"
# Where the pods have the jail, and /home as a link to it.
_JAIL = ("/mnt/jail", "/mnt/jails", "/mnt/submounts", "/mnt/homes", "/home")
_ACTIONS = {"Drain": "drain", "DrainAlways": "always", "Log": "log"}


def lines(health: Json, hook: str) -> list[str]:
    """Return the settings of a hook, see job_hook.sh; none where it has nothing to do."""
    given = health[hook]
    found = []
    mapping = health.get("gpuJobMapping")
    if hook == "epilog":
        found += [f"gpus {mapping}"] if mapping else []
        found += ["leftovers"] if given["killLeftovers"] else []
    elif health["enabled"] and not given["checks"]:
        # With checks these are run again too.
        found.append("last")
    if hook == "prolog" and given["checks"]:
        found.append(f"checks {','.join(given['checks'])}")
    for script in given["scripts"]:
        kind = "directory" if "directory" in script else "script"
        path = script.get("directory") or f"{FOLDER}/{_file(hook, script['name'])}"
        found.append(f"{kind} {script['name']} {script['timeoutSeconds']} {_ACTIONS[script['onFailure']]} {path}")
    if hook == "epilog" and given["checks"]:
        found.append(f"checks {','.join(given['checks'])}")
    if hook == "prolog" and mapping:
        found.append(f"gpus {mapping}")
    return found


def slurm_conf(health: Json) -> dict[str, conf.Value]:
    """Return settings of slurm.conf."""
    return {hook.capitalize(): f"{hook}.sh" for hook in HOOKS if lines(health, hook)}


def items(health: Json) -> dict[str, str]:
    """Return what is added to lists of slurm.conf."""
    return {"SchedulerParameters": NO_HOLD} if "Prolog" in slurm_conf(health) else {}


def programs(health: Json) -> dict[str, str]:
    """Return the programs that slurmctld sends to slurmd."""
    return {f"{hook}.sh": f"#!/bin/sh\n[ ! -x {PROGRAM} ] || exec {PROGRAM} {hook}\n" for hook in HOOKS if lines(health, hook)}


def files(health: Json) -> dict[str, str]:
    """Return the files for the ConfigMap of the pods."""
    found = {}
    for hook in HOOKS:
        settings = lines(health, hook)
        if settings:
            found[f"{hook}.conf"] = "".join(f"{line}\n" for line in settings)
        for script in health[hook]["scripts"]:
            if "script" in script:
                found[_file(hook, script["name"])] = script["script"]
            elif "command" in script:
                found[_file(hook, script["name"])] = f"#!/bin/sh\nexec {shlex.join(script['command'])}\n"
    return found


def errors(spec: Json, known: frozenset[str], extra: Mapping[str, str]) -> Iterator[str]:
    """What the structure cannot say. ``known`` are the names of all checks, ``extra`` the site's own lines of slurm.conf, keys in lower case."""
    health = spec["health"]
    # Whoever is root in the jail could put another program there, or a link. Volumes of the jail are at the same paths in the pod.
    jail = (*_JAIL, *(mount["path"] for mount in spec["jail"]["subMounts"]))
    for hook in HOOKS:
        path = f"spec.health.{hook}"
        for index, name in enumerate(health[hook]["checks"]):
            if name not in known:
                yield f"{path}.checks[{index}] is {name}, which is neither a check of the catalogue (docs/health.md) nor one of spec.health.checks; correct it."
            elif name in health["disabledChecks"]:
                yield f"{path}.checks[{index}] is {name}, which spec.health.disabledChecks switches off; remove it from one of them."
        for index, script in enumerate(health[hook]["scripts"]):
            where, field = (script["directory"], "directory") if "directory" in script else (script.get("command", [""])[0], "command")
            yield from _outside(f"{path}.scripts[{index}].{field}", where, jail)
        if hook in extra and (health[hook]["scripts"] or health[hook]["checks"]):
            yield (
                f"spec.slurm.extraConfig sets {hook.capitalize()}, in whose place {path} would not be run; name that program in a script of {path}, "
                "and remove the line."
            )
    if "gpuJobMapping" in health:
        yield from _outside("spec.health.gpuJobMapping", health["gpuJobMapping"], jail)
    if "gpuJobMapping" in health and extra.keys() & set(HOOKS):
        yield "spec.slurm.extraConfig sets Prolog or Epilog, so spec.health.gpuJobMapping would not be written; remove one of them."


def _outside(path: str, where: str, jail: Sequence[str]) -> Iterator[str]:
    if ".." in where.split("/") or any(where == one or where.startswith(f"{one}/") for one in jail):
        yield f"{path} is {where}, which is in the jail, where users with root change it; choose a path of the pod, such as one of spec.nodeSets[].volumes."


def _file(hook: str, name: str) -> str:
    # No name of a check has a dot.
    return f"{hook}.d.{name}"
