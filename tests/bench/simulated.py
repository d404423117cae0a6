# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that is none: a node of Kubernetes on which any number of pods is said to run, and to have ended when they are deleted.

A kubelet's words without its deeds. All pods have one address, at which nobody listens: what slurmctld sends there is refused at once.
Like a kubelet it follows its pods by a watch: a list of a thousand each second would be most of the load that a measurement sees.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import MERGE, Client, Stop
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe

NAME = "simulated"
PLACE = {"nodeSelector": {"kubernetes.io/hostname": NAME}, "tolerations": [{"key": NAME, "operator": "Exists", "effect": "NoSchedule"}]}
_NODE = f"/api/v1/nodes/{NAME}"
_AT_ONCE = 8
_WATCH = 60
# A node that is silent for 40 s is not ready.
_HEARTBEAT = 8.0

Json = dict[str, Any]


@contextlib.contextmanager
def machine(address: str) -> Iterator[None]:
    """Have the machine while the block goes; its pods get this address."""
    with contextlib.closing(Client(auth.resolve({}), connections=_AT_ONCE + 2)) as client:
        stop = Stop()
        client.request("POST", "/api/v1/nodes", what="make the simulated machine", body=_node())
        threads = [threading.Thread(target=_beat, args=(client, stop)), threading.Thread(target=_serve, args=(client, address, stop))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            client.request("DELETE", _NODE, what="remove the simulated machine")


def _beat(client: Client, stop: Stop) -> None:
    while True:
        with contextlib.suppress(CorralError):  # of a busy API server; the next time is soon
            client.request("PATCH", f"{_NODE}/status", what="say that the machine is well", body=_status(), content_type=MERGE)
        if stop.wait(_HEARTBEAT):
            return


def _serve(client: Client, address: str, stop: Stop) -> None:
    """Do for each pod what it asks for, by a list and then by what changes; a list again where that is lost."""
    query = {"fieldSelector": f"spec.nodeName={NAME}"}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while not stop.is_set():
            with contextlib.suppress(CorralError):
                found = client.get("/api/v1/pods", what="list the simulated pods", query=query).data
                for pod in found.get("items") or ():
                    pool.submit(_play, client, pod, address)
                since = {**query, "resourceVersion": str(found["metadata"]["resourceVersion"])}
                for event in client.watch("/api/v1/pods", what="watch the simulated pods", query=since, seconds=_WATCH, stop=stop):
                    if event.get("type") in ("ADDED", "MODIFIED"):
                        pool.submit(_play, client, event["object"], address)
                    elif event.get("type") == "ERROR":
                        break


def _play(client: Client, pod: Json, address: str) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if metadata.get("deletionTimestamp"):
        client.request(
            "DELETE", path, what="end a simulated pod", body={"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        )
    elif describe(pod):
        client.request("PATCH", f"{path}/status", what="start a simulated pod", body=_running(pod, address), content_type=MERGE)


def _running(pod: Json, address: str) -> Json:
    now = _now()

    def containers(name: str) -> list[Json]:
        return [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": now}},
            }
            for one in pod["spec"].get(name, ())
        ]

    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "initContainerStatuses": containers("initContainers"),
            "containerStatuses": containers("containers"),
        }
    }


def _node() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}},
        "spec": {"taints": [{"key": NAME, "effect": "NoSchedule"}]},
    }


def _status() -> Json:
    room = {"cpu": "10000", "memory": "10Ti", "ephemeral-storage": "10Ti", "pods": "10000"}
    now = _now()
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "lastHeartbeatTime": now}
    return {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
