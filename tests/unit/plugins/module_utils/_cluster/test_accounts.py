# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounts as ConfigMaps; tests/unit/images/test_users.py reads them."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import accounts, apiserver, names, resolve, validate

from .documents import KEY, good
from .documents import accounts as in_jails

# As long as a key of 4096 bits.
LONG = f"{KEY} {'x' * 660}"


def people(number: int, key: str = KEY, **more: Any) -> dict[str, Any]:
    """The good document with so many users."""
    document = good()
    user = {**document["spec"]["users"][0], "sshKeys": [key], **more}
    document["spec"]["users"] = [{**user, "name": f"u{one}", "uid": 30001 + one if one < 30000 else 100000 + one} for one in range(number)]
    return document


def users(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resolve.model(document).to_dict()["users"]
    return found


@pytest.mark.parametrize(("number", "maps"), [(0, 1), (1, 1), (900, 1), (1200, 2)])
def test_users_are_in_as_many_config_maps_as_they_need(number: int, maps: int) -> None:
    model = resolve.model(people(number, LONG)).to_dict()
    found = model["users"]
    assert len(found["maps"]) == maps
    assert [one["name"] for one in in_jails(model)["users"]] == [f"u{one}" for one in range(number)]
    assert found["names"] == ["demo-jail-users", "demo-jail-users-1", "demo-jail-users-2"]


def test_a_document_of_ordinary_size_is_one_file_without_an_index() -> None:
    (only,) = users(good())["maps"]
    assert only["name"] == "demo-jail-users" and list(only["data"]) == ["users.json"]
    assert json.loads(only["data"]["users.json"])["users"][0]["name"] == "ada"


def test_the_first_file_differs_wherever_the_accounts_do() -> None:
    """By its hash pods tell what they have, and a run when it came."""
    seen = {}
    for what, document in {"all": people(1200, LONG), "one less": people(1199, LONG), "few": people(3)}.items():
        found = users(document)
        first = found["maps"][0]["data"]["users.json"]
        assert found["hash"] == hashlib.sha256(first.encode()).hexdigest()[:16]
        seen[found["hash"]] = what
    last = people(1200, LONG)
    last["spec"]["users"][-1]["shell"] = "/bin/sh"
    seen[users(last)["hash"]] = "an edit of the last"
    assert len(seen) == 4, seen


def test_another_cluster_can_not_have_the_same_config_maps() -> None:
    model = resolve.model(good())
    assert {("ConfigMap", "ns", name) for name in model.users.names} <= names.of(model)


def test_pods_do_not_change_with_the_number_of_config_maps() -> None:
    few, many = (resolve.model(document).to_dict() for document in (people(1), people(1200, LONG)))
    assert few["users"]["volume"] == many["users"]["volume"]
    first, *others = few["users"]["volume"]["projected"]["sources"]
    assert first == {"configMap": {"name": "demo-jail-users"}}, "without it there is nothing to wait for"
    assert [one["configMap"] for one in others] == [{"name": name, "optional": True} for name in few["users"]["names"][1:]]
    for part in ("controller", "login", "workers"):
        assert few[part] == many[part]


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(validate.InvalidDocument) as caught:
        resolve.model(document)
    (said,) = caught.value.data["mistakes"]
    return str(said)


def size(document: dict[str, Any]) -> int:
    return len(resolve.model(document).document.encode())


def test_the_largest_document_has_room() -> None:
    """Nothing takes more of it than lists of groups, each a line of its own with its indentation."""
    groups = [f"{first}{second}" for first in "abcdefghijklmnop" for second in "0123456789abcdef"]

    def of(count: int) -> dict[str, Any]:
        document = people(count, groups=groups)
        document["spec"]["groups"] = [{"name": name, "gid": 20001 + number} for number, name in enumerate(groups)]
        return document

    few, each = size(of(100)), size(of(101)) - size(of(100))
    found = users(of(100 + (apiserver.MAX_DOCUMENT - few) // each))
    assert len(found["maps"]) == accounts.PARTS
    size_there = sum(len(value.encode()) for one in found["maps"] for value in one["data"].values())
    assert size_there < 2.2 * apiserver.MAX_DOCUMENT < accounts.PARTS * (accounts.MOST - 4)


def sized(wanted: int) -> dict[str, Any]:
    """A document of many users whose JSON with the defaults has this many bytes."""
    document = people(1200, LONG)
    document["spec"]["login"] = {"motd": "m"}
    left = wanted - size(document)
    for user in document["spec"]["users"]:
        more = min(left, 3000)
        user["sshKeys"] = [user["sshKeys"][0] + "é" * (more // 2) + "x" * (more % 2)]
        left -= more
    return document


def test_the_limit_of_a_document_is_that_of_its_json_with_the_defaults() -> None:
    document = sized(apiserver.MAX_DOCUMENT)
    filled = json.loads(resolve.model(document).document)
    assert size(document) == size(filled) == apiserver.MAX_DOCUMENT, "as the API server has filled it in, too"
    document["spec"]["login"]["motd"] = "mo"
    assert refused(document) == (
        "The document has 1100001 bytes as JSON with its defaults; 1100000 are the most that Kubernetes has room for, so write less: give users fewer or "
        "shorter keys (ssh-ed25519 has 80 characters), or put them into a directory (spec.sssd)."
    )
    assert "The document has 7" in refused(people(1900, f"{KEY} {'x' * 3900}")), "however much larger it is"


def test_the_largest_document_is_checked_within_a_fraction_of_the_operators_limit() -> None:
    document = sized(apiserver.MAX_DOCUMENT)
    began = time.process_time()
    resolve.model(document)
    assert time.process_time() - began < 1.5
