# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""job_hook.sh: what a prolog and an epilog run, in which order, for how long, and what becomes of failures; against a health.py that is told what to say."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REFUSED = 3


class Hook:
    """A pod of a folder. ``decision``: the status with which health.py ends."""

    def __init__(self, folder: Path, script: Callable[[str, dict[str, str]], str]) -> None:
        self.folder = folder
        self.settings = folder / "settings"
        self.results = folder / "results"
        self.devices = folder / "gpu"
        self.settings.mkdir()
        self.results.mkdir()
        self.program("health.sh", f'#!/bin/sh\nprintf "%s|" "$@" >>{folder}/asked\ncat >>{folder}/asked\nexit $(cat {folder}/decision)\n')
        self.decision(0)
        text = script(
            "job_hook.sh",
            {
                "settings=/etc/corral/health\n": f"settings={self.settings}\n",
                "results=/run/corral-health\n": f"results={self.results}\n",
                "gpus=/dev/corral-gpu\n": f"gpus={self.devices}\n",
                "log=/dev/stderr\n": f"log={folder}/log\n",
                "python=/usr/local/lib/corral/health.sh\n": f"python={folder}/health.sh\n",
            },
        )
        self.path = self.program("job_hook.sh", text)

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def decision(self, status: int) -> None:
        (self.folder / "decision").write_text(f"{status}\n")

    def script(self, text: str, *, name: str = "lamp", seconds: int = 30, action: str = "drain") -> str:
        """Returns its line."""
        return f"script {name} {seconds} {action} {self.program(name, f'#!/bin/bash{chr(10)}{text}')}"

    def run(self, hook: str, *lines: str, **environment: str) -> int:
        log = self.folder / "log"
        for path in (log, self.folder / "asked"):
            path.unlink(missing_ok=True)
        if lines:
            (self.settings / f"{hook}.conf").write_text("".join(f"{line}\n" for line in lines))
        # As slurmd starts it, without a PATH.
        given = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "0", **environment}
        done = subprocess.run([self.path, hook], env=given, capture_output=True, text=True, check=False, timeout=120, cwd="/")
        self.log = log.read_text() if log.exists() else ""
        assert done.stdout == done.stderr == "", done
        return done.returncode

    @property
    def asked(self) -> str:
        path = self.folder / "asked"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def hook(tmp_path: Path, script: Callable[[str, dict[str, str]], str]) -> Hook:
    return Hook(tmp_path, script)


def test_without_settings_a_job_begins(hook: Hook) -> None:
    assert hook.run("prolog") == 0 and hook.run("epilog") == 0 and hook.asked == hook.log == ""


def test_a_job_of_a_node_that_was_well_starts_no_python(hook: Hook) -> None:
    assert hook.run("prolog", "last") == 0 and hook.asked == ""
    (hook.results / "failed").touch()  # as a run leaves it that found nothing
    assert hook.run("prolog", "last") == 0 and hook.asked == ""


@pytest.mark.parametrize(("decision", "status"), [(0, 0), (REFUSED, 1), (1, 0), (2, 0), (127, 0)])
def test_what_the_last_run_found_is_checked_again(hook: Hook, decision: int, status: int) -> None:
    """A health.py that breaks, by whatever status, refuses nothing."""
    (hook.results / "failed").write_text("corral: health: raid: md0 lacks a disk")
    hook.decision(decision)
    assert hook.run("prolog", "last") == status and hook.asked == "--job|prolog|"
    assert ("nothing was done" in hook.log) == (decision not in (0, REFUSED))
    assert hook.run("prolog", "checks raid,disk-full") == status and hook.asked == "--job|prolog|--checks|raid,disk-full|"
    assert hook.run("epilog", "checks raid") == 0


def test_scripts_run_in_order_and_a_refusal_is_the_last(hook: Hook) -> None:
    order = hook.folder / "order"
    lines = [hook.script(f"echo {name} >>{order}; exit {status}", name=name) for name, status in (("b", 0), ("a", 1), ("c", 0))]
    assert hook.run("prolog", *lines) == 0 and order.read_text() == "b\na\nc\n", "spared"
    order.unlink()
    hook.decision(REFUSED)
    assert hook.run("prolog", *lines) == 1 and order.read_text() == "b\na\n"
    order.unlink()
    assert hook.run("epilog", *lines) == 0 and order.read_text() == "b\na\nc\n", "the job is over in any case"


@pytest.mark.parametrize(
    ("text", "action", "asked"),
    [
        ("echo 'first'; echo; echo 'the lamp is off'; echo '  '; echo secret >&2; exit 1", "drain", "drain|the lamp is off"),
        ("printf 'no line break'; exit 9", "always", "always|no line break"),
        ("exit 2", "drain", "drain|it ended with status 2"),
        ("kill -SEGV $$", "drain", "drain|it ended with status 139"),
        ("echo off; exit 1", "log", ""),
        ("exit 127", "drain", ""),
        ("exit 127", "always", "always|it ended with status 127"),
    ],
)
def test_what_counts_as_a_failure(hook: Hook, text: str, action: str, asked: str) -> None:
    hook.decision(REFUSED)
    assert hook.run("prolog", hook.script(text, action=action)) == (1 if asked else 0), hook.log
    assert hook.asked == (f"--job|prolog|--failed|lamp|--action|{asked}" if asked else "")
    assert "secret" not in hook.asked and ("secret" in hook.log) == ("secret" in text), "stderr is for the log alone"


@pytest.mark.parametrize("action", ["drain", "always"])
def test_a_script_that_is_not_there(hook: Hook, action: str) -> None:
    hook.decision(REFUSED)
    assert hook.run("prolog", f"script lamp 5 {action} {hook.folder}/none") == (1 if action == "always" else 0)
    assert "lamp" in hook.log


def test_a_script_that_hangs_is_killed_with_all_that_it_started(hook: Hook) -> None:
    mark = hook.folder / "pid"
    text = f"trap '' TERM INT HUP; (trap '' TERM HUP; sleep 300) & echo $! >{mark}; echo 'waits for a lamp'; sleep 300"
    hook.decision(REFUSED)
    began = time.monotonic()
    assert hook.run("prolog", hook.script(text, seconds=1)) == 1 and time.monotonic() - began < 60
    assert hook.asked.endswith("|it took longer than 1 s")
    pid, until = int(mark.read_text()), time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert [path.name for path in hook.results.iterdir()] == []


def test_what_a_script_leaves_running_holds_no_job_up(hook: Hook) -> None:
    """As one that starts a daemon: it has the script's output."""
    began = time.monotonic()
    assert hook.run("prolog", hook.script("sleep 100 & disown; echo $!; exit 0", seconds=90)) == 0
    assert time.monotonic() - began < 60


def test_a_script_reads_nothing_and_has_slurms_environment(hook: Hook) -> None:
    text = f'read -r line && exit 1; echo "$SLURM_JOB_ID $PATH" >{hook.folder}/seen'
    assert hook.run("prolog", hook.script(text)) == 0
    assert (hook.folder / "seen").read_text() == "7 /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"


def test_functions_and_start_files_of_the_environment_are_not_taken(hook: Hook) -> None:
    bad = hook.program("bad", f"touch {hook.folder}/taken\n")
    functions = {f"BASH_FUNC_{name}%%": f"() {{ touch {hook.folder}/taken; }}" for name in ("say", "setsid", "read")}
    assert hook.run("prolog", "script lamp 5 drain /bin/true", BASH_ENV=str(bad), ENV=str(bad), **functions) == 0
    assert not (hook.folder / "taken").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
def test_a_directory(hook: Hook) -> None:
    site = hook.folder / "site.d"
    assert hook.run("prolog", f"directory site 5 drain {site}") == 0 and "is not there" in hook.log
    hook.decision(REFUSED)
    assert hook.run("prolog", f"directory site 5 always {site}") == 1
    hook.decision(0)
    site.mkdir()
    assert hook.run("prolog", f"directory site 5 drain {site}") == 0 and hook.log == ""
    order = hook.folder / "order"
    for name in ("20-b", "10-a", "30-theirs", "40-open", "50-not", "note"):
        (site / name).write_text(f"#!/bin/sh\necho {name} >>{order}\n[ {name} != 20-b ] || {{ echo broken; exit 1; }}\n")
        (site / name).chmod({"40-open": 0o777, "50-not": 0o644, "note": 0o600}.get(name, 0o755))
    (site / "60-folder").mkdir()
    os.chown(site / "30-theirs", 10001, 10001)
    assert hook.run("prolog", f"directory site 5 drain {site}") == 0
    assert order.read_text() == "10-a\n20-b\n" and hook.asked == "--job|prolog|--failed|site/20-b|--action|drain|broken"
    assert "30-theirs is not run" in hook.log and "40-open is not run" in hook.log
    order.unlink()
    site.chmod(0o777)  # where a user could put another in its place
    assert hook.run("prolog", f"directory site 5 drain {site}") == 0 and not order.exists()


@pytest.fixture
def mapping(hook: Hook) -> Path:
    hook.devices.mkdir()
    for number, target in enumerate(("../nvidia2", "../nvidia3", "../nvidia5", "../null")):
        os.symlink(target, hook.devices / str(number))
    made = hook.folder / "dcgm"
    made.mkdir(mode=0o755)
    return made


def jobs(mapping: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in mapping.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="the directory is root's")
def test_which_job_has_which_gpu(hook: Hook, mapping: Path) -> None:
    def both(number: str, gpus: str, hooks: str) -> dict[str, str]:
        assert hook.run(hooks, f"gpus {mapping}", SLURM_JOB_ID=number, SLURM_JOB_GPUS=gpus) == 0
        assert hook.log == ""
        return jobs(mapping)

    assert both("7", "", "prolog") == {}
    assert both("7", "0,2", "prolog") == {"2": "7\n", "5": "7\n"}
    assert both("8", "1-2", "prolog") == {"2": "7\n", "3": "8\n", "5": "7\n8\n"}
    assert both("8", "1-2", "prolog") == {"2": "7\n", "3": "8\n", "5": "7\n8\n"}, "a prolog that is run again"
    assert (mapping / "2").stat().st_mode & 0o777 == 0o644
    assert both("7", "0,2", "epilog") == {"3": "8\n", "5": "8\n"}
    assert both("8", "1-2", "epilog") == {}
    assert both("9", "3", "prolog") == {"3": "9\n"}, "a simulated one has no number of the driver's"
    (mapping / "7").write_text("5\n")  # of another worker of the Kubernetes node
    (hook.settings / "epilog.conf").unlink()
    assert hook.run("start") == 0 and "7" in jobs(mapping) and "3" in jobs(mapping), "without settings of the epilog"
    (hook.settings / "epilog.conf").write_text(f"gpus {mapping}\n")
    assert hook.run("start") == 0 and jobs(mapping) == {"7": "5\n"}


@pytest.mark.skipif(os.geteuid() != 0, reason="the directory is root's")
def test_a_mapping_never_leads_elsewhere_and_never_costs_a_job(hook: Hook, mapping: Path) -> None:
    victim = hook.folder / "victim"
    victim.write_text("precious\n")
    os.symlink(victim, mapping / "2")
    assert hook.run("prolog", f"gpus {mapping}", SLURM_JOB_GPUS="0,$(touch x),../../etc/passwd") == 0
    assert victim.read_text() == "precious\n" and jobs(mapping) == {"2": "7\n"} and not (mapping / "2").is_symlink()
    mapping.chmod(0o777)
    assert hook.run("prolog", f"gpus {mapping}", SLURM_JOB_GPUS="1") == 0 and "others than root" in hook.log
    assert hook.run("prolog", f"gpus {hook.folder}/none", SLURM_JOB_GPUS="1") == 0 and "not a directory" in hook.log
    assert jobs(mapping) == {"2": "7\n"}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_python_is_started_for_leftovers_only_where_there_are_some(hook: Hook) -> None:
    uid = 23456
    assert hook.run("epilog", "leftovers", SLURM_JOB_UID=str(uid)) == 0 and hook.asked == ""
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sleep", "100"]
    with subprocess.Popen(command) as process:
        try:
            until = time.monotonic() + 20
            while os.stat(f"/proc/{process.pid}").st_uid != uid:
                assert time.monotonic() < until
            assert hook.run("epilog", "leftovers", SLURM_JOB_UID=str(uid)) == 0 and hook.asked == "--job|epilog|--leftovers|"
            assert hook.run("epilog", "leftovers", SLURM_JOB_UID="0") == 0 and hook.asked == ""
        finally:
            process.kill()
    # Of a step, which another job may have here.
    step = hook.folder / "slurmstepd"
    step.symlink_to("/bin/bash")
    with subprocess.Popen([step, "-c", f"{' '.join(command)} & echo $!; wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        below = int(process.stdout.readline())
        try:
            assert Path(f"/proc/{process.pid}/comm").read_text() == "slurmstepd\n"
            until = time.monotonic() + 20
            while os.stat(f"/proc/{below}").st_uid != uid:
                assert time.monotonic() < until
            assert hook.run("epilog", "leftovers", SLURM_JOB_UID=str(uid)) == 0 and hook.asked == ""
        finally:
            os.kill(below, 9)
