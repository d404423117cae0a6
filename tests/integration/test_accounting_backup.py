# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drill of docs/accounting.md, in order: the database is dumped, lost and restored under a running job, and a restoration is interrupted."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import MARIADB_IMAGE, VOLUMES, Cluster, Run, embedded_database, eventually, playbook
from .jobs import submit

pytestmark = pytest.mark.lab

NAME = "dump"
DUMPS = VOLUMES / f"{NAME}-backup"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 31334)
    del made.spec["nodeSets"][1]
    made.spec["nodeSets"][0]["replicas"] = 1
    made.spec["images"]["mariadb"] = MARIADB_IMAGE
    made.spec["accounting"] = {
        "database": {
            **embedded_database(NAME),
            # Hardly by itself: the tests say when.
            "backup": {
                "schedule": "0 0 1 1 *",
                "keep": 2,
                "volume": {"hostPath": str(DUMPS), "size": "1Gi"},
                "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "256Mi"}},
                "nodeSelector": {"kubernetes.io/hostname": "node1"},
            },
        }
    }
    run = made.site()
    assert run.rc == 0, run.output
    made.ssh("sbatch --wait -o /dev/null --wrap true; sbatch --wait -o /dev/null --wrap false", check=False)
    eventually(lambda: {"COMPLETED", "FAILED"} <= {row.split("|")[1] for row in records(made)}, "the records of two jobs")
    return made


def records(cluster: Cluster) -> set[str]:
    return set(cluster.ssh("sacct -X -n -P -S now-1days -o JobID,State,JobName,Start", check=False).stdout.split())


def database(cluster: Cluster, playbook_name: str, *flags: str) -> Run:
    return playbook(f"{playbook_name}_database", cluster.write(), *flags)


def job(cluster: Cluster, name: str, change: Callable[[dict[str, Any]], None] = lambda _spec: None) -> str:
    """Run the CronJob's Job at once, and return how it ended."""
    made = json.loads(
        cluster.kubectl("create", "job", name, f"--from=cronjob/{NAME}-backup", "-n", cluster.namespace, "--dry-run=client", "-o", "json")
    )
    change(made["spec"])
    cluster.kubectl("create", "-n", cluster.namespace, "-f", "-", stdin=json.dumps(made))

    def ended() -> list[str]:
        conditions = cluster.kubectl.json("get", "job", name, "-n", cluster.namespace)["status"].get("conditions") or []
        return [one["type"] for one in conditions if one["status"] == "True" and one["type"] in ("Complete", "Failed")]

    eventually(lambda: bool(ended()), f"the job {name} ends", 60)
    return ended()[0]


def test_a_dump_by_schedule_and_one_that_fails(cluster: Cluster) -> None:
    assert job(cluster, "good") == "Complete"
    (dump,) = DUMPS.glob("*.sql.gz")
    assert subprocess.run(["gzip", "-dc", dump], capture_output=True, check=True).stdout.splitlines()[-1].startswith(b"-- Dump completed")

    def elsewhere(spec: dict[str, Any]) -> None:
        spec["backoffLimit"] = 0
        (container,) = spec["template"]["spec"]["containers"]
        next(one for one in container["env"] if one["name"] == "CORRAL_DATABASE")["value"] = "nothing"

    assert job(cluster, "bad", elsewhere) == "Failed"
    (pod,) = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", "batch.kubernetes.io/job-name=bad")
    assert "could not be dumped" in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert list(DUMPS.glob("*.sql.gz")) == [dump], "the former one is kept"


def test_the_database_is_lost_and_restored_under_a_running_job(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "records.sql.gz"
    running = submit(cluster, "--no-requeue -t 60", "end")
    eventually(lambda: any(row.startswith(f"{running}|RUNNING|") for row in records(cluster)), "the record of a running job")
    run = database(cluster, "backup", "-e", f"file={file}")
    assert run.rc == 0, run.output
    known = records(cluster)
    refused = database(cluster, "restore", "-e", f"file={file}")
    assert refused.rc != 0 and "all of which would be lost to what is in" in " ".join(refused.output.split()), refused.output
    assert records(cluster) == known

    for component in ("database", "accounting"):
        cluster.kubectl("scale", "statefulset", f"{NAME}-{component}", "-n", cluster.namespace, "--replicas=0")
        cluster.kubectl("wait", "-n", cluster.namespace, "--for=delete", f"pod/{NAME}-{component}-0", "--timeout=150s")
    shutil.rmtree(VOLUMES / f"{NAME}-database")
    cluster.ssh("sbatch -o /dev/null --wrap true")
    run = cluster.site()
    assert run.rc == 0, run.output
    assert not known & records(cluster)

    run = database(cluster, "restore", "-e", f"file={file}", "-e", "force=true")
    assert run.rc == 0, run.output
    assert known <= records(cluster)
    client = f"job.batch/{NAME}-backup-client"
    eventually(
        lambda: client not in cluster.kubectl("get", "jobs", "-n", cluster.namespace, "-o", "name").split(), "the client is gone", 20
    )
    cluster.ssh("touch end")
    last = cluster.ssh("sbatch --parsable --wait -o /dev/null --wrap true").stdout.strip()
    wanted = {running, last}
    eventually(lambda: wanted <= {row.split("|")[0] for row in records(cluster) if "|COMPLETED|" in row}, "records go on", 90)


def test_an_interrupted_restoration_is_used_by_nobody_and_completed(cluster: Cluster) -> None:
    """As a run leaves it that ended between closing the database and opening it."""
    run = database(cluster, "backup")
    assert run.rc == 0, run.output
    known = records(cluster)
    close = "UPDATE slurm_acct_db.convert_version_table SET version = 2147483647; DROP TABLE slurm_acct_db.user_table"
    client = ("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "-e", close)
    cluster.kubectl("exec", "-n", cluster.namespace, f"{NAME}-database-0", "-c", "mariadbd", "--", *client)
    cluster.kubectl("delete", "pod", f"{NAME}-accounting-0", "-n", cluster.namespace)

    def told() -> bool:
        pods = cluster.kubectl.items("pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=accounting")
        states = [
            one.get(when, {}) for pod in pods for one in pod["status"].get("containerStatuses", []) for when in ("state", "lastState")
        ]
        return any("a restoration of it has not ended" in one.get("terminated", {}).get("message", "") for one in states)

    eventually(told, "slurmdbd's pod says why it does not start")
    run = database(cluster, "restore", "-e", "dump=latest")
    assert run.rc == 0, run.output
    assert known <= records(cluster)
    again = cluster.site()
    assert (again.rc, again.changed) == (0, 0), again.output
