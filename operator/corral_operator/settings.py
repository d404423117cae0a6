# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be set, by environment variables only: the role `operator` writes them, and docs/operator.md lists them."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Settings:
    """Times are seconds."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to look after; none: all of the cluster, which needs a ClusterRole."""
    selector: str = ""
    """Label selector of the documents to look after; none: all. So several operators can share a cluster, or a namespace."""
    variables: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Variables of the playbooks that each run is given, as JSON; those that the operator itself gives go before them."""
    engine: str = "warm"
    scratch: Path = Path("/run/corral-operator")
    """Documents and variables of runs under way; on tmpfs."""
    runs: Path = Path("/var/lib/corral-operator/runs")
    """Artifacts of the last runs, by namespace and cluster."""
    keep_runs: int = 5
    max_runs: int = 0
    """Runs that work at once; 0: as many as the cgroup has CPUs."""
    run_timeout: float = 3600.0
    idle_timeout: float = 0.0
    """Longest time for which a run may say nothing; 0: none. Longer than the playbooks' own waits, of half an hour at most, which say why they end."""
    grace: float = 5.0
    """From SIGINT to SIGKILL for a run that shall end."""
    debounce: float = 0.3
    """Quiet time after a change of a child before it is acted on."""
    debounce_most: float = 1.0
    resync: float = 36000.0
    """Between runs of an unchanged cluster, for what Kubernetes does not know: what somebody told slurmctld. 0: never."""
    relist: float = 900.0
    """Each watched collection is listed anew so often, should a watch have lost an event."""
    scale_again: float = 15.0
    """From a run that left nodes waiting for their jobs to the next one."""
    sync_again: float = 15.0
    """Between probes of nodes on machines that go, while jobs are on them; four times as long when none is left, and with `eviction: WhenIdle`."""
    sync_every: float = 12.0
    """Between probes of all clusters, so that status and pods tell Slurm's states. 0: when Kubernetes has changed something only."""
    backoff: float = 1.0
    backoff_most: float = 300.0
    qps: float = 50.0
    """Requests a second that the controller and its runs send together in the long run; 0: no limit. Without those of the election and of watches."""
    burst: float = 1200.0
    """Requests that may be sent at once when few were sent for long: what a leader of a hundred clusters sends when it starts, 11 lists for each namespace."""
    elect: bool = True
    lease_namespace: str = "default"
    lease_name: str = "corral-operator"
    lease: float = 12.0
    renew_deadline: float = 8.0
    lease_retry: float = 1.0
    identity: str = ""
    metrics_port: int = 8443
    metrics_secure: bool = True
    """Metrics are served by TLS, to whoever may get /metrics by Kubernetes' own rights; false: by plain HTTP, to everybody."""
    health_port: int = 8081
    webhook_port: int = 9443
    webhook_certificates: str = ""
    """Folder with tls.crt and tls.key; none: documents are not looked at as they are written."""
    address: str = ""
    """Where the two ports are opened; none: on all addresses."""
    legacy_conditions: bool = False
    log_level: str = "INFO"

    @property
    def owner(self) -> str:
        """Return by which name a document says that this operator looks after it: all pods that share a Lease are one operator."""
        return f"{self.lease_namespace}/{self.lease_name}"


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of ``CORRAL_*``. Raises CorralError."""
    usual = Settings()
    values: dict[str, Any] = {}
    for name, default in usual.__dict__.items():
        text = environment.get(f"CORRAL_{name.upper()}", "").strip()
        if text:
            values[name] = _parsed(f"CORRAL_{name.upper()}", text, default)
    if values.get("engine", "warm") not in ("warm", "cold"):
        raise CorralError(f"CORRAL_ENGINE is {values['engine']!r}; it must be warm or cold.")
    values.setdefault("identity", f"{socket.gethostname()}_{uuid.uuid4()}")
    if "lease_namespace" not in values and _NAMESPACE.exists():
        values["lease_namespace"] = _NAMESPACE.read_text().strip()
    settings = dataclasses.replace(usual, **values)
    if not settings.lease_retry < settings.renew_deadline < settings.lease - settings.grace * 0.5:
        raise CorralError(
            "CORRAL_RENEW_DEADLINE must lie between CORRAL_LEASE_RETRY and CORRAL_LEASE, with half of CORRAL_GRACE to spare for runs to end; "
            "leave them out to have values that fit."
        )
    return settings


def _parsed(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if isinstance(default, (int, float)):
            number = type(default)(text)
            if number < 0:
                raise ValueError
            return number
        if isinstance(default, dict):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError
            return found
    except (KeyError, ValueError):
        kinds = {bool: "true or false", dict: 'a JSON object, as in {"slurm_workers_wait_timeout": 3600}'}
        kind = kinds.get(type(default), "a number, 0 or more")
        raise CorralError(f"{name} is {text!r}; it must be {kind}.") from None
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return Path(text) if isinstance(default, Path) else text
