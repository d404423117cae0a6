# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes Events of SlurmClusters and SlurmTenants. A repeated event increments a counter."""

from __future__ import annotations

import datetime
import hashlib
import logging
from typing import Any, Literal

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator.api.client import MERGE, Api, status_code

Json = dict[str, Any]

log = logging.getLogger(__name__)

_LONGEST = 1024

Reason = Literal[
    "Created",
    "DocumentInvalid",
    "Deleted",
    "ForeignFieldsRemoved",
    "ManagedByOtherOperator",
    "NewerDefinition",
    "NodesDraining",
    "NodesResumed",
    "NotPermitted",
    "OperatorError",
    "Orphaned",
    "ReconcileConflict",
    "Recovered",
    "Repaired",
    "RunFailed",
    "Scaled",
    "SyncFailed",
    "SyncWarning",
    "TenantsApplied",
    "TenantsFailed",
    "TenantsInvalid",
    "TimedOut",
    "WaitingForJobs",
]
"""The reasons of events, which docs/operator.md lists."""


class Events:
    """Writes events. A failure to write one is logged and ignored: nothing depends on events."""

    def __init__(self, client: Api, identity: str) -> None:
        self._api = client
        self._identity = identity
        self._counts: dict[str, int] = {}

    async def write(self, subject: Json, kind: str, reason: Reason, message: str, detail: str = "") -> None:
        """Write an event of type Normal or Warning about a SlurmCluster, or about an object that names its kind.

        ``detail`` differs each time, and is appended to the message.
        """
        metadata = subject["metadata"]
        namespace = metadata["namespace"]
        key = hashlib.sha256("\0".join((metadata["uid"], kind, reason, message)).encode()).hexdigest()[:16]
        name = f"{metadata['name']}.{key}"
        path = f"/api/v1/namespaces/{namespace}/events"
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = " ".join(filter(None, (_cut(message, _LONGEST - len(detail) - 1), detail)))
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if len(self._counts) > 2000:
            self._counts.pop(next(iter(self._counts)))
        try:
            if count > 1:
                try:
                    change = {"count": count, "lastTimestamp": now, "message": text}
                    await self._api.request("PATCH", f"{path}/{name}", what="count an event", body=change, content_type=MERGE, patience=1.0)
                    return
                except CorralError as error:
                    if status_code(error) != 404:  # 404: it has expired
                        raise
            body = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": "corral.hpc/v1alpha1",
                    "kind": subject.get("kind", "SlurmCluster"),
                    "name": metadata["name"],
                    "namespace": namespace,
                    "uid": metadata["uid"],
                    "resourceVersion": metadata.get("resourceVersion"),
                },
                "type": kind,
                "reason": reason,
                "message": text,
                "source": {"component": "corral-operator", "host": self._identity.split("_")[0]},
                "reportingComponent": "corral.hpc/operator",
                "reportingInstance": self._identity[:128],
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
            await self._api.request("POST", path, what="write an event", body=body, patience=1.0)
        except CorralError as error:
            if status_code(error) != 409:  # 409: an earlier leader has written the same event
                log.info("event not written", extra={"cluster": f"{namespace}/{metadata['name']}", "error": str(error)})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
