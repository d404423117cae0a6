# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import jobs, output

from .records import job, text

RUNNING, FAILED, NO_OUTPUT, CANCELLED, ARRAY = job(18), job(11), job(8), job(4), job(13)
DONE = replace(FAILED, state="COMPLETED", exit_code=0)
PENDING = replace(RUNNING, state="PENDING", nodes="")
HELD = replace(PENDING, held=True)


def params(**options: Any) -> dict[str, Any]:
    return {"name": "hello", "command": "hostname", "script": None, "options": {}, "comment": None, **options}


def test_what_a_real_slurm_says() -> None:
    assert [one.id for one in jobs.parse(text("jobs"))] == [4, 8, 11, 13, 17, 18]
    assert (RUNNING.user, RUNNING.state, RUNNING.ended, RUNNING.exit_code, RUNNING.nodes) == ("alice", "RUNNING", False, None, "cpu-0")
    assert (FAILED.ended, FAILED.succeeded, FAILED.exit_code, FAILED.output) == (True, False, 3, "/home/alice/slurm-11.out")
    assert CANCELLED.ended and not CANCELLED.held


def test_an_array_is_one_job_and_as_bad_as_its_worst_task() -> None:
    assert (ARRAY.tasks, ARRAY.state, ARRAY.ended, ARRAY.exit_code, ARRAY.nodes) == (4, "FAILED", True, 3, "cpu-[0-1]")


def test_words() -> None:
    assert RUNNING.summary == "job 18 (long of alice) is RUNNING on cpu-0"
    assert FAILED.summary == "job 11 (bad of alice) is FAILED on cpu-1 with exit code 3"
    assert "its output file /home/alice/slurm-8.out could not be made" in NO_OUTPUT.summary


@pytest.mark.parametrize(
    ("found", "never", "failed", "ended", "always"),
    [
        ([], True, True, True, True),
        ([RUNNING], False, False, False, True),
        ([PENDING], False, False, False, True),
        ([DONE], False, False, True, True),
        ([FAILED], False, True, True, True),
        ([FAILED, RUNNING], False, False, False, True),
        ([replace(DONE, id=20), FAILED], False, False, True, True),
    ],
)
def test_whether_a_job_is_submitted(found: list[jobs.Job], never: bool, failed: bool, ended: bool, always: bool) -> None:
    assert {word: jobs.must_submit(found, word) for word in ("never", "failed", "ended", "always")} == {
        "never": never,
        "failed": failed,
        "ended": ended,
        "always": always,
    }


@pytest.mark.parametrize(
    ("job", "state", "command"),
    [
        (RUNNING, "absent", ["scancel", "18"]),
        (PENDING, "absent", ["scancel", "18"]),
        (replace(RUNNING, state="COMPLETING"), "absent", None),
        (replace(RUNNING, state="COMPLETED+COMPLETING"), "absent", None),
        (replace(RUNNING, state="PENDING+COMPLETING"), "absent", ["scancel", "18"]),
        (FAILED, "absent", None),
        (PENDING, "held", ["scontrol", "hold", "18"]),
        (HELD, "held", None),
        (RUNNING, "held", None),
        (HELD, "released", ["scontrol", "release", "18"]),
        (PENDING, "released", None),
        (CANCELLED, "released", None),
        (RUNNING, "requeued", ["scontrol", "requeue", "18"]),
        (FAILED, "requeued", ["scontrol", "requeue", "11"]),
        (PENDING, "requeued", None),
    ],
)
def test_deeds(job: jobs.Job, state: str, command: list[str] | None) -> None:
    assert [deed[1] for deed in jobs.actions([job], state)] == ([command] if command else [])


def test_a_submission() -> None:
    words, script = jobs.submission(
        params(comment="a b", options={"nodes": 2, "partition": "main", "exclusive": True, "hold": False, "mail_user": "x"})
    )
    assert words == ["--parsable", "--job-name=hello", "--comment=a b", "--nodes=2", "--partition=main", "--exclusive", "--mail-user=x"]
    assert script == "#!/bin/sh\nhostname\n"
    assert jobs.submission(params(command=None, script="#!/bin/bash\ntrue\n"))[1] == "#!/bin/bash\ntrue\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"options": {"uid": "root"}}, "'uid' cannot be given"),
        ({"options": {"job_name": "x"}}, "cannot be given"),
        ({"options": {"--nodes": 1}}, "cannot be given"),
        ({"options": {"nodes": "1\n2"}}, "line break"),
        ({"name": "a,b"}, "has a comma"),
        ({"name": " "}, "is empty"),
        ({"command": None, "script": "hostname"}, "does not begin with '#!'"),
    ],
)
def test_mistakes_are_told_before_anything_is_submitted(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=words):
        jobs.submission(params(**options))


@pytest.mark.parametrize("said", ["12\n", "12;cluster\n", "a word of a plugin\n12\n"])
def test_the_number_that_sbatch_says(said: str) -> None:
    assert jobs.submitted(said) == 12


@pytest.mark.parametrize("said", ["", "Submitted batch job 12", "twelve"])
def test_another_answer_of_sbatch_is_no_number(said: str) -> None:
    with pytest.raises(output.OutputError, match="see with squeue"):
        jobs.submitted(said)
