# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_token against a slurmctld of paper, and what of a token is shown."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ansible_collections.corral.slurm.plugins.action import slurm_token
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import token
from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction

from .conftest import CONNECTION, Fake

# The first of scontrol 24.11.5; its key was one of a test.
MADE = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE3OTU2MzExNjEsImlhdCI6MTc5NTYzMTEwMSwic3VuIjoiYWxpY2UifQ"
    ".C9o_f3D5psLIR59oXixHTcHg7Zm-E_P9dOD0ya1VSqI"
)
KNOWN = ("getent", "passwd", "alice")
MAKE = ("scontrol", "token", "username=alice", "lifespan=60")


def make(check: bool = False, **options: Any) -> dict[str, Any]:
    return token.run({**CONNECTION, "user": "alice", "lifespan": 60, **options}, check=check, diff=False)


def test_a_token_and_when_it_expires(fake: Fake) -> None:
    fake.answers = {KNOWN: Output(0, "alice:x:1:1::/:/bin/sh\n", ""), MAKE: Output(0, f"SLURM_JWT={MADE}\n", "")}
    result = make()
    assert (result["changed"], result["user"], result["token"], result["expires"]) == (True, "alice", MADE, 1795631161)
    assert fake.execs == [list(KNOWN), list(MAKE)]


def test_check_mode_makes_none(fake: Fake) -> None:
    fake.answers = {KNOWN: Output(0, "", "")}
    assert "token" not in make(check=True)
    assert fake.execs == [list(KNOWN)]


@pytest.mark.parametrize(
    ("options", "answers", "words"),
    [
        ({"user": "a b"}, {}, "user is a b, which no user can be called"),
        ({"user": "-x"}, {}, "user is -x"),
        ({"lifespan": 0}, {}, "give 1 to 2592000 seconds"),
        ({"lifespan": 2592001}, {}, "give 1 to 2592000 seconds"),
        ({}, {KNOWN: Output(2, "", "")}, "knows no user alice; correct the name, or add the user."),
        (
            {},
            {KNOWN: Output(0, "", ""), MAKE: Output(1, "", "scontrol: error: Invalid user id")},
            "a token of alice: scontrol: error: Invalid",
        ),
        ({}, {KNOWN: Output(0, "", ""), MAKE: Output(0, "SLURM_JWT=", "")}, "returned no token; does the cluster have spec.rest?"),
    ],
)
def test_what_goes_wrong_is_one_sentence(fake: Fake, options: dict[str, Any], answers: dict[tuple[str, ...], Output], words: str) -> None:
    fake.answers = dict(answers)
    with pytest.raises(CorralError) as raised:
        make(**options)
    assert words in str(raised.value)


@pytest.mark.parametrize(("result", "hidden"), [({"token": MADE}, True), ({"failed": True, "msg": "no"}, None)])
def test_ansible_shows_no_token_and_all_of_an_error(result: dict[str, Any], hidden: bool | None) -> None:
    action = slurm_token.ActionModule.__new__(slurm_token.ActionModule)
    with mock.patch.object(BackendAction, "run", return_value=result):
        assert action.run(None, {}).get("_ansible_no_log") is hidden
