# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components of a cluster, each named once: from here come labels, sets that are pruned, the order of a teardown, accounts of pods, network policies,
conditions of the status, and the kinds that are watched and that rights are needed for. docs/extending.md says what else a new one brings along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LABEL = "app.kubernetes.io/component"
# The value of ``Part.egress`` of pods that connect to their cluster and to name servers alone, whatever the document allows others.
CLUSTER = "cluster"
REST_PORT = 6820
# Of Prometheus' list of default ports: that of exporters for Slurm.
EXPORTER_PORT = 9341


@dataclass(frozen=True)
class Part:
    """One component. Its objects are ``<cluster>-<name>…``, have ``name`` as their label, and are of these ``kinds``; ``role`` applies them.

    ``sets`` are the ApplySets of its objects in the order in which they are made. ``daemon`` is the container of its pods that probe.sh knows; without one
    its pods are Jobs'. ``account``: they have a ServiceAccount of their own. ``egress`` is the field of spec.network.egress that says where they connect
    to, or CLUSTER; without one they connect to nobody. ``ingress`` are the components whose pods may reach its own; without it, all of the cluster may.
    ``port`` is the one that everybody may reach, and nobody another. ``users``: each writes the document's users into its own jail, where it has one.
    ``app``: its object is of a kind of this app's operator. Pods that the operator makes of it have the app's labels; where they connect to is not limited.
    ``condition`` is the status condition of its workloads. ``field`` is the field of the spec without which a cluster does not have it; ``within`` is the
    component whose ApplySet its objects are in, where it has none of its own.
    """

    name: str
    role: str
    kinds: tuple[str, ...]
    sets: tuple[str, ...] = ()
    daemon: str = ""
    account: bool = True
    egress: str = ""
    ingress: tuple[str, ...] = ()
    port: int = 0
    users: bool = False
    app: str = ""
    condition: str = ""
    field: str = ""
    within: str = ""


# In the order in which they are made; they are taken away in the other: login first, so that nobody submits, and slurmctld when it has ended the jobs.
COMPONENTS = (
    # Its pods are those of the job that looks whether the directory of users answers.
    Part(
        name="base",
        role="cluster_base",
        kinds=("ConfigMap", "Job", "NetworkPolicy", "Secret", "ServiceAccount"),
        account=False,
        egress="controller",
    ),
    Part(
        name="jail",
        role="jail_populate",
        kinds=("ConfigMap", "Job", "PersistentVolume", "PersistentVolumeClaim"),
        sets=("jail", "jail-accounts"),
        condition="JailReady",
    ),
    # Before the controller: slurmctld must find slurmdbd when it starts for the first time, and slurmdbd has to be the newer of the two.
    Part(
        name="database",
        role="accounting",
        kinds=("ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "Secret", "Service", "StatefulSet"),
        daemon="mariadbd",
        ingress=("accounting", "backup"),
        condition="DatabaseReady",
        field="accounting.database.embedded",
        within="accounting",
    ),
    # In its stead an object, of which mariadb-operator makes pods, Services and claims.
    Part(
        name="mariadb",
        role="accounting",
        kinds=("MariaDB", "Secret"),
        account=False,
        ingress=("accounting", "backup"),
        app="mariadb",
        condition="DatabaseReady",
        field="accounting.database.mariadbOperator",
        within="accounting",
    ),
    # Dumps of the database, whoever runs it, and the client that restores one.
    Part(
        name="backup",
        role="accounting",
        kinds=("CronJob", "PersistentVolume", "PersistentVolumeClaim"),
        egress="controller",
        condition="BackupReady",
        field="accounting",
        within="accounting",
    ),
    Part(
        name="accounting",
        role="accounting",
        kinds=("ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "Service", "StatefulSet"),
        daemon="slurmdbd",
        egress="controller",
        # Its own too: a backup keeps a connection to the primary.
        ingress=("accounting", "controller", "worker", "login", "rest"),
        users=True,
        condition="AccountingReady",
        field="accounting",
    ),
    Part(
        name="controller",
        role="slurm_controller",
        kinds=("ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "Service", "StatefulSet"),
        daemon="slurmctld",
        egress="controller",
        users=True,
        condition="ControllerReady",
    ),
    # Its keys are those of slurmctld and slurmdbd; its own pods have none.
    Part(
        name="rest",
        role="slurm_rest",
        kinds=("ConfigMap", "PodDisruptionBudget", "Secret", "Service", "StatefulSet"),
        daemon="slurmrestd",
        egress=CLUSTER,
        port=REST_PORT,
        condition="RestReady",
        field="rest",
    ),
    # An object, of which cert-manager makes the Secret that the proxy has.
    Part(
        name="certificate",
        role="slurm_rest",
        kinds=("Certificate",),
        account=False,
        app="cert-manager",
        condition="RestReady",
        field="rest.tls.issuerRef",
        within="rest",
    ),
    Part(
        name="monitoring",
        role="monitoring",
        kinds=("ConfigMap", "Service", "StatefulSet"),
        daemon="exporter",
        egress=CLUSTER,
        port=EXPORTER_PORT,
        condition="MonitoringReady",
        field="monitoring.enabled",
    ),
    # Objects for the Prometheus operator, which has no pods of the cluster's.
    Part(
        name="prometheus",
        role="monitoring",
        kinds=("PrometheusRule", "ServiceMonitor"),
        account=False,
        app="prometheus",
        field="monitoring.prometheusOperator.enabled",
        within="monitoring",
    ),
    Part(
        name="worker",
        role="slurm_workers",
        kinds=("ConfigMap", "PodDisruptionBudget", "Secret", "Service", "SlurmNodeSet", "StatefulSet"),
        daemon="slurmd",
        egress="workers",
        users=True,
        condition="WorkersReady",
    ),
    Part(
        name="login",
        role="slurm_login",
        kinds=("ConfigMap", "Secret", "Service", "StatefulSet"),
        daemon="sshd",
        egress="login",
        users=True,
        condition="LoginReady",
    ),
)


def present(part: Part, spec: Mapping[str, Any]) -> bool:
    """Return whether a cluster with this spec, which has its defaults, has the component."""
    return has_field(spec, part.field)


def has_field(spec: Any, field: str) -> bool:
    """Return whether a spec, valid or not, has the field of this path; every spec has the one of no name. One that is false is as one that is missing."""
    found = spec
    for name in field.split(".") if field else ():
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return found is not False


WITH_USERS = tuple(part.name for part in COMPONENTS if part.users)
# No node set can have the name of a component, of this release or one to come: it would take the name of its objects.
RESERVED = frozenset({"exporter", "health", *(part.name for part in COMPONENTS)})

# Where the API server has the kinds that live in a namespace: API version and plural. Volumes do not, are not watched, and the right to them is given apart.
KINDS = {
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Job": ("batch/v1", "jobs"),
    "CronJob": ("batch/v1", "cronjobs"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "SlurmNodeSet": ("corral.hpc/v1alpha1", "slurmnodesets"),
    "MariaDB": ("k8s.mariadb.com/v1alpha1", "mariadbs"),
    "Certificate": ("cert-manager.io/v1", "certificates"),
    "PrometheusRule": ("monitoring.coreos.com/v1", "prometheusrules"),
    "ServiceMonitor": ("monitoring.coreos.com/v1", "servicemonitors"),
}
# The kinds of other operators, which need not be installed, and the field of the spec without which nobody asks for them.
_OURS = {kind for part in COMPONENTS if not part.app for kind in part.kinds}
FOREIGN_KINDS = {kind: part.field for part in COMPONENTS if part.app for kind in part.kinds if kind not in _OURS}
