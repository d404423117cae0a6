# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file of a document says, as kubectl would send it; and files that are made to hurt the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import reading, resolve

from .documents import KEY, accounts, good


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:00:00", "10:00:00"),
        ("1:40", "1:40"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("2.0", 2),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("0777", 511),
        ("0o17", 15),
        ("08", 8),
        ("-0x1F", -31),
        ("0b11", 3),
        ("1_000", 1000),
        ("9223372036854775808", 2**63),
        ("9" * 5000, "9" * 5000),
        ("y", True),
        ("Off", False),
        ("'yes'", "yes"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!!int 5", 5),
        ("~", None),
        ("", None),
        ("- x", ["x"]),
        ("+", "+"),
        ("-", [None]),
        ("4:", {"4": None}),
        ("{yes: 1, 2: x}", {"true": 1, "2": "x"}),
        ("9" * 41, int(float("9" * 41))),
        ("9" * 309, "9" * 309),
        ("v24.11", "v24.11"),
        ("24.11", 24.11),
        ("1.2.3", "1.2.3"),
        ("{a: &x [1], b: *x}", {"a": [1], "b": [1]}),
        (
            "{a: &x {k: 1, l: 2}, b: {<<: *x, l: 3}, c: {l: 3, <<: *x}}",
            {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}, "c": {"k": 1, "l": 3}},
        ),
        ("|\n  motd 🔥\n  \u00a0two\n", "motd 🔥\n\u00a0two\n"),
    ],
)
def test_a_value_is_what_kubectl_takes_it_for(text: str, value: Any) -> None:
    document = f"a: {text}" if not text.startswith(("-", "4:")) else f"a:\n  {text}"
    if text == "-0x1F":
        document = f"a: {text}"
    assert reading.document(document, "x") == {"a": value}


def refused(text: str) -> str:
    with pytest.raises(reading.UnreadableDocument) as caught:
        reading.document(text, "my.yml")
    said = str(caught.value)
    assert "my.yml" in said
    assert said.endswith(".")
    assert said.isprintable()
    assert len(said) < 400
    return said


BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "has the key 'a' a second time in one mapping; remove one of the two (line 3)"),
        ("spec:\n  users:\n    - {name: a, name: b}", "has the key 'name' a second time in one mapping; remove one of the two (line 3)"),
        ("a: " + "[" * 100_000, "has more than 50 levels"),
        ("a: " + "{a: " * 500, "has more than 50 levels"),
        ("- " * 100_000, "has more than 50 levels"),
        ("\n".join(" " * level + "a:" for level in range(500)), "has more than 50 levels"),
        (BOMB, "with those that its aliases repeat"),
        ("a: &a [*a]", "names the anchor 'a', which is not there, or not complete yet"),
        ("a: *b", "names the anchor 'b'"),
        ("a: !!python/object/apply:os.system [id]", "has the tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
        ("a: !!binary aGk=", "has the tag"),
        ("a: !vault x", "has the tag '!vault'"),
        ("? [a]\n: b", "has a mapping or a list as a key"),
        ("a: {<<: 3}", "merges by << what is no mapping"),
        ("a:\u00a01\nb: 1", "(line 1 has the character U+00A0, which looks like a space and is none)"),
        ("a: \x01", "U+0001"),
        ('a: "\\ud800"', "is not YAML"),
        ("a: [", "is not YAML"),
        ("\tb: 1", "is not YAML"),
        ("x" * (reading.MAX_BYTES + 1), "has 1500001 bytes; 1500000 are the most"),
        ("---\n---\n", "holds 0 documents"),
        (" \n", "is empty; a pipe can be read once only, so give each playbook one of its own"),
        ("a: 1\n---\nb: 1", "holds 2 documents"),
    ],
)
def test_what_hurts_a_reader_is_refused_by_a_sentence(text: str, words: str) -> None:
    assert words in refused(text)


def test_no_line_of_the_text_is_shown() -> None:
    for text in ("hunter2: [", "a: hunter2: x", '"hunter2'):
        assert "hunter2" not in refused(text)


def test_without_libyaml_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert reading.document("a: {b: [1, 10:00:00]}", "x") == {"a": {"b": [1, "10:00:00"]}}
    assert "hunter2" not in refused("a: hunter2: x")
    assert "has more than 50 levels" in refused("a: " + "[" * 60)
    assert "U+0001" in refused("a: \x01")


UNICODE = "Zoë \u00a0\u2028\u0085\x7f\ufeff 漢字 🔥👩‍🔬 \U0010ffff {{ x }} #"


def test_json_is_read_as_json() -> None:
    """The operator gives its runs such files; two escapes for one character are no YAML."""
    value = {"a": UNICODE, "b": [1, 2.0, 1.5, True, None, 2**63]}
    assert reading.document(json.dumps(value), "x") == value
    assert reading.document(json.dumps(value, ensure_ascii=False), "x") == value
    assert isinstance(reading.document('{"a": 2.0}', "x")["a"], int)
    assert reading.document("{a: 10:00:00, b: [x]}", "x") == {"a": "10:00:00", "b": ["x"]}
    assert "has the key 'b' a second time" in refused('{"a": {"b": 1, "b": 2}}')
    assert "has more than 50 levels" in refused('{"a": ' + "[" * 100_000)
    assert "has more than 50 levels" in refused('{"a": ' * 100_000 + "1" + "}" * 100_000)


def test_the_whole_of_unicode_comes_through_to_the_objects() -> None:
    motd = UNICODE.replace("\x7f", "")
    document = good()
    document["spec"]["login"] = {"motd": motd, "service": {"annotations": {"example.com/note": motd}}}
    document["spec"]["users"][0]["sshKeys"] = [f"{KEY} Zoë 🔥 漢字"]
    document["spec"]["nodeSets"][0]["initScripts"] = [{"name": "say", "script": f"#!/bin/sh\necho '{motd}'\n"}]
    found = resolve.model(reading.document(json.dumps(document), "x")).to_dict()
    written = accounts(found)
    assert written["motd"] == f"{motd}\n"
    assert written["users"][0]["sshKeys"] == document["spec"]["users"][0]["sshKeys"]
    assert found["login"]["service_annotations"] == {"example.com/note": motd}
    assert motd in found["workers"]["node_sets"][0]["init_scripts"]["say"]
    assert reading.document(found["document"], "x")["spec"]["login"]["motd"] == motd
