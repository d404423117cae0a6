# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects as files, for who applies them by other means: what corral.slurm.render writes instead of sending it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import NEVER_PRUNED, tier
from ansible_collections.corral.slurm.plugins.module_utils._kube.prune import MEMBER_LABEL, set_id

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

Json = dict[str, Any]

# The list of the files that the run before has written in the folder, one a line.
INDEX = ".corral-render"
_STREAMS = (".yml", ".yaml")
_CONFIG_MAPS = "config_maps"


def members(objects: list[Json], applyset: Json | None, namespace: str) -> list[Json]:
    """Return ``objects`` as k8s_apply sends them for the set ``applyset`` (its options): each with the label of a member."""
    if applyset is None:
        return objects
    label = {MEMBER_LABEL: set_id(str(applyset["name"]), str(applyset.get("namespace") or namespace))}
    return [
        one
        if one["kind"] in NEVER_PRUNED
        else {**one, "metadata": {**one["metadata"], "labels": {**(one["metadata"].get("labels") or {}), **label}}}
        for one in objects
    ]


def write(params: Json, *, check: bool, diff: bool) -> Json:
    """Write ``objects`` to ``output``: a file for each in a folder, or one stream where that ends in .yml or .yaml.

    In a folder the texts of ConfigMaps are files as well, config_maps/CONFIGMAP/KEY. Files that a run before has written and this one has not are removed;
    other files stay. Returns ``changed``, ``files`` (paths below ``output``), ``removed``, and with ``diff`` ``diff``. Raises CorralError before anything is
    written where a file of somebody else is in the way, and for a folder that cannot be written.
    """
    if yaml is None:
        raise CorralError("Rendered objects are written as YAML, which needs the Python package PyYAML; install it.")
    output, objects = Path(params["output"]), _ordered(params["objects"])
    try:
        if output.suffix in _STREAMS:
            return _write_all(output.parent, {output.name: _stream(objects)}, None, check=check, diff=diff)
        return _write_all(output, _files(objects), _index(output), check=check, diff=diff)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise CorralError(f"The rendered objects cannot be written to {output}: {reason}; give another path in output.") from error


def _write_all(folder: Path, files: dict[str, str], before: set[str] | None, *, check: bool, diff: bool) -> Json:
    """Write ``files`` below ``folder``. ``before`` are the names that the run before has written; None for a single stream, which has no index."""
    old = {name: _text(folder / name) for name in (*files, *(before or ()))}
    if before is not None:
        strangers = sorted(name for name in files if old[name] is not None and name not in before)
        if strangers:
            raise CorralError(
                f"{folder / strangers[0]} is there, and corral.slurm.render did not write it; give an empty folder in output, or remove the file."
            )
    removed = sorted(name for name in before or () if name not in files and old[name] is not None)
    changed = sorted(name for name, text in files.items() if old[name] != text)
    if not check:
        if before is not None and before != set(files):
            # Both are listed until all is done, so that a run after one that was interrupted knows what is its own.
            _replace(folder / INDEX, "".join(f"{name}\n" for name in sorted({*before, *files})))
        for name in changed:
            _replace(folder / name, files[name])
        for name in removed:
            (folder / name).unlink()
            with contextlib.suppress(OSError):  # others are in it
                (folder / name).parent.rmdir()
        if removed:
            _replace(folder / INDEX, "".join(f"{name}\n" for name in sorted(files)))
    result: Json = {"changed": bool(changed or removed), "files": sorted(files), "removed": removed}
    if diff:
        result["diff"] = [
            {"before_header": name, "after_header": name, "before": old[name] or "", "after": files.get(name, "")}
            for name in [*changed, *removed]
        ]
    return result


def _index(folder: Path) -> set[str]:
    """Return the names that the run before has written; only those that lie in the folder, whatever the file says."""
    return {
        name for name in (_text(folder / INDEX) or "").splitlines() if name and not name.startswith("/") and ".." not in Path(name).parts
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        return ""  # nothing that was written here


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _ordered(objects: list[Json]) -> list[Json]:
    """Return each object once, in the order in which k8s_apply sends them, which ``kubectl apply`` keeps.

    What several tasks apply, each some of its fields, is one object.
    """
    found: dict[tuple[int, str, str, str], Json] = {}
    for one in objects:
        metadata = one["metadata"]
        place = (_tier(one), str(one["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))
        found[place] = _merged(found[place], one) if place in found else one
    return [found[place] for place in sorted(found)]


def _merged(first: Json, second: Json) -> Json:
    both = {
        key: _merged(first[key], value) for key, value in second.items() if isinstance(value, dict) and isinstance(first.get(key), dict)
    }
    return {**first, **second, **both}


def _tier(obj: Json) -> int:
    return tier(obj["kind"], builtin=(str(obj["apiVersion"]).rpartition("/")[0], obj["kind"]) in BUILTIN)


def _files(objects: list[Json]) -> dict[str, str]:
    files: dict[str, str] = {}
    for one in objects:
        name = str(one["metadata"]["name"])
        files[f"{_tier(one)}-{one['kind'].lower()}-{name}.yml"] = _stream([one])
        if one["kind"] == "ConfigMap":
            files.update({f"{_CONFIG_MAPS}/{name}/{key}": str(text) for key, text in (one.get("data") or {}).items()})
    return files


def _stream(objects: list[Json]) -> str:
    return yaml.dump_all(objects, Dumper=_dumper(), explicit_start=True, sort_keys=False, allow_unicode=True, width=1 << 20)


def _dumper() -> Any:
    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, and nothing as a reference to what came before."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper
