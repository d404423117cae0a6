# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each shape of a rule makes the API server's words and a run's; which of the two a rule has is seen in the schema that is published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema, shapes

NAMES = shapes.Document({"nodeSets": [{"name": "a"}, {"name": "b"}], "users": []})
THREE = ("a", "b", "c")
SOME = shapes.equals("kind", "x")

CASES = [
    (
        shapes.one_of(*THREE),
        {"a": 1},
        {"a": 1, "c": 1},
        "at has a and c; give exactly one of a, b and c.",
        ("[has(self.a), has(self.b), has(self.c)].filter(x, x).size() == 1", "give exactly one of a, b and c"),
    ),
    (
        shapes.one_of("a", "b", what="text", at="in", when=SOME),
        {"kind": "y", "in": {}},
        {"kind": "x", "in": {}},
        "at.in has no text; give exactly one of a and b.",
        ("!(self.kind == 'x') || [has(self.in.a), has(self.in.b)].filter(x, x).size() == 1", "give exactly one of a and b"),
    ),
    (
        shapes.any_of("a", "b", then="so it is nothing; give one"),
        {"a": [], "b": [1]},
        {"a": [], "b": []},
        "at has neither a nor b, so it is nothing; give one.",
        ("has(self.a) && self.a.size() > 0 || has(self.b) && self.b.size() > 0", "give a or b"),
    ),
    (
        shapes.goes_with("a", "b", "c"),
        {"a": 1, "c": 1},
        {"a": 1},
        "at.a goes with b and c; remove it.",
        ("!has(self.a) || has(self.b) || has(self.c)", "a goes with b and c"),
    ),
    (
        shapes.goes_with("a", "b", needed="give it"),
        {"a": 1, "b": 1},
        {"b": 1},
        "at.a is missing; give it.",
        ("has(self.a) == has(self.b)", "a goes with b, and only with it"),
    ),
    (
        shapes.goes_with("a", "b", "c", needed="give it", at="in"),
        {"in": {}},
        {"in": {"a": 1}},
        "at.in.a goes with b and c, and only with these; remove it.",
        ("has(self.in.a) == (has(self.in.b) || has(self.in.c))", "a goes with b and c, and only with these"),
    ),
    (
        shapes.only_with("a", "kind", "x", "y"),
        {"a": 1, "kind": "y"},
        {"a": 1, "kind": "z"},
        "at.a goes with kind: x or y, but it is z; change one of them.",
        ("!has(self.a) || self.kind == 'x' || self.kind == 'y'", "a goes with kind: x or y"),
    ),
    (
        shapes.needed_unless("a", "kind", "x", "name it"),
        {"kind": "x"},
        {"kind": "y"},
        "at.a is missing; name it.",
        ("has(self.a) || self.kind == 'x'", "a is needed unless kind is x"),
    ),
    (
        shapes.excludes("a", "b"),
        {"a": 1},
        {"a": 1, "b": 1},
        "at has a and b, which exclude one another; remove one.",
        ("!(has(self.a) && has(self.b))", "a and b exclude one another"),
    ),
    (
        shapes.at_most("a", "b"),
        {"a": 3},
        {"a": 3, "b": 2},
        "at.a is 3, more than b, 2; lower the one or raise the other.",
        ("!(has(self.a) && has(self.b)) || self.a <= self.b", "a is more than b"),
    ),
    (shapes.at_most("a", "b", len), {"a": "z", "b": "a"}, {"a": "aa", "b": "b"}, "at.a is aa, more than b, b; lower the one or", None),
    (shapes.unseen("self == oldSelf", "no"), {}, None, "", ("self == oldSelf", "no")),
    (shapes.Unique("a"), [{"a": 1}, {"a": 2}, {}, {}], [{"a": 1}, {"a": 1}], "at[1].a is 1, as at[0].a is; each can occur once.", None),
    (
        shapes.Unique("a", "one at most", only=True),
        [{"a": True}, {"a": False}, {"a": False}, {}],
        [{"a": True}, {}, {"a": True}],
        "at[2].a is true, as at[0].a is; one at most.",
        ("self.filter(one, has(one.a) && one.a == true).size() <= 1", "one at most"),
    ),
    (shapes.Refers("nodeSets"), ["a", "b"], ["a", "c"], "at[1] is c, which is not in spec.nodeSets (a, b).", None),
    (
        shapes.Refers("users", "who is not in", also=("me",), advice="add them"),
        "me",
        "you",
        "at is you, who is not in spec.users (me); add them.",
        None,
    ),
]


@pytest.mark.parametrize(("rule", "right", "wrong", "sentence", "told"), CASES)
def test_a_shape_is_a_rule_of_the_api_server_and_a_sentence(
    rule: Any, right: Any, wrong: Any, sentence: str, told: tuple[str, str] | None
) -> None:
    assert list(shapes.errors((rule,), right, "at", NAMES)) == []
    said = list(shapes.errors((rule,), wrong, "at", NAMES)) if wrong is not None else [""]
    assert len(said) == 1 and said[0].startswith(sentence) and said[0].endswith("." if sentence else ""), said
    assert shapes.cel((rule,)) == ([{"rule": told[0], "message": told[1]}] if told else [])


def test_of_rules_that_follow_from_one_another_the_first_is_told() -> None:
    rules = ((shapes.one_of(*THREE), shapes.goes_with("size", "b", needed="say it")),)
    assert list(shapes.errors(rules, {"size": 1}, "at", NAMES)) == ["at has no source; give exactly one of a, b and c."]
    assert list(shapes.errors(rules, {"b": 1}, "at", NAMES)) == ["at.size is missing; say it."]
    assert len(shapes.cel(rules)) == 2


@pytest.mark.parametrize(
    ("condition", "cel"),
    [
        (~shapes.has("a"), "!has(self.a)"),
        (~(shapes.has("a") & SOME), "!(has(self.a) && self.kind == 'x')"),
        ((shapes.has("a") | SOME) & shapes.has("b"), "(has(self.a) || self.kind == 'x') && has(self.b)"),
        (shapes.has("a") & SOME | shapes.has("b"), "has(self.a) && self.kind == 'x' || has(self.b)"),
        (SOME.same(shapes.has("a")), "(self.kind == 'x') == has(self.a)"),
    ],
)
def test_brackets_stand_where_they_are_needed(condition: shapes.Condition, cel: str) -> None:
    assert condition.cel == cel


def test_names_that_a_sentence_offers_are_few() -> None:
    assert shapes.listed(()) == "there are none"
    assert shapes.listed([f"n{number}" for number in range(12)]).endswith("n7 and 2 more")


def parts(rules: Any) -> Iterator[dict[str, Any]]:
    for value in rules.values() if isinstance(rules, dict) else rules if isinstance(rules, list) else ():
        yield from parts(value)
    if isinstance(rules, dict):
        yield rules


def test_the_definition_has_each_rule_in_the_api_servers_words() -> None:
    published = schema.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert not [part for part in parts(published) if schema.RULES in part]
    ours = [told for part in parts(schema.document()) for told in shapes.cel(part.get(schema.RULES, ()))]
    theirs = [told for part in parts(published) for told in part.get("x-kubernetes-validations", ())]
    assert ours == theirs
    assert len(ours) > 40
