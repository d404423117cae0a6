# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all modules do where a task runs them: their options are checked, a backend is called, its result or its error is the module's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module, slurmctld_options


def argument_spec() -> dict[str, Any]:
    return {"name": {"type": "str"}, "number": {"type": "int", "default": 3}}


def echo(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    return {"changed": True, "seen": params, "check": check, "diff_wanted": diff}


def run(capsys: pytest.CaptureFixture[str], args: dict[str, Any], *words: Any, **more: Any) -> tuple[int, dict[str, Any]]:
    with patch_module_args(args), pytest.raises(SystemExit) as ended:
        run_module(*words, **more)
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return int(str(ended.value.code)), said


def test_the_backends_result_is_the_modules(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, {"name": "a", "_ansible_check_mode": True, "_ansible_diff": True}, echo, argument_spec)
    assert status == 0
    assert said["changed"] is True and said["seen"] == {"name": "a", "number": 3}
    assert (said["check"], said["diff_wanted"]) == (True, True)
    status, said = run(capsys, {}, echo, argument_spec)
    assert (said["check"], said["diff_wanted"]) == (False, False)


@pytest.mark.parametrize(("data", "changed"), [({"requests": 2}, False), ({"requests": 2, "changed": True}, True)])
def test_an_error_fails_the_task_with_its_sentence_and_data(
    capsys: pytest.CaptureFixture[str], data: dict[str, Any], changed: bool
) -> None:
    def backend(*_: object, **__: object) -> dict[str, Any]:
        raise CorralError("It went wrong.", data=data)

    status, said = run(capsys, {}, backend, argument_spec)
    assert status == 1
    assert (said["failed"], said["msg"], said["changed"], said["requests"]) == (True, "It went wrong.", changed, 2)


def test_what_restricts_options_holds(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, {"name": "a", "number": 1}, echo, argument_spec, {"mutually_exclusive": [("name", "number")]})
    assert status == 1
    assert "mutually exclusive" in said["msg"] and "seen" not in said


def test_what_the_result_shows_of_the_options_may_be_less_than_the_backend_has(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, {"name": "secret"}, echo, argument_spec, shown=lambda params: {**params, "name": "hidden"})
    assert status == 0
    assert said["seen"]["name"] == "secret"
    assert said["invocation"]["module_args"] == {"name": "hidden", "number": 3}


def test_the_connection_may_come_from_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_AUTH_CONTEXT", "from the environment")
    for options in (connection_options, slurmctld_options):
        status, said = run(capsys, {}, echo, options)
        assert status == 0 and said["seen"]["context"] == "from the environment"
        status, said = run(capsys, {"context": "given"}, echo, options)
        assert said["seen"]["context"] == "given"
