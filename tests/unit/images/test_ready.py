# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ready.sh and gpus.sh: what is done before slurmd starts, against a scheduler of a few lines and device files of a folder."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ENTRY = Path(__file__).resolve().parents[3] / "images" / "slurm" / "entry"

SCONTROL = """\
#!/bin/bash
echo "$*" >>{folder}/asked
case "$1 $2" in
"show node") grep State= {folder}/node || {{ echo "Node gpu-0 not found"; exit 1; }} ;;
"update "*)
    [[ $* != *undrain || -e {folder}/stubborn ]] || sed -i 's/+DRAIN//' {folder}/node
    [ ! -e {folder}/deaf ]
    ;;
*) exit 9 ;;
esac
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Start:
    """A worker's start: `run` what slurmd.sh would, and look what Slurm was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program(folder / "scontrol", SCONTROL.format(folder=folder))
        self.node("NodeName=gpu-0 State=IDLE ")

    def node(self, line: str) -> None:
        (self.folder / "node").write_text(line + "\n")

    def run(self, command: str, name: str = "gpu-0") -> subprocess.CompletedProcess[str]:
        script = f". {ENTRY}/common.sh; . {ENTRY}/ready.sh; name={name}; {command}; echo reached"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script, "slurmd.sh"],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def told(self) -> list[str]:
        asked = self.folder / "asked"
        return [line for line in asked.read_text().splitlines() if line.startswith("update")] if asked.exists() else []


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path)


def test_what_succeeds_goes_to_the_log_and_slurm_is_not_asked(start: Start) -> None:
    done = start.run("ready 'init script a' 5 echo hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "reached\n", "hello\n")
    assert not (start.folder / "asked").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'echo one; echo two; echo; exit 3'", "init script a ended with status 3: two"),
        ("sh -c 'exit 3'", "init script a ended with status 3"),
        ("sh -c 'echo begun; sleep 20'", "init script a took longer than 1 s: begun"),
        ("sh -c 'trap \"\" TERM; echo deaf; sleep 20 & wait; sleep 20'", "init script a took longer than 1 s: deaf"),
        ("sh -c 'echo begun; kill -KILL $$'", "init script a ended with status 137: begun"),
        ("/not/there", "init script a ended with status 127: "),
        ("sh -c 'printf \"a\\tb\\r\\001c\" >&2; false'", "init script a ended with status 1: a b  c"),
    ],
)
def test_what_fails_is_the_nodes_reason_and_nothing_is_started(start: Start, command: str, said: str) -> None:
    done = start.run(f"ready 'init script a' 1 {command}")
    assert done.returncode == 1 and "reached" not in done.stdout
    assert f"slurmd.sh: {said}" in done.stderr
    assert len(start.told()) == 1
    assert start.told()[0].startswith(f"update nodename=gpu-0 state=drain reason=corral: start: {said}")


def test_a_login_node_says_it_and_slurm_is_not_asked(start: Start) -> None:
    done = start.run("ready 'init script a' 5 sh -c 'echo no disk; exit 3'", name="")
    assert done.returncode == 1 and "reached" not in done.stdout
    assert done.stderr.splitlines()[-1] == "slurmd.sh: init script a ended with status 3: no disk"
    assert not (start.folder / "asked").exists()


def test_a_long_line_is_cut(start: Start) -> None:
    start.run(f"ready a 5 sh -c 'echo {'x' * 5000}; false'")
    assert len(start.told()[0]) < 400


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("NodeName=gpu-0 State=IDLE+DRAIN Reason=fan 2 is loud [ada@2026]", 0),
        ("NodeName=gpu-0 State=DOWN+DRAIN Reason=corral: start: something else [root@2026]", 1),
        # A node that came back keeps its reason.
        ("NodeName=gpu-0 State=IDLE Reason=fan 2 is loud [ada@2026]", 1),
    ],
)
def test_a_drain_of_somebody_else_stays(start: Start, node: str, told: int) -> None:
    start.node(node)
    assert start.run("ready a 5 false").returncode == 1
    assert len(start.told()) == told


def test_a_node_that_nobody_sees_is_shown_as_down_first(start: Start) -> None:
    start.node("NodeName=gpu-0")
    assert start.run("ready a 5 false").returncode == 1
    assert [line.split(" reason=")[0] for line in start.told()] == [
        "update nodename=gpu-0 state=down",
        "update nodename=gpu-0 state=drain",
    ]


def test_a_scheduler_that_does_not_answer_starts_no_slurmd_either(start: Start) -> None:
    (start.folder / "deaf").touch()
    done = start.run("ready a 5 false")
    assert done.returncode == 1 and "slurmctld was not informed" in done.stderr


@pytest.mark.parametrize(
    ("state", "told"),
    [("IDLE", False), ("MIXED+PLANNED", True), ("ALLOCATED*+NOT_RESPONDING", True), ("MIXED+DRAIN", False), ("DOWN+NOT_RESPONDING", False)],
)
def test_jobs_that_ended_with_the_container_are_told_but_for_the_nodes_of_others(start: Start, state: str, told: bool) -> None:
    start.node(f"NodeName=gpu-0 State={state} ")
    assert start.run("jobs_are_lost").stdout == "reached\n"
    assert start.told() == ["update nodename=gpu-0 state=down reason=corral: pod: its container was killed, and the jobs with it"] * told


def test_a_scheduler_that_was_not_told_of_lost_jobs_keeps_no_slurmd_from_starting(start: Start) -> None:
    start.node("NodeName=gpu-0 State=ALLOCATED ")
    (start.folder / "deaf").touch()
    done = start.run("jobs_are_lost")
    assert done.stdout == "reached\n"
    assert done.stderr == "slurmd.sh: slurmctld was not informed of jobs that ended with this node's container\n"
    (start.folder / "node").unlink()
    assert start.run("jobs_are_lost").stdout == "reached\n"


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("NodeName=gpu-0 State=DOWN+DRAIN Reason=corral: start: x [root@2026]", ["update nodename=gpu-0 state=undrain"]),
        ("NodeName=gpu-0 State=IDLE+DRAIN Reason=corral: admin: x [root@2026]", []),
        ("NodeName=gpu-0 State=IDLE Reason=corral: start: x [root@2026]", []),
    ],
)
def test_what_was_taken_out_here_is_taken_back(start: Start, node: str, told: list[str]) -> None:
    start.node(node)
    assert start.run("back_in_service").stdout == "reached\n"
    assert start.told() == told


def test_what_slurm_shows_counts_and_not_what_it_says(start: Start) -> None:
    start.node("NodeName=gpu-0 State=UNKNOWN+DRAIN Reason=corral: start: x [root@2026]")
    (start.folder / "stubborn").touch()
    done = start.run("back_in_service")
    assert done.returncode == 1 and "did not take this node, gpu-0, back into service" in done.stderr
    (start.folder / "stubborn").unlink()
    (start.folder / "deaf").touch()
    assert start.run("back_in_service").stdout == "reached\n"


@pytest.mark.parametrize(
    ("written", "extra"),
    [('{"rack": 7}\n', '{"rack": 7}'), ('{"rack":\n 7}', '{"rack":  7}'), ('grün\a$(id) "*\n', 'grün$(id) "*'), ("", "")],
)
def test_what_scripts_write_of_their_node_is_one_line_for_slurmd(start: Start, written: str, extra: str) -> None:
    (start.folder / "extra").write_text(written)
    done = start.run(f'CORRAL_NODE_EXTRA={start.folder}/extra; printf "<%s>" "$(node_extra)"')
    assert (done.returncode, done.stdout) == (0, f"<{extra}>reached\n")


class Machine:
    """A /dev and an /opt/corral/gpu of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.dev = folder / "dev"
        self.shown = folder / "shown"
        self.dev.mkdir()
        text = (ENTRY / "gpus.sh").read_text()
        for old, new in (
            (". /usr/local/lib/corral/common.sh", f". {ENTRY}/common.sh"),
            ("dev=/dev\n", f"dev={self.dev}\n"),
            ("shown=/opt/corral/gpu\n", f"shown={self.shown}\n"),
            ("/usr/lib*/*.so*)", f"{folder}/*.so*)"),
            ("/usr/bin/nvidia-*)", f"{folder}/nvidia-*)"),
        ):
            assert old in text
            text = text.replace(old, new)
        self.script = program(folder / "gpus.sh", text)

    def add(self, *names: str) -> None:
        for name in names:
            path = self.dev / name
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def run(self, vendor: str, count: int, before: str = "true") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "CORRAL_GPU_VENDOR": vendor, "CORRAL_GPU_COUNT": str(count)}
        command = f"{before}; exec {shlex.quote(str(self.script))}"
        return subprocess.run(["unshare", "-m", "bash", "-euc", command], env=env, capture_output=True, text=True, check=False, timeout=30)

    def links(self) -> list[str]:
        return [os.readlink(self.dev / "corral-gpu" / str(number)) for number in range(len(list((self.dev / "corral-gpu").iterdir())))]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    return Machine(tmp_path)


def test_a_part_of_a_machines_gpus_in_the_order_of_their_numbers(machine: Machine) -> None:
    machine.add("nvidia10", "nvidia2", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1")
    done = machine.run("nvidia", 3)
    assert done.returncode == 0, done.stderr
    assert machine.links() == ["../nvidia2", "../nvidia7", "../nvidia10"]
    again = machine.run("nvidia", 3)
    assert again.returncode == 0 and machine.links() == ["../nvidia2", "../nvidia7", "../nvidia10"]


def test_the_other_vendor(machine: Machine) -> None:
    machine.add("dri/card0", "dri/renderD129", "dri/renderD128", "kfd")
    assert machine.run("amd", 2).returncode == 0
    assert machine.links() == ["../dri/renderD128", "../dri/renderD129"]


@pytest.mark.parametrize("count", [1, 4, 64])
def test_simulated_ones_are_as_many_as_asked(machine: Machine, count: int) -> None:
    assert machine.run("simulated", count).returncode == 0
    assert machine.links() == ["../null"] * count


@pytest.mark.parametrize(("there", "wanted"), [(0, 1), (2, 3), (3, 2)])
def test_another_number_than_slurm_counts_on_is_refused(machine: Machine, there: int, wanted: int) -> None:
    machine.add(*(f"nvidia{number}" for number in range(there)))
    done = machine.run("nvidia", wanted)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        f"the pod has {there} GPUs of nvidia, and Slurm expects {wanted}: check the device plugin and the RuntimeClass of its Kubernetes node"
    )
    assert not (machine.dev / "corral-gpu").exists()


def test_the_driver_that_the_runtime_laid_into_the_pod_is_shown(machine: Machine, tmp_path: Path) -> None:
    for name in ("libcuda.so.550.1", "nvidia-smi", "own.conf"):
        (tmp_path / name).write_text(name)
        (tmp_path / f"{name}.source").write_text(f"the driver's {name}")
    mounts = "; ".join(
        f"mount --bind {tmp_path}/{name}.source {tmp_path}/{name}" for name in ("libcuda.so.550.1", "nvidia-smi", "own.conf")
    )
    look = f"; find {machine.shown} -type f -exec sh -c 'echo $1: $(cat $1)' sh {{}} ';'"
    text = machine.script.read_text()
    machine.script.write_text(text + look.removeprefix("; ") + "\n")
    done = machine.run("simulated", 1, mounts)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{machine.shown}/bin/nvidia-smi: the driver's nvidia-smi",
        f"{machine.shown}/lib/libcuda.so.550.1: the driver's libcuda.so.550.1",
    ]
