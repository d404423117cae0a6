# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that are planted on nodes: they go out of service with the right reason, and come back when they are well. The jail's own are tried in jail/."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Cluster, eventually

pytestmark = pytest.mark.lab

NODES = ("cpu-0", "cpu-1", "extra-0")
HEALTH = "/usr/local/lib/corral/health.sh"
RECORDED = Path(__file__).parents[1] / "unit" / "images" / "recorded_health"
# What it does is planted on each node.
PLANTED = "#!/bin/sh\n[ ! -e /run/planted ] || . /run/planted\n"
BEFORE = "#!/bin/sh\n[ ! -e /run/before ] || . /run/before\n"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("health", 30770)
    made.spec["nodeSets"][0]["sharedMemory"] = "16Mi"
    made.spec["health"] = {
        "intervalSeconds": 10,
        "disabledChecks": ["leftovers"],
        "checks": [{"name": "planted", "script": PLANTED, "timeoutSeconds": 3}],
        "prolog": {"scripts": [{"name": "before", "script": BEFORE, "timeoutSeconds": 3}]},
    }
    run = made.site()
    assert run.rc == 0, run.output
    return made


@pytest.fixture(autouse=True)
def well(cluster: Cluster) -> Iterator[None]:
    yield
    for node in NODES:
        inside(cluster, node, "rm -f /run/planted /run/before /dev/shm/full")
    eventually(lambda: reasons(cluster) == {}, "all nodes in service again", timeout=90)


def inside(cluster: Cluster, node: str, script: str) -> str:
    return cluster.kubectl("exec", "-n", cluster.namespace, f"{cluster.name}-{node}", "-c", "slurmd", "--", "bash", "-c", script)


def plant(cluster: Cluster, node: str, script: str, file: str = "/run/planted") -> None:
    inside(cluster, node, f"cat >{file}.new <<'END'\n{script}\nEND\nmv {file}.new {file}")


def reasons(cluster: Cluster) -> dict[str, str]:
    """Why nodes are out of service."""
    lines = cluster.slurm("sinfo", "-h", "-R", "-N", "-o", "%N %E").splitlines()
    return dict(line.strip().split(" ", 1) for line in lines if line.strip())


def comment(cluster: Cluster, node: str) -> str:
    return cluster.slurm("sinfo", "-h", "-N", "-n", node, "-O", "Comment:500").splitlines()[0].strip()


def runs(cluster: Cluster, node: str) -> int:
    """How many runs of the checks there were."""
    return int(inside(cluster, node, "wc -l </run/corral-health/results.jsonl"))


def after_two_runs(cluster: Cluster, node: str) -> None:
    """A run may have begun before what was planted."""
    before = runs(cluster, node)
    eventually(lambda: runs(cluster, node) >= before + 2, "two more runs of the checks")


def test_a_healthy_cluster_has_nothing_to_tell(cluster: Cluster) -> None:
    for node in NODES:
        eventually(lambda node=node: runs(cluster, node) > 1, "runs of the checks")  # type: ignore[misc]  # mypy infers no type of a lambda with a default
        last = json.loads(inside(cluster, node, "tail -n 1 /run/corral-health/results.jsonl"))
        assert last["failed"] == {} and last["notes"] == [], last
        broken = {name: found for name, found in last["results"].items() if found["status"] == "broken"}
        assert broken == {}, broken
        assert last["seconds"] < 20
    assert 'corral_health_check_failed{node="cpu-0",check="jail"} 0' in inside(cluster, "cpu-0", "cat /run/corral-health/health.prom")


def test_a_fault_takes_a_node_out_and_its_end_back(cluster: Cluster) -> None:
    plant(cluster, "cpu-1", "echo 'the lamp is off'; exit 2")
    eventually(lambda: reasons(cluster) == {"cpu-1": "corral: health: planted: the lamp is off"}, "the node with the fault is out")
    assert comment(cluster, "cpu-1") == "corral: health: planted: the lamp is off"
    assert "the lamp is off" in cluster.kubectl("logs", "-n", cluster.namespace, f"{cluster.name}-cpu-1", "-c", "slurmd")
    inside(cluster, "cpu-1", "rm /run/planted")
    eventually(lambda: reasons(cluster) == {}, "the node is back")
    eventually(lambda: comment(cluster, "cpu-1") in ("", "(null)"), "its comment is gone")


def test_a_full_disk(cluster: Cluster) -> None:
    inside(cluster, "cpu-0", "dd if=/dev/zero of=/dev/shm/full bs=1M 2>/dev/null || true")
    eventually(
        lambda: "corral: health: disk-full: /dev/shm is 100 % full" in reasons(cluster).get("cpu-0", ""),
        "the node with the full disk is out",
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 2", "status 2 and printed nothing"),
        ("sleep 60", "took longer than 3 s"),
        pytest.param("kill -SEGV $$", "signal 11", marks=pytest.mark.long),
        pytest.param("echo x; exit 9", "status 9: x", marks=pytest.mark.long),
    ],
)
def test_a_check_that_breaks_takes_nothing_out(cluster: Cluster, script: str, why: str) -> None:
    plant(cluster, "cpu-0", script)
    eventually(lambda: why in comment(cluster, "cpu-0"), "the node's comment says that the check is broken")
    after_two_runs(cluster, "cpu-0")
    assert reasons(cluster) == {}


def test_drains_and_comments_of_others_stay(cluster: Cluster) -> None:
    cluster.slurm("scontrol", "update", "nodename=extra-0", "state=drain", "reason=fan 2 is loud")
    cluster.slurm("scontrol", "update", "nodename=extra-0", "comment=rack 4")
    try:
        plant(cluster, "extra-0", "echo off; exit 2")
        after_two_runs(cluster, "extra-0")
        assert reasons(cluster) == {"extra-0": "fan 2 is loud"} and comment(cluster, "extra-0") == "rack 4"
        inside(cluster, "extra-0", "rm /run/planted")
        after_two_runs(cluster, "extra-0")
        assert reasons(cluster) == {"extra-0": "fan 2 is loud"} and comment(cluster, "extra-0") == "rack 4"
    finally:
        cluster.slurm("scontrol", "update", "nodename=extra-0", "state=resume")
        cluster.slurm("scontrol", "update", "nodename=extra-0", "comment=")


def test_the_guard_stops_an_avalanche(cluster: Cluster) -> None:
    """Of three nodes one may go; the others stay in service, and jobs are not held."""
    for node in NODES:
        plant(cluster, node, "echo off; exit 2")
    for node in NODES:
        after_two_runs(cluster, node)
    eventually(lambda: len(reasons(cluster)) == 1, "one node alone is out")
    (out,) = reasons(cluster)
    spared = next(node for node in NODES if node != out)
    eventually(lambda: "not drained: too many nodes" in comment(cluster, spared), "a node that is spared says so")
    assert "No reservations" in cluster.slurm("scontrol", "show", "reservation")


def job_field(cluster: Cluster, number: str, field: str) -> str:
    lines = cluster.slurm("scontrol", "show", "job", number).splitlines()
    return next((line.split("=", 1)[1].strip() for line in lines if line.strip().startswith(f"{field}=")), "")


def test_a_job_whose_prolog_fails_goes_elsewhere_and_its_user_reads_why(cluster: Cluster) -> None:
    plant(cluster, "cpu-0", "echo 'the scratch is full'; echo hush >&2; exit 1", "/run/before")
    reason = "corral: prolog: before: the scratch is full"
    number = cluster.ssh("sbatch --parsable -N1 -o where-%j --wrap hostname --exclude=cpu-1,extra-0").stdout.strip()
    try:
        eventually(lambda: reasons(cluster) == {"cpu-0": reason}, "the node is out by its prolog's reason")
        eventually(
            lambda: job_field(cluster, number, "JobState").startswith("PENDING Reason=BeginTime"), "the job is requeued, and not held"
        )
        assert job_field(cluster, number, "AdminComment") == f"{reason} (on cpu-0, where the job did not begin)"
        log = cluster.kubectl("logs", "-n", cluster.namespace, f"{cluster.name}-cpu-0", "-c", "slurmd")
        assert "hush" in log and f"prolog: job {number}: script before failed" in log
        # Slurm would wait two minutes.
        cluster.slurm("scontrol", "update", f"jobid={number}", "excnodelist=cpu-0", "starttime=now")
        eventually(lambda: job_field(cluster, number, "JobState").startswith("COMPLETED"), "the job has run elsewhere")
    finally:
        cluster.slurm("scancel", number, check=False)
        inside(cluster, "cpu-0", "rm -f /run/before")
        # Nothing shows that a script's fault is over.
        cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=resume", check=False)


def test_srun_on_a_node_that_is_about_to_go_says_why(cluster: Cluster) -> None:
    plant(cluster, "extra-0", "echo 'the lamp is off'; exit 2")
    eventually(lambda: "extra-0" in reasons(cluster), "the node with the fault is out")
    # As slurmctld does that sent a job there a moment before the drain.
    cluster.slurm("scontrol", "update", "nodename=extra-0", "state=resume")
    found = cluster.ssh("srun --nodelist=extra-0 --immediate=5 true", check=False)
    assert found.returncode != 0, found
    if "Unable to allocate" not in found.stderr:  # the health check came first
        assert "corral: health: planted: the lamp is off (on extra-0, where the job did not begin)" in found.stderr
    inside(cluster, "extra-0", "rm -f /run/planted")
    eventually(lambda: reasons(cluster) == {}, "the node is back")
    assert cluster.ssh("srun --nodelist=extra-0 true").returncode == 0


def test_a_prolog_that_hangs_or_cannot_be_run(cluster: Cluster) -> None:
    plant(cluster, "cpu-1", "exit 127", "/run/before")
    assert cluster.ssh("srun --nodelist=cpu-1 true").returncode == 0 and reasons(cluster) == {}
    plant(cluster, "cpu-1", "sleep 600", "/run/before")
    try:
        assert "it took longer than 3 s" in cluster.ssh("srun --nodelist=cpu-1 true", check=False).stderr
        assert reasons(cluster) == {"cpu-1": "corral: prolog: before: it took longer than 3 s"}
    finally:
        inside(cluster, "cpu-1", "rm -f /run/before")
        cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=resume", check=False)


def test_an_epilog_kills_what_belongs_to_no_job(cluster: Cluster) -> None:
    left = (
        "setpriv --reuid=10001 --regid=10001 --clear-groups sleep 1234 >/dev/null 2>&1 </dev/null & sleep 0.2; pgrep -fu 10001 'sleep 1234'"
    )
    assert inside(cluster, "cpu-0", left).strip()
    cluster.ssh("srun --nodelist=cpu-0 true")
    eventually(lambda: not inside(cluster, "cpu-0", "pgrep -u 10001 || true").strip(), "the epilog has killed the process", timeout=20)


def test_gpus_that_a_tool_reports(cluster: Cluster) -> None:
    """nvidia-smi is one that replays recorded outputs, and the checks are run by hand, with settings as a node set with GPUs has them."""
    cluster.spec["health"]["enabled"] = False
    assert cluster.site().rc == 0
    eventually(lambda: "HealthCheckInterval     = 0 sec" in cluster.slurm("scontrol", "show", "config"), "slurmd checks nothing by itself")
    xml, links = (RECORDED / "nvidia-smi.xml").read_text(), (RECORDED / "nvlink.txt").read_text()
    settings = {"nodeSets": {"cpu": {"vendor": "nvidia", "gpus": 2}}, "off": ["leftovers"]}
    tool = '#!/bin/sh\nif [ "$1" = nvlink ]; then cat /run/fake/links; else . /run/fake/smi; fi\n'
    look = f"{HEALTH} --settings=/run/fake/health.json --folder=/run/fake/run"

    def replay(text: str, smi: str = "cat /run/fake/xml") -> str:
        files = {"health.json": json.dumps(settings), "links": links, "xml": text, "smi": smi}
        write = "".join(f"cat >/run/fake/{name} <<'END'\n{content}\nEND\n" for name, content in files.items())
        write += f"cat >/usr/local/bin/nvidia-smi <<'END'\n{tool}END\nchmod 755 /usr/local/bin/nvidia-smi\n"
        inside(cluster, "cpu-0", f"mkdir -p /run/fake\n{write}{look}")
        return reasons(cluster).get("cpu-0", "")

    try:
        assert replay(xml) == ""
        lost = replay("", "echo 'Unable to determine the device handle for GPU0000:19:00.0: Unknown Error'; exit 15")
        assert lost.startswith("corral: health: gpu-count: Unable to determine the device handle"), lost
        assert replay(xml) == ""
        assert "gpu-ecc: GPU 0 has uncorrectable" in replay(xml.replace("<dram_uncorrectable>0", "<dram_uncorrectable>3", 1))
        # What it then cannot tell leaves the drain.
        assert "gpu-ecc" in replay(xml[:3000])
        assert replay(xml) == ""
        assert replay(xml[:3000]) == "" and "no complete XML" in comment(cluster, "cpu-0")
        assert replay(xml, "sleep 600") == "" and "took longer than 20 s" in comment(cluster, "cpu-0")
    finally:
        inside(cluster, "cpu-0", f"rm -f /usr/local/bin/nvidia-smi; echo '{{}}' >/run/fake/health.json; {look}; rm -rf /run/fake")
        cluster.spec["health"]["enabled"] = True
        assert cluster.site().rc == 0
