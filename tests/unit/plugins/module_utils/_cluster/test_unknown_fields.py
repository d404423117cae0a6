# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A definition that is newer than the code that reads its documents."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import defaults, resolve, schema, unknown_fields

Json = dict[str, Any]
DOCUMENT: Json = yaml.safe_load((Path(__file__).resolve().parents[5] / "examples" / "minimal.yml").read_text())


def definition() -> Json:
    """The definition of a later version: a field more beside others, in a node set, in a map's values, and a whole object with defaults of its own."""
    found = copy.deepcopy(schema.crd())
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["flavour"] = {"type": "string", "default": "sweet"}
    spec["wish"] = {"type": "string"}
    inner = {"depth": {"type": "integer", "default": 3}, "note": {"type": "string"}}
    spec["slurm"]["properties"]["cache"] = {"type": "object", "default": {}, "properties": inner}
    spec["nodeSets"]["items"]["properties"]["colour"] = {"type": "string", "default": "blue"}
    return found


def filled(document: Json) -> Json:
    """A document as the API server keeps it with that definition."""
    rules = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: Json = defaults.fill(rules, document["spec"])
    return found


def test_with_its_own_definition_there_is_nothing_more() -> None:
    added = unknown_fields.additions(schema.crd())
    assert not added
    spec = DOCUMENT["spec"]
    assert unknown_fields.without(spec, added) == (spec, []) and unknown_fields.without(spec, added)[0] is spec


@pytest.mark.parametrize(
    "live", [{}, {"spec": {}}, {"spec": {"versions": [{"name": "v9"}]}}, {"spec": {"versions": [{"name": "v1alpha1"}]}}]
)
def test_a_definition_that_says_nothing_adds_nothing(live: Json) -> None:
    assert not unknown_fields.additions(live)


def test_what_a_newer_definition_gives_by_default_is_left_out() -> None:
    spec = filled(DOCUMENT)
    with pytest.raises(Exception, match="flavour is not known"):
        resolve.model({**DOCUMENT, "spec": spec})
    kept, dropped = unknown_fields.without(spec, unknown_fields.additions(definition()))
    sets = [f"spec.nodeSets[{number}].colour" for number in range(len(spec["nodeSets"]))]
    assert sorted(dropped) == sorted(["spec.flavour", "spec.slurm.cache", *sets])
    assert kept == defaults.static(DOCUMENT["spec"])
    resolve.model({**DOCUMENT, "spec": kept})


@pytest.mark.parametrize(
    ("change", "path"),
    [({"flavour": "sour"}, "flavour"), ({"wish": "a pony"}, "wish"), ({"slurm": {"cache": {"depth": 4}}}, "cache")],
)
def test_what_somebody_wants_of_it_is_still_a_mistake(change: Json, path: str) -> None:
    spec = filled({**DOCUMENT, "spec": {**DOCUMENT["spec"], **change}})
    kept, _dropped = unknown_fields.without(spec, unknown_fields.additions(definition()))
    with pytest.raises(Exception, match=f"{path} is not known"):
        resolve.model({**DOCUMENT, "spec": kept})


@pytest.mark.parametrize("spec", [None, [], "text", {"slurm": []}, {"nodeSets": {"a": 1}}, {"nodeSets": [None, 1, {"colour": "blue"}]}])
def test_a_document_that_is_none_is_looked_through_all_the_same(spec: Any) -> None:
    unknown_fields.without(spec, unknown_fields.additions(definition()))
