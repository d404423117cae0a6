# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model with nodes that should go, for as long as jobs are on them: the document no longer has them, or none at all for a while. Pure.

slurmctld ends the jobs of a node, and of a partition, that its configuration no longer has. So their lines stay as they were, in the partitions in
which they were, until the last job has left; the pods stay as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import config
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, hostlist

Json = dict[str, Any]

_FILE = "slurm.conf"
_GRES = "gres.conf"
_PLUGINS = "plugstack.conf"


def retain(model: Json, retained: Json) -> Json:
    """Return a copy of ``model`` (see Model.to_dict) with ``retained``, the ``retained_config`` of scale.decide.

    ``retained`` has ``replicas`` (pods by node set), ``nodes`` (lines as lists of pairs) and ``partitions`` (``name``, ``nodes`` as a hostlist, and
    the ``line`` that it had, and where its jobs have a jail of their own, ``jail``, its words of plugstack.conf), and
    may have ``gres`` (lines of gres.conf, as those of nodes); ``hardware`` has lines of nodes that stay with the pods that they have, which stand
    instead of the document's.
    Raises ConfError for a line that Slurm would not read.
    """
    if not retained:
        return model
    original, replicas = model["config"]["files"], retained.get("replicas", {})
    files, fingerprint = original, model["config"]["hash"]
    if retained.get("nodes") or retained.get("partitions") or retained.get("hardware"):
        former = {name for line in retained.get("hardware", ()) for name in hostlist.expand(dict(line)["NodeName"])}
        files = {**files, _FILE: _text(files[_FILE], retained, former)}
        narrowed = _narrowed(files.get(_GRES, ""), former)
        gres = _gres(narrowed, retained.get("gres", ())) or narrowed
        if gres != files.get(_GRES, ""):
            files = {**files, _GRES: gres}
        types = [value for line in retained.get("gres", ()) for key, value in line if key.lower() == "name"] + _types(
            retained.get("hardware", ())
        )
        if types:
            files = {**files, _FILE: _with_types(files[_FILE], types)}
        files = {**files, _PLUGINS: _plugins(files[_PLUGINS], original[_FILE], retained)}
        files, fingerprint = config.with_hash(files)
    node_sets = [{**node_set, "pods": replicas.get(node_set["name"], node_set["pods"])} for node_set in model["workers"]["node_sets"]]
    # Who waits for a job in a session on a login node would lose it with that session.
    login = model["login"]["replicas"] if any(retained.get(key) for key in ("replicas", "nodes", "partitions")) else model["login"]["pods"]
    return {
        **model,
        "login": {**model["login"], "pods": login},
        "workers": {**model["workers"], "node_sets": node_sets},
        "config": {**model["config"], "files": files, "hash": fingerprint},
    }


def _narrowed(text: str, names: set[str]) -> str:
    """Return slurm.conf or gres.conf without the lines of these nodes."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("NodeName=") and names:
            line = conf.line(conf.narrowed(dict(conf.parse_pairs(line)), lambda name: name not in names).items())
            if not line:
                continue
        lines.append(line)
    return "\n".join(lines) + "\n" if lines else ""


def _gres(text: str, lines: Iterable[list[list[str]]]) -> str:
    """Return gres.conf with these lines too, for the nodes that it does not have with the same resource; "" where nothing is added."""
    wanted = [dict(line) for line in lines]
    # Of each resource that is asked for, and of no other: the document's lines can name a million nodes.
    known: dict[tuple[tuple[str, str], ...], set[str]] = {_resource(pairs): set() for pairs in wanted}
    for pairs in conf.node_lines(text) if wanted else ():
        if _resource(pairs) in known:
            known[_resource(pairs)].update(hostlist.expand(pairs["NodeName"]))
    more = []
    for pairs in wanted:
        nodes = [node for node in hostlist.expand(pairs["NodeName"]) if node not in known[_resource(pairs)]]
        if nodes:
            more.append(conf.line([("NodeName", hostlist.compress(nodes)), *((key, pairs[key]) for key in pairs if key != "NodeName")]))
    return "\n".join([*text.splitlines(), *more]) + "\n" if more else ""


def _resource(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what a line of gres.conf says of its nodes."""
    return tuple(sorted((key, value) for key, value in pairs.items() if key != "NodeName"))


def _plugins(text: str, document: str, retained: Json) -> str:
    """Return plugstack.conf in which the steps of jobs in a partition that the document no longer has start in the jail that they started in."""
    known = {dict(conf.parse_pairs(line))["PartitionName"] for line in document.splitlines() if line.startswith("PartitionName=")}
    there = {argument.partition("=")[0] for argument in text.split()}
    arguments = [
        f"{key}={value}"
        for partition in retained.get("partitions", ())
        if partition["name"] not in known
        for key, value in partition.get("jail", ())
        if key not in there
    ]
    arguments = list(dict.fromkeys(arguments))  # two partitions may share a jail
    return f"{text.rstrip()} {' '.join(arguments)}\n" if arguments else text


def _types(lines: Iterable[list[list[str]]]) -> list[str]:
    """Return the types of generic resources that lines of nodes name."""
    values = [value for line in lines for key, value in line if key.lower() == "gres"]
    return [one.partition(":")[0] for value in values for one in value.split(",")]


def _with_types(text: str, types: Iterable[str]) -> str:
    """Return slurm.conf with these in GresTypes: slurmctld refuses a node's Gres of another type."""
    lines_of = text.splitlines()
    names = dict.fromkeys(types)
    for number, line in enumerate(lines_of):
        if line.lower().startswith("grestypes="):
            key, known = conf.parse_pair(line)
            lines_of[number] = conf.line([(key, ",".join(dict.fromkeys([*known.split(","), *names])))])
            return "\n".join(lines_of) + "\n"
    first = next((number for number, line in enumerate(lines_of) if line.startswith("NodeName=")), len(lines_of))
    return "\n".join([*lines_of[:first], conf.line([("GresTypes", ",".join(names))]), *lines_of[first:]]) + "\n"


def _text(text: str, retained: Json, former: set[str]) -> str:
    """Return slurm.conf with what is held; ``former`` are the nodes that have the lines of their pods instead of its own."""
    partitions = {partition["name"]: partition for partition in retained.get("partitions", ())}
    # Nodes that are away for a while have their lines by the document.
    known = conf.nodes(text)
    draining = [conf.narrowed(dict(line), lambda name: name not in known) for line in retained.get("nodes", ())]
    nodes = [conf.line(pairs.items()) for pairs in (*map(dict, retained.get("hardware", ())), *draining) if pairs]
    lines: list[str] = []
    for line in _narrowed(text, former).splitlines():
        if line.startswith("PartitionName="):
            lines, nodes = [*lines, *nodes], []
            pairs = dict(conf.parse_pairs(line))
            partition = partitions.pop(pairs["PartitionName"], None)
            if partition:
                more = [name for name in hostlist.expand(partition["nodes"]) if name not in known]
                pairs["Nodes"] = ",".join(filter(None, (pairs["Nodes"], hostlist.compress(more))))
                line = conf.line(pairs.items())
        lines.append(line)
    for partition in partitions.values():
        # It takes no more jobs, for it goes with the last of those that it has.
        pairs = {**dict(partition["line"]), "Nodes": partition["nodes"], "Default": "NO", "State": "DRAIN"}
        nodes.append(conf.line(pairs.items()))
    return "\n".join([*lines, *nodes]) + "\n"
