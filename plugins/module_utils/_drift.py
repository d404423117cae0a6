# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_drift: what a run of the site in check mode would change, and what slurmctld and the jail have, as one list of findings.

It only reads. What differs in Kubernetes and in the database is in the results of the tasks that would change it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import accounts
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm import drift
from ansible_collections.corral.slurm.plugins.module_utils._slurm.drift import ABSENT, Finding
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected

Json = dict[str, Any]

_COMPARE = ["/usr/bin/python3", "/usr/local/lib/corral/users.py", "--compare"]
_TIMEOUT = 120.0
# The longest value in the table; JSON has all of it.
_WIDTH = 120
_STALE = ("of the newest template", "of an older template")
_PRESENT = "present"
# What tells the items of Kubernetes' lists apart.
_NAMES = ("name", "port", "containerPort", "mountPath", "key")


def run(params: Json, *, check: bool, diff: bool) -> Json:
    """Compare the cluster with its document; the parameters are those of the module slurm_drift.

    Returns ``findings`` (``kind``, ``where``, ``document`` and ``live`` each), ``not_compared``, ``text`` and ``requests``. Raises CorralError.
    """
    del check, diff  # nothing is changed in any mode
    model: Json = params["model"]
    not_compared: list[str] = []
    with connected(params) as client:
        slurmctld = Slurmctld(client, {**params, "namespace": model["namespace"], "pod": model["controller"]["pod"]})
        written = model["config"]["files"]["slurm.conf"]
        found = [
            *of_results(params["results"]),
            *drift.config(written, slurmctld.ask(["scontrol", "show", "config"], "its configuration")),
            *drift.nodes(written, slurmctld.ask(["scontrol", "show", "nodes", "--future", "--oneliner"], "its nodes")),
            *drift.partitions(written, slurmctld.ask(["scontrol", "show", "partitions", "--oneliner"], "its partitions")),
            *_jail(slurmctld, model, not_compared),
        ]
        requests = client.requests
    rows = [one.to_dict() for one in dict.fromkeys(found)]
    as_json = json.dumps(
        {"cluster": model["name"], "namespace": model["namespace"], "findings": rows, "not_compared": not_compared}, indent=2
    )
    text = f"{as_json}\n" if params["format"] == "json" else table(rows, not_compared)
    return {"changed": False, "findings": rows, "not_compared": not_compared, "text": text, "requests": requests}


def of_results(results: list[Json]) -> Iterator[Finding]:
    """Return what tasks in check mode would change, one finding for each field; and each task that failed, since it would fail in a run too."""
    for result in results:
        rows = {_header(row): row.get("result") for row in (*(result.get("objects") or ()), *(result.get("secrets") or ()))}
        named: set[str] = set()
        for entry in result.get("diff") or ():
            header = str(entry["before_header"])
            named.add(header.rpartition("/")[2])
            yield from _of_entry(header, entry, rows.get(header))
        for name in result.get("outdated") or ():
            if name not in named:
                yield Finding("Pod", f"{name}-*", *_STALE)
        if result.get("failed"):
            yield Finding("run", "a task of corral.slurm.site", "succeeds", f"fails: {result.get('msg')}")


def _of_entry(header: str, entry: Json, result: str | None) -> Iterator[Finding]:
    kind, _space, name = header.partition(" ")
    if result == "replaced":
        yield Finding(kind, name, *_STALE)
    elif result in ("pruned", "absent"):
        yield Finding(kind, name, ABSENT, _PRESENT)
    elif result == "created":
        yield Finding(kind, name, _PRESENT, ABSENT)
    elif not name:  # accounts, users and QoS, by what they are
        yield from (Finding("tenant", path.lstrip("."), ours, its) for path, ours, its in _leaves(entry["after"], entry["before"], ""))
    else:
        fields = [Finding(kind, f"{name} {path}", ours, its) for path, ours, its in _leaves(entry["after"], entry["before"], "")]
        yield from fields or [Finding(kind, name, "owned by this collection", "owned by another manager")]


def _header(row: Json) -> str:
    return f"{row.get('kind')} {row['namespace'] + '/' if row.get('namespace') else ''}{row.get('name')}"


def _leaves(ours: Any, its: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Return where two values differ: the path, and both as text. Something that one side lacks is one difference, whatever is in it."""
    if ours == its:
        return
    if isinstance(ours, dict) and isinstance(its, dict):
        for key in dict.fromkeys([*ours, *its]):
            yield from _leaves(ours.get(key, ABSENT), its.get(key, ABSENT), f"{path}.{key}")
        return
    if isinstance(ours, list) and isinstance(its, list):
        both = ours + its
        key = next((name for name in _NAMES if all(isinstance(one, dict) and name in one for one in both)), None)
        if key:
            left, right = ({f'{path}[{key}="{one[key]}"]': one for one in side} for side in (ours, its))
            for where in dict.fromkeys([*left, *right]):
                yield from _leaves(left.get(where, ABSENT), right.get(where, ABSENT), where)
            return
        if all(isinstance(one, str) for one in both):
            ours, its = _lines(ours, its), _lines(its, ours)
    elif isinstance(ours, list) or isinstance(its, list):  # a text of one line, compared with one of several
        ours, its = (
            "\n".join(side) if isinstance(side, list) and all(isinstance(one, str) for one in side) else side for side in (ours, its)
        )
    yield path, _text(ours), _text(its)


def _lines(text: list[str], other: list[str]) -> str:
    """Return those lines of a text that the other one lacks."""
    return "\n".join(line for line in text if line not in other) or (
        "without these lines" if set(text) != set(other) else "in another order"
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _jail(slurmctld: Slurmctld, model: Json, not_compared: list[str]) -> Iterator[Finding]:
    """Compare the login pods' jail: its image, and the accounts in it."""
    pods = [pod for pod in slurmctld.cluster_pods("login") if not describe(pod)]
    if not pods:
        if model["login"]["replicas"]:
            raise KubeError(
                f"No login pod in {model['namespace']} is ready, and the jail is compared in one; see kubectl get pods -n {model['namespace']}, and run again."
            )
        not_compared.append("The jail and its users, since the document has no login pod, in which they are compared.")
        return
    pod, container = str(pods[0]["metadata"]["name"]), str(model["login"]["in_use"]["container"])
    done = run_in_pod(
        slurmctld.client,
        namespace=str(model["namespace"]),
        pod=pod,
        container=container,
        command=_COMPARE,
        stdin=accounts.text(model["users"]["maps"]).encode(),
        timeout=_TIMEOUT,
    )
    try:
        found = json.loads(done.stdout) if done.code == 0 else {}
        marker = json.loads(found["marker"] or "{}")
        rows = [(str(row["where"]), str(row["document"]), str(row["live"])) for row in found["differences"]]
    except (ValueError, KeyError, TypeError) as error:
        raise KubeError(
            f"The jail cannot be compared in Pod {model['namespace']}/{pod}: {done.summary.rstrip('.')}; "
            "if its image is older than this release, apply the document first, and run again."
        ) from error
    populate = model["jail"]["populate"]
    wanted = {"version": 1, **({"image": populate["image"]} if populate["policy"] != "Never" else {})}
    for key, ours in wanted.items():
        its = marker.get(key, ABSENT) if isinstance(marker, dict) else ABSENT
        if its != ours:
            yield Finding("jail", f"/etc/corral-jail {key}", _text(ours), _text(its))
    yield from (Finding("user", where, ours or ABSENT, its or ABSENT) for where, ours, its in rows)
    not_compared += [
        f"The jail {one['name']}, since no login pod has it; its node sets' pods write the users."
        for one in model["jails"]
        if one["name"] != "default"
    ]


def table(rows: list[dict[str, str]], not_compared: list[str]) -> str:
    """Return the findings as a table for people."""
    names = ("kind", "where", "document", "live")
    cells = [[name.upper() for name in names], *([_cut(row[name]) for name in names] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    lines = (
        ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells] if rows else ["No drift."]
    )
    return "".join(f"{line}\n" for line in [*lines, *(f"Not compared: {one}" for one in not_compared)])


def _cut(text: str) -> str:
    """Return one line of a value that cannot move the terminal's cursor."""
    line = "".join(one if one.isprintable() else " " for one in text.replace("\n", "; "))
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
