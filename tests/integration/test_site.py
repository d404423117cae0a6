# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of one cluster, in order: planned, made, used, left alone, edited, pruned, taken away. Each test goes on where the last one ended."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import pytest

from .conftest import REPOSITORY, VOLUMES, Cluster, eventually, playbook

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    return make_cluster("life", 30122)


def test_check_mode_on_nothing_plans_everything_and_makes_nothing(cluster: Cluster) -> None:
    run = cluster.site("--check", "--diff")
    assert run.rc == 0, run.output
    assert run.changed > 0
    for planned in ("StatefulSet test-life/life-controller", "StatefulSet test-life/life-cpu", "NodeName=cpu-[0-1]"):
        assert planned in run.output, f"the plan does not show {planned}:\n{run.output}"
    assert cluster.kubectl("get", "namespace", cluster.namespace, "--ignore-not-found") == ""


def test_site_makes_a_cluster_whose_nodes_are_idle(cluster: Cluster) -> None:
    run = cluster.site()
    assert run.rc == 0, run.output
    nodes = cluster.slurm("sinfo", "-h", "-N", "-o", "%N %t")
    assert sorted(set(nodes.splitlines())) == ["cpu-0 idle", "cpu-1 idle", "extra-0 idle"]


def test_a_job_runs_inside_the_jail_on_several_nodes(cluster: Cluster) -> None:
    script = "#!/bin/sh\n#SBATCH -N3 --output=/home/alice/out.txt\nsrun sh -c 'echo $SLURMD_NODENAME $(id -un) $(cat /etc/corral-jail | head -c 1)'\n"
    done = cluster.ssh("cat > job.sh && sbatch --wait job.sh && cat out.txt", stdin=script)
    lines = sorted(line for line in done.stdout.splitlines() if "alice" in line)
    assert lines == ["cpu-0 alice {", "cpu-1 alice {", "extra-0 alice {"], done.stdout
    assert (VOLUMES / "life-jail/root/home/alice/out.txt").exists()


def test_the_login_session_sees_the_jail_and_not_the_pod(cluster: Cluster) -> None:
    assert (
        cluster.ssh("test -f /etc/corral-jail && ls -A /etc/corral/host-keys /run/munge-key 2>&1 | grep -c 'No such file'").stdout.strip()
        == "2"
    )
    assert cluster.ssh("ls /var/run/secrets/kubernetes.io", check=False).returncode != 0
    assert cluster.ssh("sudo -n id -u").stdout.strip() == "0"


def test_a_stranger_is_not_let_in(cluster: Cluster) -> None:
    assert cluster.ssh("true", user="root", check=False).returncode == 255
    assert cluster.ssh("true", user="mallory", check=False).returncode == 255


def test_private_tmp_and_fresh_proc_in_a_step(cluster: Cluster) -> None:
    cluster.ssh("srun -N1 -w cpu-0 touch /tmp/mine")
    assert cluster.ssh("srun -N1 -w cpu-0 ls /tmp/mine", check=False).returncode != 0, "another job saw this job's /tmp"
    assert (
        cluster.ssh(
            "srun -N1 sh -c 'test -r /proc/self/status && test -c /dev/null && echo yes > /dev/shm/x && cat /dev/shm/x'"
        ).stdout.strip()
        == "yes"
    )


def test_pods_end_when_they_are_told_to(cluster: Cluster) -> None:
    """A container's first process that neither catches SIGTERM nor waits for it never gets it: its pod would last for its whole grace period."""
    pods = ("-n", cluster.namespace, "-l", "app.kubernetes.io/component in (controller,login,worker)")
    cluster.kubectl("delete", "pods", *pods, "--grace-period=1800", "--timeout=240s")
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.ssh("srun -N3 true").returncode == 0


def test_an_unchanged_document_writes_nothing(cluster: Cluster) -> None:
    before, pods = cluster.objects(), cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/instance=life")
    run = cluster.site()
    assert (run.rc, run.changed) == (0, 0), run.output
    assert cluster.objects() == before
    assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/instance=life") == pods
    assert cluster.site("--check", "--diff").changed == 0


def test_rendered_objects_are_what_is_there(cluster: Cluster) -> None:
    """Applied by kubectl as the page of rendering says, they change nothing, nor has the next run anything to do."""
    before, output = cluster.objects(), cluster.directory / "rendered"
    run = playbook("render", cluster.write(), "-e", f"output={output}", env={"KUBECONFIG": "/dev/null"})
    assert (run.rc, run.changed) == (0, 1), run.output
    slurm_conf = (output / "config_maps/life-controller-config/slurm.conf").read_text()
    assert slurm_conf == cluster.slurm("cat", "/etc/slurm/slurm.conf")
    cluster.kubectl("apply", "--server-side", "--field-manager=corral", "-f", str(output))
    after = cluster.objects()
    # A render cannot know where the API server is, which policies have in them.
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {
        name for name in before if name.startswith("NetworkPolicy/")
    }
    run = cluster.site()
    assert run.rc == 0 and run.changed <= 1, run.output
    keys = cluster.directory / "keys.yml"
    page = (REPOSITORY / "docs/render.md").read_text()
    play = textwrap.dedent(page.partition("```yaml\n")[2].partition("```")[0])
    keys.write_text(play.replace("my.yml", str(cluster.write())))
    run = playbook(str(keys), None)
    assert (run.rc, run.changed) == (0, 0), run.output


def test_the_plan_of_an_edit_names_exactly_what_the_edit_then_does(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][0]["features"] = ["plain", "tested"]
    before = cluster.objects()
    plan = cluster.site("--check", "--diff")
    assert plan.rc == 0, plan.output
    assert "Feature=plain,tested" in plan.output
    assert cluster.objects() == before, "a check run wrote"
    run = cluster.site("--diff")
    assert run.rc == 0, run.output
    after = cluster.objects()
    assert {name for name in after if after[name] != before.get(name)} == {"ConfigMap/life-controller-config"}
    assert run.changed == plan.changed, f"planned:\n{plan.output}\ndone:\n{run.output}"


def test_an_edit_of_the_configuration_is_served_without_a_restart(cluster: Cluster) -> None:
    pods = cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/instance=life")
    cluster.spec["nodeSets"][0]["features"] = ["plain", "live"]
    assert cluster.site().rc == 0
    assert "live" in cluster.slurm("sinfo", "-h", "-n", "cpu-0", "-o", "%f")
    assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/instance=life") == pods
    # The login node's clients have it too: sackd got it pushed.
    eventually(lambda: "live" in cluster.ssh("scontrol show node cpu-0").stdout, "the login node serves the new configuration")


def test_scaling_up_takes_the_nodes_into_service(cluster: Cluster) -> None:
    cluster.spec["nodeSets"][1]["replicas"] = 2
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.slurm("sinfo", "-h", "-n", "extra-1", "-o", "%t").strip() == "idle"
    assert "extra-1" in cluster.ssh("srun -w extra-1 sh -c 'echo $SLURMD_NODENAME'").stdout


def test_a_new_user_restarts_nothing(cluster: Cluster) -> None:
    pods = cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (controller,login,worker)")
    cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": list(cluster.spec["users"][0]["sshKeys"])})
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.ssh("srun -N1 id -un", user="bob").stdout.strip() == "bob"
    assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (controller,login,worker)") == pods


def test_a_user_who_left_the_document_gets_in_nowhere_and_his_home_stays(cluster: Cluster) -> None:
    """Also where a session of theirs is left, as which root of the jail stands here. Nothing restarts; who comes back finds what they had."""
    pods = cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (controller,login,worker)")
    cluster.ssh("echo kept >kept.txt", user="bob")
    bob = cluster.spec["users"].pop()
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.ssh("true", user="bob", check=False).returncode == 255
    for nodes in ("", "srun -Q -N2 --ntasks-per-node=1"):
        said = cluster.ssh(f"{nodes} id bob 2>&1", check=False).stdout
        assert said.count("no such user") == (2 if nodes else 1), said
    left = "cd /tmp; sudo env PATH=$PATH setpriv --reuid=10002 --regid=10002 --clear-groups"
    refused = cluster.ssh(f"{left} timeout 100 srun -Q echo ran 2>&1", check=False)
    assert refused.returncode and "ran" not in refused.stdout, refused.stdout
    # Slurm takes a batch job, cannot make a credential for it, and holds it.
    job = cluster.ssh(f"{left} sbatch --parsable -D /tmp -o /dev/null --wrap true").stdout.strip()
    eventually(lambda: cluster.slurm("squeue", "-h", "-j", job, "-o", "%r").strip() == "JobHeldAdmin", "their batch job is held")
    assert cluster.slurm("sinfo", "-h", "-R") == "", "no node pays for it"
    cluster.cancel_jobs()
    assert cluster.ssh("sudo cat /home/bob/kept.txt; stat -c %u /home/bob").stdout.split() == ["kept", "10002"]
    cluster.spec["users"].append(bob)
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.ssh("srun -Q cat kept.txt", user="bob").stdout.strip() == "kept"
    assert cluster.kubectl.uids(cluster.namespace, "app.kubernetes.io/component in (controller,login,worker)") == pods


def test_a_node_set_that_left_the_document_leaves_the_cluster(cluster: Cluster) -> None:
    del cluster.spec["nodeSets"][1]
    plan = cluster.site("--check", "--diff")
    assert plan.rc == 0 and "StatefulSet test-life/life-extra" in plan.output, plan.output
    assert "StatefulSet/life-extra" in cluster.objects()
    run = cluster.site()
    assert run.rc == 0, run.output
    assert "StatefulSet/life-extra" not in cluster.objects()
    assert "extra" not in cluster.slurm("sinfo", "-h", "-N", "-o", "%N")


def test_destroy_asks_before_data_goes(cluster: Cluster) -> None:
    before = cluster.objects()
    run = cluster.destroy()
    assert run.rc != 0
    assert "confirm=life" in run.output
    assert cluster.objects() == before


def test_keep_data_keeps_claims_keys_and_homes(cluster: Cluster) -> None:
    cluster.ssh("echo kept > kept.txt")
    keys = {s["metadata"]["name"]: s["data"] for s in cluster.kubectl.items("secrets", "-n", cluster.namespace)}
    run = cluster.destroy("-e", "keep_data=true")
    assert run.rc == 0, run.output
    left = {name.split("/")[0] for name in cluster.objects()}
    assert left == {"PersistentVolumeClaim", "Secret"}
    run = cluster.site()
    assert run.rc == 0, run.output
    assert cluster.ssh("cat kept.txt").stdout.strip() == "kept"
    assert {s["metadata"]["name"]: s["data"] for s in cluster.kubectl.items("secrets", "-n", cluster.namespace)} == keys


def test_destroy_leaves_nothing(cluster: Cluster) -> None:
    run = cluster.destroy("-e", "confirm=life", "-e", "delete_namespace=true")
    assert run.rc == 0, run.output
    assert cluster.kubectl("get", "namespace", cluster.namespace, "--ignore-not-found") == ""
    volumes = json.loads(cluster.kubectl("get", "pv", "-o", "json"))["items"]
    assert [v["metadata"]["name"] for v in volumes if "life" in v["metadata"]["name"]] == []
    assert cluster.destroy("-e", "confirm=life").rc == 0, "taking away what is gone must be fine"
