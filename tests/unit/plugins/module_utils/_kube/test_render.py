# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates: a value stays in its place, whatever it is, and a mistake is told with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import TemplateError
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import _loader, render
from ansible_collections.corral.slurm.plugins.module_utils._kube.text import as_json

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
# YAML readers limit a plain mapping's key to 1024 characters.
KEYS = st.text(st.characters(exclude_categories=("Cs",)), max_size=100)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def made(tmp_path: Path, text: str, **variables: Any) -> list[dict[str, Any]]:
    path = tmp_path / "object.yml.j2"
    path.write_text(text)
    return render([path], variables, [])[0]


@given(VALUES)
def test_as_json_is_the_same_value_to_a_yaml_reader(value: Any) -> None:
    document = f"outer:\n  - key: {as_json(value)}\n    next: 1\n"
    assert yaml.load(document, Loader=_loader()) == {"outer": [{"key": value, "next": 1}]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("render") / "value.yml.j2"
    path.write_text("a: {{ value }}\nb: {nested: [{{ value }}]}\nc: {{ value ~ '!' if value is string else 0 }}\n")
    return path


@given(value=VALUES)
@example(value=5e-324)
@example(value={"a\u2028b": "\U0001f642"})
def test_a_value_can_not_leave_its_place(template: Path, value: Any) -> None:
    expected = f"{value}!" if isinstance(value, str) else 0
    assert render([template], {"value": value}, [])[0] == [{"a": value, "b": {"nested": [value]}, "c": expected}]


def test_jinja_in_a_value_is_text(tmp_path: Path) -> None:
    assert made(tmp_path, "a: {{ x }}", x="{{ 7 * 7 }}{% raw %}") == [{"a": "{{ 7 * 7 }}{% raw %}"}]


def test_blocks_leave_no_lines_and_includes_are_found(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "part.yml.j2").write_text("one: {{ item }}\ntwo: [x]\n")
    path = tmp_path / "main.yml.j2"
    path.write_text(
        "{% for item in items %}\n---\nlist:\n  - {% filter indent(4) %}{% include 'part.yml.j2' %}{% endfilter %}\n\n"
        "name: {{ 'n' ~ loop.index }}\n{% endfor %}\n"
    )
    objects, origins = render([path], {"items": ["a", "b"]}, [tmp_path / "more"])
    assert objects == [{"list": [{"one": item, "two": ["x"]}], "name": f"n{number}"} for number, item in ((1, "a"), (2, "b"))]
    # The empty document before the first --- counts for YAML.
    assert [origin.split(",")[0] for origin in origins] == ["main.yml.j2"] * 2


def test_a_template_may_make_nothing(tmp_path: Path) -> None:
    assert made(tmp_path, "{% if false %}a: 1{% endif %}\n# only a comment\n") == []


def test_dates_stay_text_and_numbers_stay_numbers(tmp_path: Path) -> None:
    assert made(tmp_path, "a: 2026-01-01\nb: 0o17\nc: 017\nd: 1.5\ne: yes\n") == [
        {"a": "2026-01-01", "b": "0o17", "c": 15, "d": 1.5, "e": True}
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: {{ nothing }}\n", r"object\.yml\.j2, line 2: 'nothing' is undefined"),
        ("a: 1\nb: {{ x.deep.er }}\n", r"line 2: .*has no attribute 'deep'"),
        ("a: {{ \n", r"object\.yml\.j2, line \d: "),
        ("a: 1\n\nb: {% if %}\n", r"line 3: "),
        ("a: [1\nb: {{ x }}\n", r"does not make YAML, line \d of its output"),
        ("password: 'secret-value\n", r"does not make YAML"),
        ("a: 1\na: 2\n", r"the key 'a' is there twice"),
        ("- a\n- b\n", r"Document 1 of template .* is no mapping but list"),
        ("a: {{ x.__class__.__mro__ }}\n", r"line 1: .*unsafe"),
        ("{% include 'none.yml' %}\n", r"includes none\.yml, which is in none of its folders"),
        ("a: {{ 1 / 0 }}\n", r"line 1: ZeroDivisionError"),
        ("a: {{ half }}\n", r"line 1: ValueError: .*half a character"),
        ("a: {{ what }}\n", r"line 1: TypeError: .*not JSON serializable"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words) as caught:
        made(tmp_path, text, x={"y": 1}, half="\ud800", what={1, 2})
    assert "secret-value" not in str(caught.value)
