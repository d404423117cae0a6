# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Thousands of wrong documents, made from the schema: each is refused before anything is touched, by one sentence that says where."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._cluster.validate import InvalidDocument

from ..... import misoperations

EXAMPLES = Path(__file__).resolve().parents[5] / "examples"
# Longer would not be read.
LONGEST = 800
PARTS = 4


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yml").read_text())
    return found


def sentences(document: dict[str, Any]) -> list[str]:
    """What a run says of a document before its first task; an exception of another kind is a run that breaks off in the middle."""
    try:
        resolve.model(document)
    except InvalidDocument as error:
        found: list[str] = error.data["errors"]
        return found
    return []


def is_sentence(text: str) -> bool:
    return "spec" in text and "\n" not in text and text.endswith((".", "?")) and len(text) <= LONGEST


@pytest.mark.parametrize("name", ["minimal", "full", "own"])
def test_each_mistake_is_refused_by_a_sentence_that_says_where(name: str) -> None:
    count = 0
    for wrong in misoperations.of(example(name)):
        said = sentences(wrong.document)
        assert said, f"{wrong.what} at {wrong.path} is let through"
        assert wrong.path in said[0], (wrong, said)
        assert all(is_sentence(one) for one in said), (wrong, said)
        # One mistake, one sentence; a list that is too long is also one whose entries are there twice.
        assert len(said) == 1 or wrong.what == "many", (wrong, said)
        count += 1
    assert count >= {"full": 1000}.get(name, 100)


@pytest.mark.parametrize("name", ["minimal", "full", "own", "demo"])
def test_what_the_schema_lets_through_makes_sense_or_is_refused_by_a_sentence(name: str) -> None:
    outcomes = set()
    for other in misoperations.variations(example(name)):
        said = sentences(other.document)
        assert all(is_sentence(one) for one in said), (other, said)
        outcomes.add(bool(said))
    assert outcomes == {True, False}


# In parts, since it is the longest test of all and others can run beside it.
@pytest.mark.parametrize("part", range(PARTS))
def test_what_nobody_expects_in_a_place_is_a_blank_or_a_sentence(part: int) -> None:
    count = 0
    for other in itertools.islice(misoperations.hostile(example("full")), part, None, PARTS):
        said = sentences(other.document)
        assert all(is_sentence(one) and one.isascii() and one.isprintable() for one in said), (other.what, other.path, said)
        # A field that is blank is one that is not there; a fraction is right in some places.
        fraction = other.what == "number" and other.path.rpartition(".")[2] in ("usageFactor", "usageThreshold", "limitFactor")
        assert said or other.what in ("blank", "text") or fraction, (other.what, other.path)
        count += 1
    assert count >= 10000 // PARTS


def test_a_key_of_a_list_may_be_anything_at_all() -> None:
    """It is compared with the keys of the other entries, which not everything can be."""
    document = example("minimal")
    for name in (["cpu"], {"cpu": "cpu"}, None, 1.5):
        document["spec"]["nodeSets"][0]["name"] = name
        assert "spec.nodeSets[0].name" in sentences(document)[0]
