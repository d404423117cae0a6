# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures what the goals speak of, each against a baseline of the same run, and writes results.json and docs/benchmarks.md.

Called by `make bench` with the lab up and the demonstration's cluster in it. `--cold` also takes the lab down and measures the way from
nothing to the first job's output.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import urllib3
import yaml

from ansible_collections.corral.slurm.tests.bench import own
from ansible_collections.corral.slurm.tests.bench.clock import pairs, seconds, timed

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "build" / "bench" / "results.json"
TABLE = REPOSITORY / "docs" / "benchmarks.md"


def result(name: str, value: float, unit: str, goal: float, baseline: str) -> dict[str, Any]:
    """One figure; smaller is better for all of them."""
    print(f"{name}: {value:.4g} {unit} (goal ≤ {goal:g}; {baseline})", flush=True)
    return {"name": name, "value": round(value, 4), "unit": unit, "goal": goal, "baseline": baseline, "ok": value <= goal}


def play(*args: str) -> str:
    done = subprocess.run(["ansible-playbook", *args], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"bench: ansible-playbook {' '.join(args)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def empty_play(scratch: Path) -> Path:
    empty = scratch / "empty.yml"
    empty.write_text("- {name: Nothing, hosts: localhost, connection: local, gather_facts: false, tasks: []}\n")
    return empty


def unchanged_site(document: Path, scratch: Path) -> list[dict[str, Any]]:
    empty = empty_play(scratch)
    site = ["corral.slurm.site", "-e", f"slurm_cluster_file={document}"]
    os.environ["ANSIBLE_CALLBACK_RESULT_FORMAT"] = "json"
    said = play(*site, "-v")
    if "changed=0" not in said:
        sys.exit(f"bench: the cluster of {document} is not at rest:\n{said}")
    requests, writes, objects = own.counts(said)
    found = pairs(timed(lambda: play(*site)), timed(lambda: play(str(empty))))
    return [
        result("unchanged site", found.ratio, "× an empty play", 2.0, str(found)),
        result("unchanged site, writes", writes, "writes", 0, f"{objects} objects"),
        result("unchanged site, requests", requests, "requests", objects + 15, f"{objects} objects"),
    ]


def apply_engine(count: int) -> dict[str, Any]:
    """n unchanged ConfigMaps through the engine, against the same PATCHes over one bare connection."""
    from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
    from ansible_collections.corral.slurm.plugins.module_utils._kube.run import run

    namespace = f"bench-{count}"
    names = [f"object-{n}" for n in range(count)]
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"text": name * 40}}
        for name in names
    ]
    home = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]
    run({"objects": home}, check=False, diff=False)
    try:
        run({"objects": objects}, check=False, diff=False)
        access = auth.resolve({})
        server = urllib3.util.parse_url(access.server)
        pool = urllib3.HTTPSConnectionPool(server.host or "", server.port, maxsize=1, ssl_context=access.ssl_context())
        bodies = [json.dumps(item).encode() for item in objects]
        headers = {**dict(access.headers()), "Content-Type": "application/apply-patch+yaml"}

        def bare() -> None:
            for name, body in zip(names, bodies, strict=True):
                path = f"/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager=corral"
                answer = pool.request("PATCH", path, body=body, headers=headers)
                if answer.status != 200:
                    sys.exit(f"bench: PATCH {path} answered {answer.status}: {answer.data[:300]!r}")

        found = pairs(timed(lambda: run({"objects": objects}, check=False, diff=False)), timed(bare))
    finally:
        run({"objects": home, "state": "absent", "wait": True}, check=False, diff=False)
    return result(f"k8s_apply, {count} unchanged objects", found.ratio, "× bare PATCHes", 1.3, str(found))


def beside_kubernetes_core(scratch: Path) -> tuple[list[dict[str, Any]], float]:
    """Returns the rows, and the seconds that one task of kubernetes.core takes by ansible-runner."""
    from ansible_collections.corral.slurm.tests.bench import kubernetes_core

    found = kubernetes_core.measure(scratch)
    ours, what = found["ours"], f"a play of {kubernetes_core.COUNT} unchanged objects"
    theirs = f"kubernetes.core {found['version']}"
    return [
        result(f"k8s_apply, {what}", ours / found["listed"], f"× {theirs}, one task", 0.5, f"{ours:.2f} s against {found['listed']:.2f} s"),
        result(
            f"k8s_apply, {what}",
            ours / found["tasks"],
            f"× {theirs}, a task for each",
            0.1,
            f"{ours:.2f} s against {found['tasks']:.1f} s, once",
        ),
    ], float(found["runner"])


def entering_the_jail(document: Path) -> list[dict[str, Any]]:
    """In a worker pod, by the code of the plugin: with the pod's own volumes, and with 50 more below the jail."""
    metadata = yaml.safe_load(document.read_text())
    namespace, name = metadata["metadata"].get("namespace", "default"), metadata["metadata"]["name"]
    node_set = metadata["spec"]["nodeSets"][0]["name"]
    # The mounts are made in a mount namespace of the measurement's own, over a tmpfs on a directory that every jail has.
    script = (
        "j=/opt/corral/bin/jail-exec; $j --time 300 --job 4000000000 jail=/mnt/jail; mount -t tmpfs none /mnt/jail/mnt; "
        "for i in $(seq 50); do mkdir /mnt/jail/mnt/$i; mount -t tmpfs none /mnt/jail/mnt/$i; done; $j --time 300 --job 4000000000 jail=/mnt/jail; "
        "rm -rf /var/spool/slurmd/corral/tmp/4000000000 /dev/shm/corral/4000000000"
    )
    command = [str(REPOSITORY / "lab" / "kubectl"), "exec", "-n", namespace, f"{name}-{node_set}-0", "-c", "slurmd", "--"]
    done = subprocess.run([*command, "unshare", "-m", "sh", "-ec", script], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: the jail cannot be measured: {done.stdout}{done.stderr}")
    plain, crowded = (json.loads(line) for line in done.stdout.splitlines())
    return [
        result("entering the jail, median", plain["p50"] / 1000, "ms", 1, "300 entries in a worker pod"),
        result("entering the jail with 50 more mounts, median", crowded["p50"] / 1000, "ms", 1, "300 entries in a worker pod"),
        result("entering the jail with 50 more mounts, p99", crowded["p99"] / 1000, "ms", 10, "300 entries in a worker pod"),
    ]


def entering_beside_the_least() -> list[dict[str, Any]]:
    """On a bare machine, so that this part needs no lab, against a program that does no more than it must."""
    from ansible_collections.corral.slurm.tests.bench import entry

    return [
        result(what, found.ratio, "× unshare, the same mounts and pivot_root", 2, str(found)) for what, found in entry.compare().items()
    ]


def a_new_user(document: Path, scratch: Path) -> dict[str, Any]:
    """From the edited document to the user's own session and a task of theirs on every node."""
    edited = yaml.safe_load(document.read_text())
    spec = edited["spec"]
    spec["users"].append({"name": "newcomer", "uid": 19999, "sshKeys": spec["users"][0]["sshKeys"]})
    nodes = sum(node_set.get("replicas", 1) for node_set in spec["nodeSets"])
    path = scratch / "newcomer.yml"
    path.write_text(yaml.safe_dump(edited))
    asked = ["get", "nodes", "-o", 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}']
    address = subprocess.run([str(REPOSITORY / "lab" / "kubectl"), *asked], capture_output=True, text=True, check=True).stdout
    ssh = ["ssh", "-i", str(document.parent / "id_ed25519"), "-p", str(spec["login"]["service"]["nodePort"]), "-o", "LogLevel=ERROR"]
    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={scratch}/known_hosts"]

    def add() -> None:
        play("corral.slurm.site", "-e", f"slurm_cluster_file={path}")
        command = [*ssh, *options, f"newcomer@{address}", f"srun -N{nodes} id -un"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.stdout.split() != ["newcomer"] * nodes:
            sys.exit(f"bench: the new user is not everywhere: {done.stdout}{done.stderr}")

    try:
        took = seconds(add)
    finally:
        play("corral.slurm.site", "-e", f"slurm_cluster_file={document}")
    return result("a user added to the document → their task on all nodes", took, "s", 60, "absolute, the goal is one")


def steps_in_the_jail() -> list[dict[str, Any]]:
    """On bare daemons, so that this part needs no lab; the plugin is all that differs."""
    from ansible_collections.corral.slurm.tests.bench import steps

    return [
        result(command, found.ratio, "× without the plugin", 1.1 if "-n50" in command else 1.05, str(found))
        for command, found in steps.compare().items()
    ]


def checking_a_node() -> list[dict[str, Any]]:
    """On this machine, so that this part needs no lab."""
    from ansible_collections.corral.slurm.tests.bench import health

    found = health.measure()
    return [
        result("the health checks of a node without GPUs", found.seconds, "s", 1, f"{found.cpu_seconds:.2f} CPU-seconds"),
        result("their memory, all processes together", found.mebibytes, "MiB", 50, "absolute, the goal is one"),
    ]


def hooks_of_a_job() -> list[dict[str, Any]]:
    """On bare daemons, so that this part needs no lab."""
    from ansible_collections.corral.slurm.tests.bench import job_hooks

    found = job_hooks.measure()
    return [
        result("srun true with a prolog and an epilog", found.srun.ratio, "× without", 1.15, str(found.srun)),
        result("the epilog alone, which srun does not wait for", found.epilog * 1000, "ms", 20, "absolute, the goal is one"),
    ]


def ten_thousand_nodes() -> list[dict[str, Any]]:
    from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve

    document = yaml.safe_load((REPOSITORY / "examples" / "demo.yml").read_text())
    template = document["spec"]["nodeSets"][0]
    document["spec"]["nodeSets"] = [{**template, "name": f"set{n}", "replicas": 2500} for n in range(4)]
    document["spec"]["partitions"] = [{"name": "main", "default": True}]
    models: list[Any] = []
    took = seconds(lambda: models.append(resolve.model(document).to_dict()))
    size = len(models[0]["config"]["files"]["slurm.conf"].encode())
    return [
        result("10 000 nodes: document to model and configs", took, "s", 2.0, "absolute, the goal is one"),
        result("10 000 nodes: slurm.conf", size / 1024, "KiB", 16, "bytes"),
    ]


def a_thousand_nodes(document: Path, scratch: Path) -> list[dict[str, Any]]:
    from ansible_collections.corral.slurm.tests.bench import many

    found = many.measure(REPOSITORY, document, scratch)
    baseline = f"{found['objects']} objects of controller and workers, to the wait for slurmd"
    return [
        result("1 000 more nodes: document → slurmctld knows them", found["known"], "s", 60, "slurmctld not restarted"),
        result("unchanged run with 1 000 simulated workers", found["unchanged"], "s", 10, baseline),
        result("unchanged run with 1 000 simulated workers, writes", found["writes"], "writes", 0, baseline),
        result("unchanged run with 1 000 simulated workers, requests", found["requests"], "requests", found["objects"] + 15, baseline),
        result("500 idle nodes fewer: document → pods and node lines gone", found["down"], "s", 60, "simulated pods"),
    ]


def accounting(document: Path, scratch: Path) -> list[dict[str, Any]]:
    """A cluster with slurmdbd and its own MariaDB."""
    from ansible_collections.corral.slurm.tests.bench import accounting as accounted

    found = accounted.measure(REPOSITORY, document, scratch)
    many = f"{accounted.USERS} users with two associations each"
    calls = f"{found['calls']:.0f} s for one call of sacctmgr for each user, of which {accounted.CALLS} were measured"
    return [
        result("tenants: an unchanged pass", found["unchanged"], "s", 10, many),
        result("tenants: an unchanged pass", found["unchanged"] / found["calls"], "× one sacctmgr for each user", 0.2, calls),
        result("tenants: an unchanged pass, writes", found["unchanged writes"], "writes", 0, many),
        result("tenants: one limit changed, writes", found["changed lines"], "writes", 1, f"{found['changed']:.1f} s; {many}"),
        result("tenants: all created", found["created"], "s", 600, f"{many}; slurmdbd's own time"),
        result(
            "slurmdbd takes records after an outage",
            found["records"],
            "s",
            120,
            f"{accounted.RECORDS} jobs, from its first response, when it had {found['records before']}",
        ),
        result(
            "srun true with accounting",
            found["with"] / found["without"],
            "× without",
            1.1,
            f"{found['with'] * 1000:.1f} ms against {found['without'] * 1000:.1f} ms",
        ),
        result("unchanged site with accounting, writes", found["writes"], "writes", 0, f"{found['objects']} objects"),
        result(
            "unchanged site with accounting, requests", found["requests"], "requests", found["objects"] + 15, f"{found['objects']} objects"
        ),
    ]


def monitoring(scratch: Path) -> list[dict[str, Any]]:
    """The exporter, with generated output of Slurm's commands."""
    from ansible_collections.corral.slurm.tests.bench import exporter

    found = exporter.measure(REPOSITORY, scratch)
    many = f"{exporter.NODES} nodes, {exporter.JOBS} jobs, {exporter.ACCOUNTS} accounts; {found['series']:.0f} series"
    return [
        result("metrics: a scrape", found["scrape"], "s", 1, many),
        result("metrics: size of a scrape", found["size"], "MiB", 10, many),
        result("metrics: memory of the exporter", found["memory"], "MiB", 256, many),
        result(
            "metrics: CPU of the exporter", 100 * found["cpu"], "% of one", 10, f"a query takes {found['query']:.1f} s; one each minute"
        ),
    ]


def from_nothing() -> dict[str, Any]:
    subprocess.run([str(REPOSITORY / "lab" / "lab"), "down"], check=True)
    took = seconds(lambda: subprocess.run(["make", "-C", str(REPOSITORY), "demo", "KUBECONFIG="], check=True, stdout=subprocess.DEVNULL))
    return result("empty lab, warm caches → first job's output", took, "s", 120, "absolute, the goal is one")


def table(results: list[dict[str, Any]]) -> str:
    rows = [
        f"| {r['name']} | {r['value']:.4g} {r['unit']} | ≤ {r['goal']:g} | {r['baseline']} | {'yes' if r['ok'] else '**no**'} |"
        for r in results
    ]
    state = f"The machine has {os.cpu_count()} CPUs; its load was {os.getloadavg()[2]:.1f} in the last 15 minutes."
    head = f"# Benchmarks\n\nWritten by `make bench`. Ratios are medians of pairs taken in turn in one run; counts are exact. {state}\n"
    return "\n".join([head, "| what | figure | goal | measured against | reached |", "|---|---|---|---|---|", *rows]) + "\n"


# As a Go ansible-operator 1.42 did it on a machine of this kind, with a playbook of one task for 40 objects.
GO = "Go ansible-operator:"


def runs_of_the_operator(document: Path, scratch: Path, runner: float) -> list[dict[str, Any]]:
    """The same playbook as the operator runs it; ``runner`` is what a play of 40 objects by kubernetes.core takes as the Go ansible-operator runs it."""
    from ansible_collections.corral.slurm.tests.bench import operator_runs

    found = operator_runs.measure(document, scratch)
    empty = statistics.median(seconds(lambda: play(str(empty_play(scratch)))) for _turn in range(5))
    against = f"× an empty ansible-playbook, {empty:.2f} s"
    said = f"{found['cold']:.2f} s by ansible-runner's own start; {GO} 2.4 to 3.1 s"
    asked = f"{found['requests']} requests; {GO} two writes of the status"
    return [
        result("operator: a run that finds nothing, median", found["p50"] / empty, against, 0.75, f"{found['p50'] * 1000:.0f} ms; {said}"),
        result("operator: a run that finds nothing, longest of 40", found["p99"] / empty, against, 1.3, f"{found['p99'] * 1000:.0f} ms"),
        result(
            "operator: a run that finds nothing",
            found["p50"] / runner,
            "× kubernetes.core by ansible-runner",
            0.3,
            f"{runner:.2f} s for one task with 40 unchanged objects; processor time {found['cpu'] * 1000:.0f} ms",
        ),
        result(
            "operator: a run that finds nothing, against bare PATCHes",
            found["p50"] / found["bare"],
            "× an empty PATCH of each object",
            6,
            f"{found['bare'] * 1000:.0f} ms, one after another on one connection",
        ),
        result("operator: a run that finds nothing, writes", found["writes"], "writes", 0, asked),
        result("operator: the zygote's memory", found["memory"], "MiB", 75, "half of what both processes may have"),
    ]


def edits_and_drift(document: Path, scratch: Path) -> list[dict[str, Any]]:
    """The operator and one cluster."""
    from ansible_collections.corral.slurm.tests.bench import operator_edits

    found = operator_edits.measure(document, scratch)
    live, served = sorted(found["live"]), sorted(found["served"])
    drifts = {kind: sorted(seconds) for kind, seconds in found["drift"].items()}
    late = sorted(one for seconds in drifts.values() for one in seconds)
    quiet = f"{operator_edits._REST:g} s at rest; {GO} a run and two writes each time that it looks"
    return [
        result("operator: started → its first run is done", found["start"], "s", 3, "one by the playbook, of a cluster that is there"),
        result(
            "operator: edit → in the ConfigMap, longest",
            live[-1],
            "s",
            1,
            f"of {len(live)}, median {statistics.median(live):.2f} s; {GO} 2.4 to 3.2 s",
        ),
        result(
            "operator: edit → in the ConfigMap, median",
            statistics.median(live) / statistics.median(found["bare"]),
            "× a bare loop that watches and patches",
            20,
            f"{statistics.median(found['bare']) * 1000:.0f} ms from a ConfigMap to the one that is made of it",
        ),
        result(
            "operator: edit → slurmctld says it, longest", served[-1], "s", 3, f"of {len(served)}, median {statistics.median(served):.2f} s"
        ),
        *(
            result(
                f"operator: drift of a {kind} → repaired, longest",
                seconds[-1],
                "s",
                2,
                f"of {len(seconds)}, median {statistics.median(seconds):.2f} s",
            )
            for kind, seconds in drifts.items()
        ),
        result(
            "operator: drift of all kinds → repaired, p95", late[len(late) * 95 // 100], "s", 2, f"of {len(late)}, longest {late[-1]:.2f} s"
        ),
        result(
            "operator: runs of the site for a cluster at rest",
            found["runs"],
            "runs",
            0,
            f"{quiet}; {found['looks']:g} probes of Slurm's nodes",
        ),
        result("operator: writes for a cluster at rest", found["writes"], "writes", 0, quiet),
    ]


def a_hundred_clusters(document: Path, scratch: Path) -> list[dict[str, Any]]:
    """The operator beside clusters that are well."""
    from ansible_collections.corral.slurm.tests.bench import operator_fleet

    found = operator_fleet.measure(document, scratch)
    beside = f"{operator_fleet.COUNT} clusters, each in its own namespace"
    return [
        result("operator: started → all clusters probed", found["start"], "s", 10, beside),
        result("operator: runs of playbooks at its start", found["runs"], "runs", 0, beside),
        result("operator: writes at its start", found["writes"], "writes", 0, beside),
        result("operator: a new document's first action meanwhile", found["first"], "s", 1, beside),
        result("operator: memory at rest, both processes", found["memory"], "MiB", 180, f"{beside}; shared pages counted once"),
        result("operator: processor at rest", found["processor"], "%", 1, beside),
        result("operator: leader killed → another one leads", found["killed"], "s", 17, beside),
        result("operator: leader told to stop → another one leads", found["stopped"], "s", 3, beside),
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("document", type=Path, help="the SlurmCluster document of a cluster that is up and at rest")
    arguments.add_argument("--cold", action="store_true", help="also take the lab down and measure the way to the first job")
    arguments.add_argument("--accounting", action="store_true", help="measure accounting alone, and show its rows; nothing is written")
    arguments.add_argument("--monitoring", action="store_true", help="measure the exporter alone, and show its rows; nothing is written")
    arguments.add_argument("--operator", action="store_true", help="measure the operator alone, and show its rows; nothing is written")
    options = arguments.parse_args()
    if options.accounting:
        with tempfile.TemporaryDirectory() as scratch:
            accounting(options.document, Path(scratch))
        return
    if options.monitoring:
        with tempfile.TemporaryDirectory() as scratch:
            monitoring(Path(scratch))
        return
    if options.operator:
        with tempfile.TemporaryDirectory() as scratch:
            runs_of_the_operator(options.document, Path(scratch), beside_kubernetes_core(Path(scratch))[1])
            for part in (edits_and_drift, a_hundred_clusters):
                part(options.document, Path(scratch))
        return
    with tempfile.TemporaryDirectory() as scratch:
        results = [*unchanged_site(options.document, Path(scratch)), apply_engine(40), apply_engine(400)]
        others, runner = beside_kubernetes_core(Path(scratch))
        results.extend([*others, *ten_thousand_nodes()])
        results.extend([*entering_the_jail(options.document), *entering_beside_the_least()])
        results.append(a_new_user(options.document, Path(scratch)))
        results.extend(a_thousand_nodes(options.document, Path(scratch)))
        results.extend(accounting(options.document, Path(scratch)))
        with tempfile.TemporaryDirectory() as commands:
            results.extend(monitoring(Path(commands)))
        results.extend(steps_in_the_jail())
        results.extend(checking_a_node())
        results.extend(hooks_of_a_job())
        results.extend(runs_of_the_operator(options.document, Path(scratch), runner))
        results.extend(edits_and_drift(options.document, Path(scratch)))
        results.extend(a_hundred_clusters(options.document, Path(scratch)))
    if options.cold:
        results.append(from_nothing())
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    TABLE.write_text(table(results))


if __name__ == "__main__":
    main()
