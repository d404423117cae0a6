# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.slurm.auth: what becomes of it in Slurm's files, in Secrets and in pods."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, validate
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from .documents import edited, good
from .test_accounting import EXTERNAL


def model(auth: str | None, **spec: Any) -> dict[str, Any]:
    document = good()
    document["spec"].update(spec)
    if auth:
        document["spec"].setdefault("slurm", {})["auth"] = auth
    return resolve.model(document).to_dict()


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line.startswith(("Auth", "Cred")))


MUNGE = {"AuthType": "auth/munge", "AuthInfo": "socket=/run/munge/munge.socket.2"}
# Without disable_sack slurmd would make a socket where the jail's root finds it.
SLURM = {"AuthType": "auth/slurm", "AuthInfo": "disable_sack"}


@pytest.mark.parametrize(("auth", "plain"), [(None, MUNGE), ("munge", MUNGE), ("slurm", SLURM)])
def test_all_daemons_have_the_same(auth: str | None, plain: dict[str, str]) -> None:
    found = model(auth, accounting={"database": {"external": EXTERNAL}})
    kind = auth or "munge"
    assert settings(found["config"]["files"]["slurm.conf"]) == {**plain, "CredType": f"cred/{kind}"}
    assert settings(found["accounting"]["files"]["slurmdbd.conf"]) == plain


@pytest.mark.parametrize(("auth", "key"), [("munge", "munge.key"), ("slurm", "slurm.key")])
def test_its_key_is_made_once_and_removed_with_the_cluster(auth: str, key: str) -> None:
    found = model(auth)
    assert found["auth"] == {"type": auth, "secret": f"demo-base-{auth}-key"}
    made = [secret for secret in found["secrets"] if "-base-" in secret["name"]]
    assert [(one["name"], one["data"]) for one in made] == [(f"demo-base-{auth}-key", {key: {"random_bytes": 1024}})]
    removed = {item["metadata"]["name"] for item in found["teardown"]["data"] if item["kind"] == "Secret"}
    assert {"demo-base-munge-key", "demo-base-slurm-key"} <= removed, "the other one may be there from before a change"


def test_slurmrestd_needs_none_of_it() -> None:
    text = model("slurm", rest={"tls": {"secret": "certificate"}})["rest"]["files"]["slurm.conf"]
    assert settings(text) == {"AuthType": "auth/jwt", "CredType": "cred/munge", **{k: v for k, v in settings(text).items() if "Alt" in k}}
    assert "slurm.key" not in text and "disable_sack" not in text


@pytest.mark.parametrize("line", ["AuthType=auth/none", "AuthInfo=use_client_ids", "CredType=cred/none", "CryptoType=crypto/munge"])
def test_lines_of_ones_own_do_not_set_it(line: str) -> None:
    with pytest.raises(CorralError, match=r"set spec\.slurm\.auth"):
        resolve.model(edited("spec.slurm", {"auth": "slurm", "extraConfig": [line]}))


@pytest.mark.parametrize("value", ["Slurm", "none", "auth/slurm", "", 1])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(CorralError, match=r"spec\.slurm\.auth"):
        validate.check(edited("spec.slurm", {"auth": value}))
