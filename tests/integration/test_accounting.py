# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounting with a database of the cluster's own, in order: switched on and off under a running job, without its database, and with a wrong password."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from .certificates import authority, sign
from .conftest import MARIADB_IMAGE, REPOSITORY, Cluster, Run, embedded_database, eventually, playbook
from .jobs import state, submit

pytestmark = pytest.mark.lab

NAME = "acct"
DATABASE = embedded_database(NAME)
# A job that was there before accounting was.
BEFORE: list[str] = []


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31310)
    del made.spec["nodeSets"][1]
    run = made.site()
    assert run.rc == 0, run.output
    return made


def switch_on(cluster: Cluster) -> None:
    cluster.spec["images"]["mariadb"] = MARIADB_IMAGE
    cluster.spec["accounting"] = {"database": DATABASE}
    run = cluster.site()
    assert run.rc == 0, run.output


def records(cluster: Cluster, *flags: str) -> dict[str, str]:
    """State by job, as sacct in the jail shows them to their user."""
    lines = cluster.ssh(" ".join(("sacct -X -n -P -o JobID,State", *flags))).stdout.splitlines()
    return dict(line.split("|") for line in lines)


def inside(cluster: Cluster, pod: str, container: str, script: str) -> str:
    return cluster.kubectl("exec", "-n", cluster.namespace, f"{NAME}-{pod}", "-c", container, "--", "bash", "-c", script, check=False)


def scale_database(cluster: Cluster, size: int) -> None:
    cluster.kubectl("scale", "statefulset", f"{NAME}-database", "-n", cluster.namespace, f"--replicas={size}")


def not_ready(cluster: Cluster, word: str, pod: str = "accounting-0") -> bool:
    """Whether Kubernetes says of a pod that it is not ready, with this reason."""
    events = cluster.kubectl.json("get", "events", "-n", cluster.namespace, "--field-selector", f"involvedObject.name={NAME}-{pod}")
    return any(word in item["message"] for item in events["items"] if item["reason"] == "Unhealthy")


def test_without_it_sacct_says_so(cluster: Cluster) -> None:
    assert "accounting storage is disabled" in cluster.ssh("sacct 2>&1", check=False).stdout
    assert not any("accounting" in name or "database" in name for name in cluster.objects())


def test_it_is_switched_on_under_a_running_job(cluster: Cluster) -> None:
    BEFORE.append(submit(cluster, "--no-requeue -t 60", "first"))
    switch_on(cluster)
    assert state(cluster, BEFORE[0]) == ["RUNNING"]
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    number = cluster.ssh("sbatch --parsable --wait -o /dev/null --wrap true").stdout.strip()
    eventually(lambda: records(cluster).get(number) == "COMPLETED", "the record of a job")
    cluster.ssh("touch first")
    eventually(lambda: records(cluster).get(BEFORE[0]) == "COMPLETED", "the record of the job from before")


def test_only_slurmdbd_reaches_the_database_and_only_slurm_reaches_slurmdbd(cluster: Cluster) -> None:
    connect = "timeout 3 bash -c 'exec 3<>/dev/tcp/{}' 2>/dev/null && echo reached || echo closed"
    database, slurmdbd = (connect.format(f"{NAME}-{one}") for one in ("database/3306", "accounting/6819"))
    assert inside(cluster, "accounting-0", "slurmdbd", database).strip() == "reached"
    for pod, container in (("controller-0", "slurmctld"), ("login-0", "sshd"), ("cpu-0", "slurmd")):
        assert inside(cluster, pod, container, database).strip() == "closed", pod
        assert inside(cluster, pod, container, slurmdbd).strip() == "reached", pod
    assert inside(cluster, "database-0", "mariadbd", slurmdbd).strip() == "closed"


def test_the_password_is_in_no_config_map_and_no_environment(cluster: Cluster) -> None:
    secret = cluster.kubectl.json("get", "secret", f"{NAME}-database-password", "-n", cluster.namespace)
    password = base64.b64decode(secret["data"]["password"]).decode()
    assert len(password) == 32
    everything = cluster.kubectl("get", "configmaps,statefulsets,pods", "-n", cluster.namespace, "-o", "json")
    assert password not in everything
    for pod, container in (("accounting-0", "slurmdbd"), ("database-0", "mariadbd")):
        assert password not in inside(cluster, pod, container, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'")


def test_jobs_run_without_the_database_and_none_of_their_records_is_lost(cluster: Cluster) -> None:
    scale_database(cluster, 0)
    cluster.kubectl("wait", "-n", cluster.namespace, "--for=delete", f"pod/{NAME}-database-0", "--timeout=150s")
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do sbatch --parsable -o /dev/null --wrap 'echo $SLURM_JOB_ID >> ran'; done"
    numbers = cluster.ssh(script).stdout.split()
    eventually(lambda: sorted(cluster.ssh("cat ran", check=False).stdout.split()) == sorted(numbers), "the jobs have run", 120)
    # slurmdbd goes on without its database; one that starts meanwhile waits for it, and says so.
    cluster.kubectl("delete", "pod", f"{NAME}-accounting-0", "-n", cluster.namespace)
    eventually(lambda: not_ready(cluster, f"slurmdbd waits for its database: nothing answers at {NAME}-database"), "the reason is told", 90)
    last = cluster.ssh("sbatch --parsable --wait -o /dev/null --wrap true").stdout.strip()
    run = cluster.site()  # puts the database back
    assert run.rc == 0, run.output
    wanted = dict.fromkeys([*numbers, last], "COMPLETED")
    eventually(lambda: {number: records(cluster).get(number) for number in wanted} == wanted, "all records are there", 90)


def test_a_wrong_password_is_named(cluster: Cluster) -> None:
    """Somebody changes the Secret: slurmdbd's next pod has another password than the server."""
    secret = cluster.kubectl.json("get", "secret", f"{NAME}-database-password", "-n", cluster.namespace)["data"]

    def put(data: dict[str, str]) -> None:
        patch = json.dumps({"data": data})
        cluster.kubectl("patch", "secret", f"{NAME}-database-password", "-n", cluster.namespace, "--type=merge", "-p", patch)
        cluster.kubectl("delete", "pod", f"{NAME}-accounting-0", "-n", cluster.namespace)

    put({"password": base64.b64encode(b"another").decode()})
    try:
        eventually(lambda: not_ready(cluster, "Access denied for user 'slurm'"), "the reason is told", 90)
        run = cluster.site("-e", "accounting_wait_timeout=5")
        assert run.rc != 0
        assert "Access denied" in run.output, run.output
    finally:
        put(secret)
    run = cluster.site()
    assert run.rc == 0, run.output


def test_it_is_switched_off_and_on_again_and_keeps_its_records(cluster: Cluster) -> None:
    known = records(cluster)
    assert BEFORE[0] in known
    running = submit(cluster, "--no-requeue -t 60", "second")
    eventually(lambda: running in records(cluster), "the record of a running job")
    settings = cluster.spec.pop("accounting")
    run = cluster.site()
    assert run.rc == 0, run.output
    there = cluster.objects()
    assert not any(name.startswith("StatefulSet") and ("accounting" in name or "database" in name) for name in there), there
    assert f"PersistentVolumeClaim/{NAME}-database" in there
    assert state(cluster, running) == ["RUNNING"]
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    cluster.spec["accounting"] = settings
    run = cluster.site()
    assert run.rc == 0, run.output
    assert state(cluster, running) == ["RUNNING"]
    cluster.ssh("touch second")
    eventually(lambda: records(cluster).get(running) == "COMPLETED", "the record of the job that ran on")
    assert known.items() <= records(cluster).items()


def test_limits_that_the_database_holds_are_enforced(cluster: Cluster) -> None:
    """With `enforce: [associations]` a user without an association is refused, by Slurm's own words, and one who has it is not."""
    cluster.spec["accounting"]["enforce"] = ["associations"]
    run = cluster.site()
    assert run.rc == 0, run.output
    assert "Invalid account" in cluster.ssh("srun -Q true 2>&1", check=False).stdout
    # Slurm's administrator is the user whom slurmdbd runs as.
    made = "sacctmgr -i add account physics && sacctmgr -i add user alice account=physics"
    assert "Adding User(s)" in inside(cluster, "controller-0", "slurmctld", made)
    eventually(lambda: cluster.ssh("srun -Q true", check=False).returncode == 0, "the association counts")


TENANTS = """
qos:
  - {name: short, limits: {MaxWall: "00:10:00"}, flags: [DenyOnLimit]}
accounts:
  - {name: science, fairshare: 100, qos: [normal, short]}
  - {name: biology, parent: science, coordinators: [alice], limits: {GrpTRES: {cpu: 1}}}
users:
  - name: alice
    defaultAccount: biology
    associations: [{account: biology}]
"""


def converge(cluster: Cluster, folder: Path, text: str, *flags: str) -> Run:
    """Apply a document of tenants by the play of docs/tenants.md."""
    (shown,) = re.findall(r"```yaml\n(- name: Tenants\n.*?)```", (REPOSITORY / "docs" / "tenants.md").read_text(), re.DOTALL)
    play = shown.replace("/etc/corral/kubeconfig", os.environ["KUBECONFIG"]).replace("namespace: slurm", f"namespace: {cluster.namespace}")
    (folder / "tenants.yml").write_text(text)
    (folder / "play.yml").write_text(play.replace("cluster: demo", f"cluster: {NAME}"))
    return playbook(f"{folder}/play.yml", None, *flags)


def test_tenants_are_data(cluster: Cluster, tmp_path: Path) -> None:
    """Accounts, users, QoS and limits of a document hold, cost nothing when nothing changes, and go without their records."""
    plan = converge(cluster, tmp_path, TENANTS, "--check", "--diff")
    assert (plan.rc, plan.changed) == (0, 1), plan.output
    assert "biology" in plan.output
    assert "biology" not in inside(cluster, "controller-0", "slurmctld", "sacctmgr -n -P show account")
    run = converge(cluster, tmp_path, TENANTS)
    assert (run.rc, run.changed) == (0, 1), run.output
    again = converge(cluster, tmp_path, TENANTS)
    assert (again.rc, again.changed) == (0, 0), again.output
    cluster.spec["accounting"]["enforce"] = ["associations", "limits", "qos"]
    assert cluster.site().rc == 0
    first = submit(cluster, "-t 5 -A biology", "third")
    second = cluster.ssh("sbatch --parsable -t 5 -A biology -o /dev/null --wrap true").stdout.strip()
    reason = f"squeue -h -o %r -j {second}"
    eventually(lambda: cluster.ssh(reason).stdout.strip() == "AssocGrpCpuLimit", "Slurm's own reason")
    refused = cluster.ssh("sbatch -t 60 -A biology --qos short --wrap true 2>&1", check=False).stdout
    assert "violates accounting/QOS policy" in refused, refused
    cluster.ssh("touch third")
    eventually(lambda: {records(cluster).get(number) for number in (first, second)} == {"COMPLETED"}, "both have run")
    wrong = converge(cluster, tmp_path, TENANTS.replace("parent: science", "parent: scince"))
    assert wrong.rc != 0 and "accounts[1].parent is scince" in " ".join(wrong.output.split()), wrong.output
    less = TENANTS.partition("users:")[0].replace("coordinators: [alice], ", "")
    run = converge(cluster, tmp_path, less)
    assert (run.rc, run.changed) == (0, 1), run.output
    left = inside(cluster, "controller-0", "slurmctld", "sacctmgr -n -P show assoc format=account,user where account=biology")
    assert "alice" not in left and "biology" in left
    assert records(cluster)[first] == "COMPLETED", "records outlive the association"


def report(cluster: Cluster, *flags: str, **values: Any) -> Run:
    """Run the playbook of usage."""
    where = {"slurm_namespace": cluster.namespace, "slurm_name": NAME}
    return playbook("usage", None, "-e", json.dumps({**where, **values}), *flags)


def test_usage_is_what_sacct_adds_up(cluster: Cluster, tmp_path: Path) -> None:
    """To the second, with a job that runs: by each combination, and in total."""
    number = submit(cluster, "-t 60 -A physics", "fourth")
    eventually(lambda: number in records(cluster, "-s", "RUNNING"), "the record of a running job")
    end = int(time.time())
    start = end - 86400 - 7  # more than a day, which is asked for at once
    shown = "-a -X -D -T -n -P -o Account,User,QOS,Partition,ElapsedRaw,CPUTimeRAW,AllocNodes"
    sums: dict[tuple[str, ...], list[int]] = {}
    for line in inside(cluster, "controller-0", "slurmctld", f"sacct {shown} -S uts{start} -E uts{end}").splitlines():
        *key, elapsed, cpu, nodes = line.split("|")
        one = sums.setdefault(tuple(key), [0, 0])
        one[0], one[1] = one[0] + int(cpu), one[1] + int(elapsed) * int(nodes)
    period = {name: datetime.fromtimestamp(second, UTC).isoformat() for name, second in (("start", start), ("end", end))}
    by = ["account", "user", "qos", "partition"]
    run = report(cluster, **period, by=by, format="json", file=f"{tmp_path}/usage.json")
    assert run.rc == 0, run.output
    found = json.loads((tmp_path / "usage.json").read_text())
    rows = {tuple(row[name] for name in by): [row["cpu_seconds"], row["node_seconds"]] for row in found["rows"]}
    assert {key: row for key, row in rows.items() if any(row)} == {key: row for key, row in sums.items() if any(row)}
    assert found["totals"]["cpu_seconds"] == sum(cpu for cpu, _nodes in sums.values()) > 0
    assert any(account == "physics" for account, *_rest in rows), "the job that runs"


def test_a_budget_holds_jobs_by_slurms_own_limit_and_is_released(cluster: Cluster, tmp_path: Path) -> None:
    """The job that runs goes on, a new one waits until the budget is raised, and tenants can be changed meanwhile."""

    def held() -> str:
        shown = "sacctmgr -n -P show assoc WOPLimits format=grpjobs,comment where account=physics user="
        return inside(cluster, "controller-0", "slurmctld", shown).strip()

    assert held() == "|"
    hold = {"usage_budgets": [{"account": "physics", "cpu_hours": 0.0001}], "hold": True}
    plan = report(cluster, "--check", "--diff", **hold)
    assert (plan.rc, plan.changed, held()) == (0, 1, "|"), plan.output
    run = report(cluster, **hold)
    assert (run.rc, run.changed, held()) == (0, 1, "0|[corral hold]"), run.output
    assert "account physics has used" in " ".join(run.output.split()), run.output
    again = report(cluster, **hold)
    assert (again.rc, again.changed) == (0, 0), again.output
    (running,) = cluster.slurm("squeue", "-h", "-o", "%i", "-t", "RUNNING").split()
    number = cluster.ssh("sbatch --parsable -t 5 -A physics -o /dev/null --wrap true").stdout.strip()
    eventually(lambda: cluster.ssh(f"squeue -h -o %r -j {number}").stdout.strip() == "AssocGrpJobsLimit", "Slurm's own reason")
    changed = TENANTS.partition("users:")[0].replace("coordinators: [alice], ", "") + "  - {name: physics, limits: {GrpJobs: 50}}\n"
    run = converge(cluster, tmp_path, changed)
    assert (run.rc, run.changed, held()) == (0, 1, "0|[corral hold 50]"), run.output
    assert state(cluster, running) == ["RUNNING"]
    hold["usage_budgets"] = [{"account": "physics", "cpu_hours": 1000}]
    run = report(cluster, **hold)
    assert (run.rc, run.changed, held()) == (0, 1, "50|"), run.output
    cluster.ssh("touch fourth")
    wanted = dict.fromkeys((running, number), "COMPLETED")
    eventually(lambda: {one: records(cluster).get(one) for one in wanted} == wanted, "both have run")


def test_tenants_are_a_part_of_the_clusters_document(cluster: Cluster) -> None:
    """What the last test has made goes, since this document does not name it; what was made by hand stays."""
    asked: dict[str, Any] = {"prune": True, "accounts": [{"name": "chemistry", "limits": {"MaxJobs": 5}}]}
    cluster.spec["accounting"]["tenants"] = asked
    run = cluster.site()
    assert run.rc == 0, run.output
    found = inside(cluster, "controller-0", "slurmctld", "sacctmgr -n -P show assoc WOPLimits format=account,user,maxjobs").split()
    assert "chemistry||5" in found and "physics|alice|" in found and not any("biology" in one for one in found), found
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
    asked["accounts"][0]["parent"] = "scince"
    wrong = playbook("tenants", cluster.write())
    assert wrong.rc != 0
    assert "spec.accounting.tenants.accounts[0].parent is scince" in " ".join(wrong.output.split()), wrong.output
    del cluster.spec["accounting"]["tenants"]


def test_reservations_are_tenancy_data(cluster: Cluster) -> None:
    """They are made behind the account that they are for, changed in place, and pruned; one made by hand stays."""
    cluster.slurm(
        "scontrol", "create", "reservation", "reservationname=hand", "starttime=now+30days", "duration=60", "nodes=ALL", "users=root"
    )
    asked: dict[str, Any] = {"prune": True, "accounts": [{"name": "chemistry"}, {"name": "geology"}]}
    future = {"start": "2037-01-12T06:00:00Z", "duration": "04:00:00", "nodes": "ALL", "flags": ["MAINT", "IGNORE_JOBS"]}
    weekly = {"start": "2026-01-01T08:00:00Z", "duration": 120, "nodeCount": 1, "flags": ["WEEKLY"], "users": ["root"]}
    past = {"start": "2026-01-01T08:00:00Z", "duration": 120, "nodes": "ALL", "users": ["root"]}
    asked["reservations"] = [
        {"name": "field", "accounts": ["geology"], **future}, {"name": "weekly", **weekly}, {"name": "past", **past},
    ]  # fmt: skip
    cluster.spec["accounting"]["tenants"] = asked

    def live() -> dict[str, dict[str, str]]:
        lines = cluster.slurm("scontrol", "show", "reservations", "--oneliner").splitlines()
        found = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
        return {one["ReservationName"]: one for one in found if "ReservationName" in one}

    try:
        check = playbook("tenants", cluster.write(), "--check", "--diff")
        assert check.rc == 0 and "reservation field" in check.output and set(live()) == {"hand"}, check.output
        run = playbook("tenants", cluster.write())
        assert (run.rc, run.changed, set(live())) == (0, 1, {"hand", "field", "weekly"}), run.output
        assert live()["field"]["Comment"] == "corral" and live()["field"]["StartTime"] == "2037-01-12T06:00:00"
        again = playbook("tenants", cluster.write())
        assert (again.rc, again.changed) == (0, 0), again.output
        asked["reservations"][0]["duration"] = "05:00:00"
        run = playbook("tenants", cluster.write())
        assert (run.rc, run.changed, live()["field"]["Duration"]) == (0, 1, "05:00:00"), run.output
        asked["reservations"][1]["nodeCount"] = 10000
        wrong = playbook("tenants", cluster.write())
        assert wrong.rc != 0 and "reservation weekly (spec.accounting.tenants.reservations[1])" in " ".join(wrong.output.split()), (
            wrong.output
        )
        del asked["reservations"]
        run = playbook("tenants", cluster.write())
        assert (run.rc, set(live())) == (0, {"hand"}), run.output
        again = playbook("tenants", cluster.write())
        assert (again.rc, again.changed) == (0, 0), again.output
    finally:
        cluster.slurm("scontrol", "delete", "reservationname=hand")
        del cluster.spec["accounting"]["tenants"]


def shares(cluster: Cluster) -> dict[str, dict[str, float]]:
    """What sshare shows of the users of the account fair, and the number of all users in accounts."""
    names = ("NormShares", "RawUsage", "LevelFS", "FairShare")
    rows = [line.split("|") for line in cluster.slurm("sshare", "-a", "-h", "-P", "-o", f"Account,User,{','.join(names)}").splitlines()]
    users = [[word.strip() for word in row] for row in rows if row[1].strip()]
    found = {row[1]: dict(zip(names, map(float, row[2:]), strict=True)) for row in users if row[0] == "fair"}
    return {**found, "all": {"users": len(users)}}


def fair_order(cluster: Cluster) -> list[str]:
    """Queue a job of each user, bob's first, on a node that starts none; return the users in the order of squeue. sprio has the same."""
    cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=order")
    try:
        numbers = [
            cluster.ssh("sbatch --parsable -A fair -t 1 -o /dev/null --wrap true", user=user).stdout.strip() for user in ("bob", "alice")
        ]
        jobs = ",".join(numbers)
        order = cluster.slurm("squeue", "-h", "-t", "PD", "-j", jobs, "-S", "-p", "-o", "%u").split()
        rows = [line.split() for line in cluster.slurm("sprio", "-h", "-j", jobs, "-o", "%u %F").splitlines()]
        assert [user for user, _factor in sorted(rows, key=lambda row: -float(row[1]))] == order
        cluster.slurm("scancel", *numbers)
        return order
    finally:
        cluster.slurm("scontrol", "update", "nodename=cpu-0", "state=resume")


@pytest.mark.long
def test_fair_share_orders_the_jobs_of_two_users_as_computed_by_hand(cluster: Cluster) -> None:
    """Fair Tree (slurm.schedmd.com/fair_tree.html): a user's level fair-share is LF = S / U, of their shares S and their usage U as parts of those of all
    siblings. All users in accounts are ranked by it, and the factor of a job is rank / number of users.

    With shares 3:1, S is 0.75 for alice and 0.25 for bob. Of one CPU they use

        20 s and 10 s: LF = 0.75 / (20/30) = 1.125 and 0.25 / (10/30) = 0.75, so alice is first, who has used more;
        60 s and 10 s: LF = 0.75 / (60/70) = 0.875 and 0.25 / (10/70) = 1.75, so bob is first.

    A job is charged some seconds more; the order changes where alice has used three times what bob has.
    """
    (alice,) = [user for user in cluster.spec["users"] if user["name"] == "alice"]
    cluster.spec["users"].append({"name": "bob", "uid": 10002, "sshKeys": alice["sshKeys"]})
    # No decay, which moves both figures in the same way, and which Slurm wants to be replaced by a reset; usage is added up once a minute.
    decay = ["PriorityDecayHalfLife=0", "PriorityUsageResetPeriod=YEARLY", "PriorityCalcPeriod=1"]
    weights = ["PriorityType=priority/multifactor", "PriorityWeightFairshare=100000", *decay]
    cluster.spec["slurm"]["extraConfig"] = [*cluster.spec["slurm"].get("extraConfig", []), *weights]
    run = cluster.site()
    assert run.rc == 0, run.output
    made = " && ".join(
        [
            "sacctmgr -i add account fair",
            *(f"sacctmgr -i add user {user} account=fair fairshare={share}" for user, share in (("alice", 3), ("bob", 1))),
        ]
    )
    assert "Adding User(s)" in inside(cluster, "controller-0", "slurmctld", made)
    eventually(lambda: cluster.ssh("srun -Q -A fair true", user="bob", check=False).returncode == 0, "the associations count")

    def as_computed(found: dict[str, dict[str, float]]) -> bool:
        total = found["alice"]["RawUsage"] + found["bob"]["RawUsage"]
        expected = {
            user: pytest.approx(share * total / found[user]["RawUsage"], rel=0.1) for user, share in (("alice", 0.75), ("bob", 0.25))
        }
        return all(found[user]["LevelFS"] == one for user, one in expected.items())

    def check(first: str, second: str) -> None:
        # A job's end adds to the usage, and the shares are computed once a minute.
        eventually(lambda: as_computed(shares(cluster)), "the fair-shares are as computed by hand", 120)
        found = shares(cluster)
        assert (found["alice"]["NormShares"], found["bob"]["NormShares"]) == (
            pytest.approx(0.75, abs=0.001),
            pytest.approx(0.25, abs=0.001),
        )
        assert found[first]["LevelFS"] > found[second]["LevelFS"]
        # They are neighbours in the ranking, for they are the only users of their account.
        assert found[first]["FairShare"] - found[second]["FairShare"] == pytest.approx(1 / found["all"]["users"], abs=0.001)
        assert fair_order(cluster) == [first, second]

    for user, seconds in (("alice", 20), ("bob", 10)):
        cluster.ssh(f"srun -Q -A fair sleep {seconds}", user=user)
    eventually(lambda: (one := shares(cluster))["alice"]["RawUsage"] >= 20 and one["bob"]["RawUsage"] >= 10, "the usage is added up", 120)
    check("alice", "bob")
    cluster.ssh("srun -Q -A fair sleep 40", user="alice")
    eventually(lambda: shares(cluster)["alice"]["RawUsage"] >= 60, "the usage is added up", 120)
    check("bob", "alice")


# A server that is not the cluster's, and takes encrypted connections alone.
OUTSIDE = """\
ssl_ca = /etc/tls/ca.crt
ssl_cert = /etc/tls/tls.crt
ssl_key = /etc/tls/tls.key
require_secure_transport = ON
"""


@pytest.fixture
def outside(cluster: Cluster, tmp_path: Path) -> dict[str, Any]:
    """Run such a server in a pod, with the configuration of the embedded one, and return spec.accounting.database for it."""
    host = f"outside.{cluster.namespace}.svc.cluster.local"
    authorities = {name: authority(tmp_path, name).read_text() for name in ("ca", "wrong")}
    files = {"ca.crt": authorities["ca"], **sign(tmp_path, host)}
    config = cluster.kubectl.json("get", "configmap", f"{NAME}-database-config", "-n", cluster.namespace)["data"]["corral.cnf"]

    def named(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": cluster.namespace, "labels": {"app": "outside"}}}

    mounts = {"data": "/var/lib/mysql", "run": "/run/mysqld", "tmp": "/tmp"}
    read = {"config": "/etc/corral/mariadb", "password": "/etc/corral/database", "tls": "/etc/tls"}
    items = [
        {"apiVersion": "v1", "kind": "Secret", **named("outside-password"), "stringData": {"password": "over-there"}},
        {"apiVersion": "v1", "kind": "Secret", **named("outside-tls"), "stringData": files},
        {"apiVersion": "v1", "kind": "ConfigMap", **named("outside-config"), "data": {"corral.cnf": config + OUTSIDE}},
        *(
            {"apiVersion": "v1", "kind": "ConfigMap", **named(f"outside-{name}"), "data": {"ca.crt": certificate}}
            for name, certificate in authorities.items()
        ),
        {"apiVersion": "v1", "kind": "Service", **named("outside"), "spec": {"selector": {"app": "outside"}, "ports": [{"port": 3306}]}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            **named("outside"),
            "spec": {
                "securityContext": {"runAsUser": 64040, "runAsGroup": 64040, "fsGroup": 64040},
                "containers": [
                    {
                        "name": "mariadbd",
                        "image": MARIADB_IMAGE,
                        "command": ["/usr/local/lib/corral/mariadbd.sh"],
                        "env": [{"name": "CORRAL_DATABASE", "value": "records"}, {"name": "CORRAL_USER", "value": "recorder"}],
                        "readinessProbe": {"tcpSocket": {"port": 3306}, "periodSeconds": 1},
                        "volumeMounts": [{"name": name, "mountPath": path} for name, path in {**mounts, **read}.items()],
                    }
                ],
                "volumes": [
                    *({"name": name, "emptyDir": {}} for name in mounts),
                    {"name": "config", "configMap": {"name": "outside-config"}},
                    *({"name": name, "secret": {"secretName": f"outside-{name}"}} for name in ("password", "tls")),
                ],
                "terminationGracePeriodSeconds": 1,
            },
        },
    ]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster.kubectl("wait", "-n", cluster.namespace, "--for=condition=Ready", "pod/outside", "--timeout=120s")
    external = {
        "host": host,
        "name": "records",
        "user": "recorder",
        "passwordSecret": "outside-password",
        "tls": {"caConfigMap": "outside-ca"},
    }
    return {"external": external}


@pytest.mark.long
def test_a_database_of_somebody_elses_is_used_with_tls_and_not_taken_for_the_former(cluster: Cluster, outside: dict[str, Any]) -> None:
    soon = ("-e", "slurm_controller_wait_timeout=20", "-e", "slurm_controller_reconfigure_timeout=20")
    outside["external"]["tls"]["caConfigMap"] = "outside-wrong"
    cluster.spec["accounting"].update(database=outside, enforce=[])
    run = cluster.site("-e", "accounting_wait_timeout=30")
    assert run.rc != 0
    assert "self-signed certificate in certificate chain" in " ".join(run.output.split()), run.output
    # The server is the right one now, and knows nothing of this cluster.
    outside["external"]["tls"]["caConfigMap"] = "outside-ca"
    assert cluster.site(*soon).rc != 0
    sentence = "the accounting database is not the one that this cluster has written to so far"
    eventually(lambda: not_ready(cluster, sentence, "controller-0"), "slurmctld's pod says why it is not ready", 60)
    run = cluster.site(*soon)
    assert run.rc != 0
    assert sentence in " ".join(run.output.split()), run.output
    # The command of docs/accounting.md, by which slurmctld goes on with this one.
    (command,) = re.findall(r"exec demo-controller-0 -c slurmctld -- (rm .*)", (REPOSITORY / "docs" / "accounting.md").read_text())
    inside(cluster, "controller-0", "slurmctld", command)
    run = cluster.site()
    assert run.rc == 0, run.output
    number = cluster.ssh("sbatch --parsable --wait -o /dev/null --wrap true").stdout.strip()
    eventually(lambda: records(cluster) == {number: "COMPLETED"}, "the other database has the next job, and only this one")
