# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.health.prolog and epilog: what Slurm is told, what the pods read, and what a document may not say."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import job_hooks, resolve

from .documents import edited, good
from .test_validate import mistakes

SCRIPT = {"name": "lamp", "script": "#!/bin/sh\nexit 0\n"}
OFF = {"enabled": False, "epilog": {"killLeftovers": False}}


def of(document: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Files of Slurm's configuration, and those of the pods."""
    model = resolve.model(document).to_dict()
    return model["config"]["files"], model["workers"]["health_files"]


def lines(document: Any, key: str) -> list[str]:
    return [line for line in of(document)[0]["slurm.conf"].splitlines() if line.startswith(f"{key}=")]


def test_without_a_word_the_last_run_counts_and_leftovers_are_killed() -> None:
    texts, files = of(good())
    assert (files["prolog.conf"], files["epilog.conf"]) == ("last\n", "leftovers\n")
    assert lines(good(), "Prolog") == ["Prolog=prolog.sh"] and lines(good(), "Epilog") == ["Epilog=epilog.sh"]
    assert lines(good(), "SchedulerParameters") == ["SchedulerParameters=nohold_on_prolog_fail"]
    assert texts["prolog.sh"].endswith(" prolog\n") and texts["epilog.sh"].endswith(" epilog\n")


def test_where_nothing_is_to_be_done_slurm_starts_nothing() -> None:
    document = edited("spec.health", OFF)
    texts, files = of(document)
    assert not {"prolog.sh", "epilog.sh"} & set(texts) and list(files) == ["health.json"]
    assert lines(document, "Prolog") == lines(document, "Epilog") == lines(document, "SchedulerParameters") == []


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("bf_continue", "bf_continue,nohold_on_prolog_fail"),
        ("nohold_on_prolog_fail,bf_continue", "nohold_on_prolog_fail,bf_continue"),
        ("bf_continue,NoHold_On_Prolog_Fail", "bf_continue,NoHold_On_Prolog_Fail"),
    ],
)
def test_a_job_that_a_prolog_refuses_is_not_held_whatever_else_the_site_sets(given: str, made: str) -> None:
    assert lines(edited("spec.slurm.extraConfig", [f"schedulerparameters={given}"]), "schedulerparameters") == [
        f"schedulerparameters={made}"
    ]


def test_the_order_of_what_is_run() -> None:
    hook = {
        "checks": ["disk-full", "raid"],
        "scripts": [
            SCRIPT,
            {"name": "site", "directory": "/opt/site/d", "timeoutSeconds": 3, "onFailure": "DrainAlways"},
            {"name": "say", "command": ["/bin/echo", "it's", "a b"], "onFailure": "Log"},
        ],
    }
    document = edited("spec.health", {"prolog": hook, "epilog": hook, "gpuJobMapping": "/run/dcgm"})
    files = of(document)[1]
    scripts = [
        "script lamp 10 drain /etc/corral/health/{}.d.lamp",
        "directory site 3 always /opt/site/d",
        "script say 10 log /etc/corral/health/{}.d.say",
    ]
    assert files["prolog.conf"].splitlines() == ["checks disk-full,raid", *(line.format("prolog") for line in scripts), "gpus /run/dcgm"]
    assert files["epilog.conf"].splitlines() == [
        "gpus /run/dcgm",
        "leftovers",
        *(line.format("epilog") for line in scripts),
        "checks disk-full,raid",
    ]
    assert files["prolog.d.lamp"] == SCRIPT["script"]
    done = subprocess.run(["sh"], input=files["epilog.d.say"], capture_output=True, text=True, check=True)
    assert done.stdout == "it's a b\n"


def test_an_image_without_the_hooks_refuses_no_job(tmp_path: Path) -> None:
    """As a pod has it that slurm.conf has overtaken."""
    text = of(good())[0]["prolog.sh"]
    missing = text.replace(job_hooks.PROGRAM, str(tmp_path / "none"))
    assert subprocess.run(["sh", "-c", missing], capture_output=True, check=False).returncode == 0
    program = tmp_path / "hook"
    program.write_text("#!/bin/sh\necho $1\nexit 3\n")
    program.chmod(0o755)
    done = subprocess.run(["sh", "-c", text.replace(job_hooks.PROGRAM, str(program))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "prolog\n")


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"prolog": {"checks": ["gpu-cuont"]}}, "spec.health.prolog.checks[0] is gpu-cuont, which is neither a check"),
        ({"epilog": {"checks": ["raid"]}, "disabledChecks": ["raid"]}, "which spec.health.disabledChecks switches off"),
        ({"prolog": {"scripts": [{"name": "x"}]}}, "give exactly one of script, command and directory"),
        ({"prolog": {"scripts": [{**SCRIPT, "timeoutSeconds": 0}]}}, "spec.health.prolog.scripts[0].timeoutSeconds"),
        ({"prolog": {"scripts": [SCRIPT, SCRIPT]}}, "spec.health.prolog.scripts[1]"),
        ({"prolog": {"scripts": [{"name": "x", "directory": "/mnt/jail/etc/d"}]}}, "scripts[0].directory is /mnt/jail/etc/d, which is in the jail"),
        ({"epilog": {"scripts": [{"name": "x", "command": ["/home/ada/x"]}]}}, "spec.health.epilog.scripts[0].command is /home/ada/x, which is in the jail"),
        ({"prolog": {"scripts": [{"name": "x", "directory": "/opt/../mnt/jail"}]}}, "which is in the jail"),
        ({"gpuJobMapping": "/home/dcgm"}, "spec.health.gpuJobMapping is /home/dcgm, which is in the jail"),
        ({"gpuJobMapping": "run/dcgm"}, "spec.health.gpuJobMapping"),
    ],
)  # fmt: skip
def test_what_a_document_may_not_say(health: Any, words: str) -> None:
    found = mistakes(edited("spec.health", health))
    assert len(found) == 1 and words in found[0], found


def test_a_program_of_the_site_is_not_replaced_in_silence() -> None:
    document = edited("spec.slurm.extraConfig", ["PROLOG=/opt/site/prolog"])
    document["spec"]["health"] = {"prolog": {"scripts": [SCRIPT]}}
    (found,) = mistakes(document)
    assert found.startswith("spec.slurm.extraConfig sets Prolog, in whose place spec.health.prolog would not be run")
    document["spec"]["health"] = {}
    assert of(document)[0]["slurm.conf"].count("rolog=") == 1 and lines(document, "Prolog") == ["Prolog=/opt/site/prolog"]
    document["spec"]["health"] = {"gpuJobMapping": "/run/dcgm"}
    assert "spec.health.gpuJobMapping would not be written" in mistakes(document)[0]
