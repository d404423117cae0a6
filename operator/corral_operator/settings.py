# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings, from environment variables only: the role `operator` sets them, and docs/operator.md lists them."""

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
    """Times are in seconds."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to manage; none: all namespaces, which needs a ClusterRole."""
    selector: str = ""
    """Label selector of the documents to manage; none: all. So several operators can share a cluster, or a namespace."""
    variables: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Variables of the playbooks for every run, as JSON; the operator's own variables take precedence."""
    engine: str = "warm"
    scratch: Path = Path("/run/corral-operator")
    """Documents and variables of current runs; on tmpfs."""
    runs: Path = Path("/var/lib/corral-operator/runs")
    """Artifacts of the last runs, by namespace and cluster."""
    keep_runs: int = 5
    max_runs: int = 0
    """Runs that use the CPU at once; 0: as many as the cgroup has CPUs."""
    run_timeout: float = 3600.0
    idle_timeout: float = 0.0
    """Longest time for which a run may report nothing; 0: no limit. It should exceed the playbooks' own waits, of half an hour at most."""
    grace: float = 5.0
    """From SIGINT to SIGKILL for a run that must end."""
    debounce: float = 0.3
    """Quiet time after a change of an object before it is reconciled."""
    debounce_most: float = 1.0
    resync: float = 36000.0
    """Between runs of an unchanged cluster, for changes that Kubernetes does not show: those made in slurmctld. 0: never."""
    relist: float = 900.0
    """Interval at which each watched collection is listed again, in case a watch has lost an event."""
    scale_again: float = 15.0
    """From a run after which nodes still wait for their jobs to the next run."""
    sync_again: float = 15.0
    """Between probes while jobs run on draining Kubernetes nodes; four times as long when no job is left, and with `eviction: WhenIdle`."""
    sync_every: float = 12.0
    """Between probes of all clusters, so that status and pods show the states of Slurm's nodes. 0: only after a change in Kubernetes."""
    backoff: float = 1.0
    backoff_most: float = 300.0
    qps: float = 50.0
    """Sustained rate of requests per second of the controller and its runs together; 0: no limit. The election and watches are exempt."""
    burst: float = 1300.0
    """Requests that may be sent at once: as many as a leader of a hundred clusters sends when it starts, 12 lists for each namespace."""
    elect: bool = True
    lease_namespace: str = "default"
    lease_name: str = "corral-operator"
    lease: float = 12.0
    renew_deadline: float = 8.0
    lease_retry: float = 1.0
    identity: str = ""
    metrics_port: int = 8443
    metrics_secure: bool = True
    """Serve metrics by TLS, to users with the right to get /metrics; false: by plain HTTP, to everybody."""
    health_port: int = 8081
    webhook_port: int = 9443
    webhook_certificates: str = ""
    """Directory with tls.crt and tls.key; none: there is no webhook."""
    address: str = ""
    """Address to listen on; none: all addresses."""
    legacy_conditions: bool = False
    log_level: str = "INFO"

    @property
    def owner(self) -> str:
        """Return the name by which a document's annotation refers to this operator: all pods that share a Lease are one operator."""
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
            "CORRAL_RENEW_DEADLINE must lie between CORRAL_LEASE_RETRY and CORRAL_LEASE, less half of CORRAL_GRACE, so that runs can end in time; "
            "unset all of them to use the defaults."
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
