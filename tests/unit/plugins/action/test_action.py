# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions: what it makes of arguments, and where it runs a backend."""

from __future__ import annotations

import datetime
import os
from typing import Any
from unittest import mock

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.corral.slurm.plugins.action import slurm_job
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import job
from ansible_collections.corral.slurm.plugins.plugin_utils._action import BackendAction, plain


class Subject(BackendAction):
    calls: list[tuple[dict[str, Any], bool, bool]] = []  # noqa: RUF012  (one list for the class; a fixture clears it)

    @staticmethod
    def argument_spec() -> dict[str, Any]:
        return {
            "name": {"type": "str", "required": True, "aliases": ["called"]},
            "number": {"type": "int", "default": 3},
            "word": {"type": "str", "no_log": True},
            "made": {"type": "str"},
            "home": {"type": "str", "fallback": (lambda name: os.environ.get(name, "none"), ["SUBJECT_HOME"])},
        }

    @staticmethod
    def backend(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
        Subject.calls.append((params, check, diff))
        if params["name"] == "bad":
            raise CorralError(f"It went wrong with {params['word']}.", data={"requests": 2, "changed": True})
        return {"changed": True, "word": f"said {params['word']}", "home": os.environ.get("SUBJECT_HOME")}

    def prepare(self, params: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return {**params, "made": f"for {task_vars['who']}"}


@pytest.fixture(autouse=True)
def clean() -> None:
    Subject.calls.clear()


def action(transport: str = "local", *, become: bool = False, **args: Any) -> Subject:
    task = Task()
    task.args = args
    task.check_mode, task.diff = True, False
    task.environment = [{"SUBJECT_HOME": "from the task"}]
    connection = mock.Mock(transport=transport, become=mock.Mock() if become else None)
    loader = DataLoader()
    subject = Subject(task, connection, mock.Mock(), loader, Templar(loader), mock.Mock())
    subject._execute_module = mock.Mock(return_value={"changed": False, "remote": True})  # type: ignore[method-assign]
    return subject


def test_local_runs_the_backend_with_checked_arguments() -> None:
    result = action(name="x", word="swordfish", number="7").run(task_vars={"who": "me"})
    assert Subject.calls[0][0]["number"] == 7 and Subject.calls[0][0]["made"] == "for me" and Subject.calls[0][1:] == (True, False)
    assert result["changed"] and "swordfish" not in str(result) and result["home"] == "from the task"
    assert os.environ.get("SUBJECT_HOME") is None


@pytest.mark.parametrize("elsewhere", [{"transport": "ssh"}, {"become": True}])
def test_elsewhere_the_module_gets_what_the_task_says(elsewhere: dict[str, Any]) -> None:
    subject = action(**elsewhere, called="x", word="swordfish")
    assert subject.run(task_vars={"who": "me"}) == {"changed": False, "remote": True}
    # Neither defaults nor what the controller's environment says: the module's host fills them in.
    arguments = subject._execute_module.call_args.kwargs["module_args"]  # type: ignore[attr-defined]
    assert arguments == {"name": "x", "word": "swordfish", "made": "for me"} and Subject.calls == []


def test_an_error_is_a_failed_result_with_its_data_and_without_secrets() -> None:
    result = action(name="bad", word="swordfish").run(task_vars={"who": "me"})
    assert result["failed"] and result["changed"] and result["requests"] == 2
    assert result["msg"].startswith("It went wrong with ") and "swordfish" not in result["msg"]


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Exception, match="missing required arguments: name"):
        action(number=1).run(task_vars={"who": "me"})
    with pytest.raises(Exception, match="Supported parameters include"):
        action(name="x", other=1).run(task_vars={"who": "me"})


def test_plain_values_have_plain_types() -> None:
    from ansible.parsing.vault import EncryptedString
    from ansible.template import trust_as_template

    tagged = {trust_as_template("key"): [trust_as_template("{{ x }}"), (1, 2.5), None, True], "when": datetime.date(2026, 1, 2), "set": {3}}
    value = plain(tagged)
    assert value == {"key": ["{{ x }}", [1, 2.5], None, True], "when": "2026-01-02", "set": [3]}

    def types(part: Any) -> set[type]:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        keys = part if isinstance(part, dict) else ()
        return {type(part), *map(type, keys)}.union(*map(types, inner)) if inner else {type(part)}

    assert types(value) <= {dict, list, str, int, float, bool, type(None)}
    with mock.patch.object(EncryptedString, "_decrypt", return_value="clear"):
        assert plain(EncryptedString(ciphertext="x")) == "clear"


def test_an_action_has_the_backend_of_the_module_of_its_name() -> None:
    assert slurm_job.ActionModule.backend is job.run
    assert slurm_job.ActionModule.constraints == slurm_job.ActionModule.module.CONSTRAINTS != {}
    assert BackendAction.constraints == {}
