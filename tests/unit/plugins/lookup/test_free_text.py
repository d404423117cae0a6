# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free text of the command line is whole, in the form in which the documents print it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.splitter import parse_kv
from jinja2 import Environment, nodes

from ansible_collections.corral.slurm.plugins.lookup.free_text import whole

from ...repo.repository import files, text

OTHERS = ("node", "by", "wait")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("reason=fans", "fans"),
        ("reason=new fans", "new fans"),
        ("reason=new   fans ", "new fans"),
        ("reason=fan: speed=0 at 3 o'clock, 100 % 'loud' fans'", "fan: speed=0 at 3 o'clock, 100 % 'loud' fans'"),
        ("reason=speed=0", "speed=0"),
        ("reason='new fans'", "new fans"),
        ('reason="new fans" node=gpu-3', "new fans"),
        ("node=gpu-3 reason=new fans", "new fans"),
        ("reason=new fans node=gpu-3 by=ada", "new fans"),
        ("reason=a node is ill", "a node is ill"),
        ("reason=Lüfter ☃ neu", "Lüfter ☃ neu"),
        ("reason=", ""),
        ("reason='old' fans are loud", "'old' fans are loud"),
        ("reason='old' and 'new' node=gpu-3", "'old' and 'new'"),
        ('reason="old" fans', '"old" fans'),
        ("reason='see node=gpu-3 first'", "see node=gpu-3 first"),
        (r"reason='it\'s old'", "it's old"),
    ],
)
def test_of_key_and_value(argument: str, expected: str) -> None:
    assert whole("reason", str(parse_kv(argument)["reason"]), OTHERS, ["node=cpu-0", argument]) == expected


def test_what_came_otherwise_stays() -> None:
    assert whole("reason", "older", OTHERS, ["reason=new fans", '{"reason": "older"}']) == "older"
    assert whole("reason", "new fans", OTHERS, ["@vars.yml"]) == "new fans"
    assert whole("reason", "b", OTHERS, ["reason=a x", "reason=b y"]) == "b y"
    assert whole("reason", "b", OTHERS, ["unreason=b y"]) == "b"
    assert whole("reason", "new", OTHERS, ["reason=new fans", "reason='new'"]) == "new", "the last that says it counts"


def strings(value: Any, *, bare: bool = False) -> Iterator[str]:
    """The templates of a play; conditions are written without braces."""
    if isinstance(value, str):
        yield f"{{{{ {value} }}}}" if bare else value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, bare=bare)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, bare=key == "when")


def test_the_text_ends_before_all_that_the_playbook_reads() -> None:
    play = yaml.safe_load(text(Path("playbooks/drain.yml")))[0]
    own = {*play["vars"], *(task["register"] for task in play["tasks"] if "register" in task), "omit", "lookup"}
    read = {found.name for one in strings(play) for found in Environment().parse(one).find_all(nodes.Name)}
    assert {"slurm_namespace", "corral_context", "reason"} < read
    assert sorted(play["vars"]["others"]) == sorted(read - own)


def printed() -> list[str]:
    found = [
        line.split("#")[0].strip() if not line.startswith("#") else line.lstrip("# ").split("   ")[0]
        for path in files()
        if path.suffix == ".md" or path.parts[0] == "playbooks"
        for line in (text(path).splitlines() if path.suffix in {".md", ".yml"} else ())
        if re.match(r"#? ?ansible-playbook corral\.slurm\.drain .*reason=", line)
    ]
    assert len(found) >= 3
    return found


@pytest.mark.parametrize("line", printed())
def test_documents_print_what_works(line: str, tmp_path: Path) -> None:
    """Through a shell, and the very expressions of the playbook; only what it would tell Slurm is said instead."""
    play = yaml.safe_load(text(Path("playbooks/drain.yml")))[0]
    (task,) = (task for task in play["tasks"] if "corral.slurm.slurm_node" in task)
    said = {"msg": "told: " + task["corral.slurm.slurm_node"]["reason"]}
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump([{**play, "tasks": [{"ansible.builtin.debug": said}], "module_defaults": {}}]))
    done = subprocess.run(
        ["bash", "-c", line.replace("corral.slurm.drain", str(book)) + " -e by='Ada Lovelace'"], capture_output=True, text=True, check=False
    )
    typed = re.search(r"reason='(.*?)'", line)
    assert typed
    assert f"told: {typed[1]} (Ada Lovelace)" in done.stdout, done.stdout + done.stderr
