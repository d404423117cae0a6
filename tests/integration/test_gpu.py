# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets with simulated GPUs beside one without, and real jobs on them; and what else a node set's pods can have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from .conftest import Cluster, eventually, playbook

pytestmark = pytest.mark.lab

COUNT = 4
# What a script finds out of its node.
EXTRA = 'echo \'{"rack": 7}\' >"$CORRAL_NODE_EXTRA"'


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster("gpu", 30220)
    cpu, gpu = made.spec["nodeSets"]
    cpu["replicas"] = 1
    gpu.update({"name": "gpu", "gpu": {"vendor": "simulated", "count": COUNT, "type": "toy", "cores": ["0", "1"]}})
    gpu["resources"]["limits"]["cpu"] = "2"
    made.spec["slurm"].update(topology={"plugin": "Tree"}, extraPlugstackConfig=["required spank_pbs.so"])
    made.spec["slurm"]["extraConfig"] = ["SchedulerParameters=extra_constraints"]
    cpu["topology"], gpu["topology"] = {"switch": "left"}, {"switch": "right"}
    cpu["volumes"] = [{"name": "tools", "mountPath": "/mnt/tools", "configMap": "tools"}]
    cpu["initScripts"] = [
        {"name": "mark", "script": f"#!/bin/sh\nset -e\ncat /mnt/tools/word >/run/marked\n{EXTRA}\n", "timeoutSeconds": 10},
        {"name": "site", "configMap": {"name": "tools", "key": "start.sh"}},
    ]
    # As a GPU's runtime would lay it there.
    gpu["volumes"] = [{"name": "driver", "mountPath": "/usr/lib/libtoy.so.1", "subPath": "word", "configMap": "tools"}]
    made.kubectl("create", "namespace", made.namespace)
    tools(made, "#!/bin/sh\ncat /run/marked >/run/marked-again\n")
    run = made.site()
    assert run.rc == 0, run.output
    return made


def tools(cluster: Cluster, start: str) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tools", "namespace": cluster.namespace}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**config_map, "data": {"word": "hello", "start.sh": start}}))


def numbers(text: str) -> set[str]:
    """The GPUs of a line such as ``0,2``; every number once."""
    found = text.strip().split(",")
    assert len(found) == len(set(found)), text
    return set(found)


def worker(cluster: Cluster, pod: str, script: str) -> str:
    return cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", "slurmd", "--", "bash", "-c", script)


def reasons(cluster: Cluster) -> str:
    return cluster.slurm("sinfo", "-h", "-R", "-O", "NodeList:10,Reason:250")


def test_slurm_and_the_pods_agree(cluster: Cluster) -> None:
    lines = cluster.slurm("sinfo", "-h", "-N", "-O", "NodeList:10,Gres:30,StateLong:20").splitlines()
    assert {line.split()[0]: line.split()[1:] for line in lines} == {
        "cpu-0": ["(null)", "idle"],
        "gpu-0": [f"gpu:toy:{COUNT}(S:0-1)", "idle"],
    }


def test_a_job_gets_exactly_its_devices(cluster: Cluster) -> None:
    said = cluster.ssh(
        "srun --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES; echo $SLURM_STEP_GPUS; hostname; env | grep -c VISIBLE_DEVICES'"
    ).stdout
    visible, given, host, variables = said.split()
    assert numbers(visible) == numbers(given) and len(numbers(visible)) == 2
    assert numbers(visible) < {str(number) for number in range(COUNT)}
    assert (host, variables) == ("gpu-gpu-0", "1")
    # The files that stand for them, in the jail: devices that can be opened.
    opened = cluster.ssh(
        "srun --gpus=1 sh -c 'f=/dev/corral-gpu/$CUDA_VISIBLE_DEVICES; [ -c $f ] && echo x >$f && ls /dev/corral-gpu | wc -l'"
    ).stdout
    assert opened.strip() == str(COUNT)


SLEEPER = "echo $CUDA_VISIBLE_DEVICES >gpus.$SLURM_JOB_ID; while [ ! -e go ]; do sleep 0.2; done"


def submit(cluster: Cluster, gpus: int) -> str:
    return cluster.ssh(f"sbatch --parsable -o /dev/null --gres=gpu:toy:{gpus} --mem=64 --wrap '{SLEEPER}'").stdout.strip()


def written(cluster: Cluster) -> int:
    return int(cluster.ssh("cat gpus.* 2>/dev/null | wc -l", check=False).stdout)


def test_two_jobs_never_share_a_device(cluster: Cluster) -> None:
    cluster.ssh("rm -f go gpus.*")
    jobs = [submit(cluster, 2), submit(cluster, 2)]
    eventually(lambda: written(cluster) == 2, "both jobs run", 60)
    assert set(cluster.slurm("squeue", "-h", "-t", "running", "-o", "%i").split()) == set(jobs), "both run at the same time"
    one, other = (numbers(cluster.ssh(f"cat gpus.{job}").stdout) for job in jobs)
    assert (len(one), len(other)) == (2, 2)
    assert one | other == {str(number) for number in range(COUNT)}
    cluster.ssh("touch go")
    eventually(lambda: cluster.slurm("squeue", "-h").strip() == "", "both end", 60)


def test_devices_come_with_the_cores_that_are_near_them(cluster: Cluster) -> None:
    cluster.ssh("rm -f go")
    wrap = "sbatch --parsable -o /dev/null -c1 --mem=64 --gres=gpu:2 --gres-flags=enforce-binding --wrap 'until test -e go; do sleep 0.2; done'"
    jobs = [cluster.ssh(wrap).stdout.strip() for _number in range(2)]
    eventually(lambda: set(cluster.slurm("squeue", "-h", "-t", "running", "-o", "%i").split()) == set(jobs), "both run")
    shown = [cluster.slurm("scontrol", "show", "job", "-d", job) for job in jobs]
    places = {re.findall(r"CPU_IDs=(\S+) .*GRES=gpu:toy:2\(IDX:([0-9,-]+)\)", text)[0] for text in shown}
    assert places == {("0", "0-1"), ("1", "2-3")}, shown
    cluster.ssh("touch go")
    eventually(lambda: not cluster.slurm("squeue", "-h").strip(), "both have ended")


def test_a_job_waits_for_devices_alone(cluster: Cluster) -> None:
    cluster.ssh("rm -f go gpus.*")
    submit(cluster, 3)
    eventually(lambda: written(cluster) == 1, "the first job runs", 60)
    second = submit(cluster, 2)
    eventually(lambda: "PENDING Resources" in cluster.slurm("squeue", "-h", "-j", second, "-o", "%T %r"), "the second waits", 60)
    eventually(lambda: cluster.slurm("sinfo", "-h", "-n", "gpu-0", "-o", "%C").strip() == "1/1/0/2", "one CPU of two is in use", 60)
    cluster.ssh("touch go")
    eventually(lambda: cluster.slurm("squeue", "-h").strip() == "", "both end", 60)
    assert len(numbers(cluster.ssh(f"cat gpus.{second}").stdout)) == 2


def test_steps_of_a_job_share_its_devices_out(cluster: Cluster) -> None:
    said = cluster.ssh(
        "salloc -Q -n2 --gres=gpu:2 sh -c 'for i in 1 2; do srun -n1 --exact --gres=gpu:1 sh -c \"echo \\$CUDA_VISIBLE_DEVICES; sleep 2\" & done; wait'"
    )
    found = said.stdout.split()
    assert len(found) == 2 and len(set(found)) == 2, said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"--gres=gpu:{COUNT + 1}", "Requested node configuration is not available"),
        ("--gres=gpu:h100:1", "Requested node configuration is not available|Invalid generic resource"),
        ("--gres=gpu:1 -w cpu-0", "Requested node configuration is not available"),
    ],
)
def test_what_is_not_there_is_refused(cluster: Cluster, options: str, words: str) -> None:
    done = cluster.ssh(f"srun {options} true", check=False)
    assert done.returncode and re.search(words, done.stderr), done


def test_a_node_without_gpus_beside_them(cluster: Cluster) -> None:
    said = cluster.ssh("srun -w cpu-0 sh -c 'echo \"<$CUDA_VISIBLE_DEVICES>\"; ls -d /dev/corral-gpu 2>&1'", check=False)
    assert "<>" in said.stdout and "No such file" in said.stdout
    without = cluster.ssh("srun -w gpu-0 sh -c 'echo \"<$CUDA_VISIBLE_DEVICES>\"'").stdout
    assert without.strip() in ("<>", "<NoDevFiles>")


def test_the_driver_that_a_runtime_brings_is_seen_in_the_jail(cluster: Cluster) -> None:
    script = 'cat /opt/corral/gpu/lib/libtoy.so.1; echo " $LD_LIBRARY_PATH"; echo "$PATH"; ls /usr/lib/libtoy.so.1'
    said = cluster.ssh(f"LD_LIBRARY_PATH=/own srun -w gpu-0 sh -c '{script}'", check=False).stdout.splitlines()
    assert said[0] == "hello /own:/opt/corral/gpu/lib"
    assert said[1].endswith(":/opt/corral/gpu/bin") and len(said) == 2, "the file is the pod's, not the jail's"
    nested = cluster.ssh("sbatch -Q -W -w gpu-0 -o out --wrap 'srun printenv LD_LIBRARY_PATH'; cat out").stdout
    assert nested.strip().splitlines()[-1] == "/opt/corral/gpu/lib"
    assert cluster.ssh("srun -w cpu-0 printenv LD_LIBRARY_PATH", check=False).stdout == ""


def test_slurm_knows_which_nodes_are_near(cluster: Cluster) -> None:
    shown = cluster.slurm("scontrol", "show", "topology")
    assert re.search(r"SwitchName=left .*Nodes=cpu-0", shown) and re.search(r"SwitchName=right .*Nodes=gpu-0", shown)
    assert re.search(r"SwitchName=corral_top .*Switches=left,right", shown)


def test_another_plugin_behind_the_jails(cluster: Cluster) -> None:
    said = cluster.ssh("srun -w cpu-0 sh -c 'echo $PBS_JOBNAME; cat /etc/os-release | grep -c trixie'").stdout.split()
    assert said[0] == "sh" and said[1] != "0", said


def test_volumes_and_scripts_before_slurmd(cluster: Cluster) -> None:
    assert worker(cluster, "gpu-cpu-0", "cat /run/marked-again; echo; ls /mnt/tools") == "hello\nstart.sh\nword\n"
    assert "No such file" in cluster.ssh("srun -w cpu-0 ls /mnt/tools", check=False).stderr


def test_what_a_script_finds_out_is_the_nodes_extra(cluster: Cluster) -> None:
    assert 'Extra={"rack": 7}' in cluster.slurm("scontrol", "show", "node", "cpu-0")
    assert "Extra" not in cluster.slurm("scontrol", "show", "node", "gpu-0")
    assert cluster.ssh("srun --extra='rack=7' hostname").stdout.strip() == "gpu-cpu-0"
    other = cluster.ssh("srun --immediate=5 --extra='rack=8' hostname", check=False)
    assert other.returncode and not other.stdout, other


def test_gpus_that_are_linked_come_together(cluster: Cluster) -> None:
    """Another gres.conf reaches slurmd by a reconfigure; the lowest numbers would come without links."""
    gpu = cluster.spec["nodeSets"][1]["gpu"]
    cores = gpu.pop("cores")
    gpu["links"] = ["-1,0,0,4", "0,-1,4,0", "0,4,-1,0", "4,0,0,-1"]
    run = cluster.site()
    assert run.rc == 0, run.output
    line = "sbatch --parsable -o /dev/null --mem=64 --gpus=2 --wrap 'sleep 600'"
    jobs = [cluster.ssh(line).stdout.strip() for _number in range(2)]
    eventually(lambda: set(cluster.slurm("squeue", "-h", "-t", "running", "-o", "%i").split()) == set(jobs), "both run")
    shown = [cluster.slurm("scontrol", "show", "job", "-d", job) for job in jobs]
    cluster.cancel_jobs()
    assert {re.findall(r"GRES=gpu:toy:2\(IDX:([0-9,-]+)\)", text)[0] for text in shown} == {"0,3", "1-2"}, shown
    del gpu["links"]
    gpu["cores"] = cores
    run = cluster.site()
    assert run.rc == 0, run.output


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_script_that_fails_keeps_the_node_out_until_it_succeeds(cluster: Cluster) -> None:
    tools(cluster, "#!/bin/sh\necho looking\necho the disk is gone >&2\nexit 7\n")
    cluster.kubectl("delete", "pod", "-n", cluster.namespace, "gpu-cpu-0")
    words = "corral: start: init script site ended with status 7: the disk is gone"
    eventually(lambda: words in reasons(cluster), "the node goes out with the script's last line", 60)
    told = playbook("why", None, "-e", f"slurm_namespace={cluster.namespace}").output
    assert "by its pod's start: its pod could not be made ready (init script site ended with status 7" in told
    tools(cluster, "#!/bin/sh\n")
    cluster.kubectl("delete", "pod", "-n", cluster.namespace, "gpu-cpu-0")
    eventually(lambda: reasons(cluster).strip() == "", "the node comes back by itself", 60)
    assert cluster.ssh("srun -w cpu-0 echo back").stdout == "back\n"
