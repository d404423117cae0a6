# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of an inventory: the pods of clusters, as Kubernetes has them, and their workers, as slurmctld has them.

Workers are never listed as pods: slurmctld knows their states, and a list of ten thousand pods takes longer than all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected

# The group of the hosts of each component whose pods run a daemon of Slurm's, or users' sessions.
GROUPS = {"accounting": "slurm_accounting", "controller": "slurm_controllers", "login": "slurm_logins", "rest": "slurm_rest"}
WORKERS = "slurm_workers"

_CLUSTER, _COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
_SELECTOR = f"app.kubernetes.io/name=slurm,app.kubernetes.io/part-of=corral,{_COMPONENT} in ({','.join(GROUPS)})"
_CONTAINER = "kubectl.kubernetes.io/default-container"
# What of the options of a source its hosts need to be reached. A token would be in the cache, and in what ansible-inventory prints.
_WAY = ("kubeconfig", "context", "host", "ca_cert", "client_cert", "client_key", "validate_certs")
_PYTHON = "/usr/bin/python3"
# Where those put files that have no home. No other user runs anything in their containers.
_NO_HOME = "/tmp/.ansible/tmp"
_AT_ONCE = 8

Found = dict[str, Any]


@dataclass
class _Cluster:
    """One cluster of a source: its pods by their component, and its nodes."""

    namespace: str
    name: str
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    error: str = ""
    """Why slurmctld could not be asked for the nodes."""


def read(sources: Iterable[dict[str, Any]], *, strict: bool) -> Found:
    """Return ``hosts`` (each a ``name``, its ``groups``, the first that of its cluster, and ``variables``), the ``variables`` of groups and their
    ``parents``, ``warnings`` and the number of ``requests``.

    A source has the connection options, ``namespaces``, ``clusters``, ``jail`` and ``suffix``. Raises CorralError where a source has no cluster, or not
    those that it names, or two hosts have one name; with ``strict``, also where a slurmctld cannot be asked, which is a warning otherwise.
    """
    hosts: dict[str, Found] = {}
    variables: dict[str, Found] = {}
    warnings: list[str] = []
    requests = 0
    for source in sources:
        with connected(source) as client:
            clusters = _clusters(client, source)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda cluster, client=client: _ask(client, cluster, strict=strict), clusters))
        requests += client.requests
        warnings.extend(cluster.error for cluster in clusters if cluster.error)
        for cluster in clusters:
            own, found = _whole(cluster, source), _hosts(cluster, source)
            name = found[0]["groups"][0]
            other = variables.setdefault(name, own)
            if other is not own:
                raise CorralError(
                    f"Two clusters of the inventory would be the group {name}, {other['slurm_namespace']}/{other['slurm_name']} and "
                    f"{own['slurm_namespace']}/{own['slurm_name']}; give one of their sources another 'suffix'."
                )
            for host in found:
                if hosts.setdefault(host["name"], host) is not host:
                    raise CorralError(
                        f"Two hosts of the inventory would be called {host['name']}, of {hosts[host['name']]['groups'][0]} and of {name}; give one of "
                        "their sources another 'suffix'."
                    )
    groups = {group for host in hosts.values() for group in host["groups"]}
    parents = {group: WORKERS for group in sorted(groups) if group.startswith("slurm_node_set_")}
    return {"hosts": list(hosts.values()), "variables": variables, "parents": parents, "warnings": warnings, "requests": requests}


def group(kind: str, name: str) -> str:
    """Return the name of a group: what no name of a group may have becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", f"slurm_{kind}_{name}")


def _clusters(client: Client, source: Found) -> list[_Cluster]:
    """Return the clusters that a source means, with all pods but those of workers."""
    namespaces = list(dict.fromkeys(source.get("namespaces") or ()))
    kind, query = BUILTIN["", "Pod"], {"labelSelector": _SELECTOR}
    pods = []
    for namespace in namespaces or [client.access.namespace]:
        pods += client.items(kind.path(namespace), what=f"find clusters in namespace {namespace}", query=query)
    where = f"Namespace {', '.join(namespaces or [client.access.namespace])}"
    if not pods and not namespaces:
        try:
            pods = client.items(kind.path(None), what="find clusters in all namespaces", query=query)
            where = f"The Kubernetes of {client.access.source}"
        except Forbidden:
            pass  # then it is the namespace's affair, as everywhere
    found: dict[tuple[str, str], _Cluster] = {}
    for pod in pods:
        labels = pod["metadata"]["labels"]
        key = str(pod["metadata"]["namespace"]), str(labels[_CLUSTER])
        found.setdefault(key, _Cluster(*key)).pods.setdefault(str(labels[_COMPONENT]), []).append(pod)
    known, wanted = {cluster.name for cluster in found.values()}, set(source.get("clusters") or ())
    if not found or wanted - known:
        raise KubeError(
            f"{where} has no cluster{' called ' + ', '.join(sorted(wanted - known)) if wanted else ''}"
            f"{', but ' + ', '.join(sorted(known)) if known else ''}; give the namespaces of clusters in 'namespaces', and their names in 'clusters'."
        )
    return [cluster for _key, cluster in sorted(found.items()) if not wanted or cluster.name in wanted]


def _ask(client: Client, cluster: _Cluster, *, strict: bool) -> None:
    """Fetch a cluster's nodes from its slurmctld."""
    where = f"The nodes of cluster {cluster.namespace}/{cluster.name} are not known"
    controllers = sorted(cluster.pods.get("controller", ()), key=lambda pod: (bool(describe(pod)), str(pod["metadata"]["name"])))
    try:
        if not controllers:
            raise KubeError(f"{where}: it has no pod that runs slurmctld; run corral.slurm.site, or end its maintenance.")
        pod = controllers[0]["metadata"]["name"]
        options = {"namespace": cluster.namespace, "pod": pod, "container": _container(controllers[0])}
        cluster.nodes = Slurmctld(client, options).read_nodes()
    except CorralError as error:
        if strict:
            raise
        cluster.error = str(error) if str(error).startswith(where) else f"{where}: {error}"


def _whole(cluster: _Cluster, source: Found) -> Found:
    """Return the variables of a cluster's group: once, and not for each of ten thousand workers. Other hosts have their own beside them."""
    return {
        "ansible_connection": "corral.slurm.pod",
        "ansible_pod_container": "slurmd",
        "ansible_pod_jail": bool(source.get("jail")),
        "ansible_pod_namespace": cluster.namespace,
        "ansible_python_interpreter": _PYTHON,
        "ansible_user": "root",
        "slurm_component": "worker",
        "slurm_name": cluster.name,
        "slurm_namespace": cluster.namespace,
        **{f"ansible_pod_{name}": source[name] for name in _WAY if source.get(name) is not None},
    }


def _hosts(cluster: _Cluster, source: Found) -> list[Found]:
    """Return the hosts of a cluster."""
    suffix = source.get("suffix") or ""
    mine = group("cluster", cluster.name + suffix)
    hosts = []
    for component, its in sorted(cluster.pods.items()):
        for pod in sorted(its, key=lambda pod: str(pod["metadata"]["name"])):
            name = str(pod["metadata"]["name"])
            variables = {**_of_pod(pod), "ansible_host": name, "slurm_component": component}
            hosts.append({"name": name + suffix, "groups": [mine, GROUPS[component]], "variables": variables})
    for node in cluster.nodes:
        node_set = node.name.rpartition("-")[0]
        groups = [mine, group("node_set", node_set) if node_set else WORKERS]
        groups += [group("partition", name) for name in node.partitions]
        groups += [group("state", name.lower()) for name in node.state]
        groups += [group("feature", name) for name in node.features]
        variables = {
            "ansible_host": f"{cluster.name}-{node.name}",
            "slurm_cpus": node.cpus,
            "slurm_features": node.features,
            "slurm_gres": node.gres,
            "slurm_in_service": node.in_service,
            "slurm_node": node.name,
            "slurm_node_set": node_set,
            "slurm_partitions": node.partitions,
            "slurm_real_memory": node.real_memory,
            "slurm_reason": node.reason if node.out else "",
            "slurm_state": node.state,
        }
        hosts.append({"name": f"{cluster.name}-{node.name}{suffix}", "groups": list(dict.fromkeys(groups)), "variables": variables})
    return hosts


def _of_pod(pod: dict[str, Any]) -> Found:
    """Return what is particular to a pod: its daemon's container, who that runs as, and the Kubernetes node."""
    spec, name = pod["spec"], _container(pod)
    security = next((one.get("securityContext") or {} for one in spec["containers"] if one["name"] == name), {})
    uid = security.get("runAsUser", (spec.get("securityContext") or {}).get("runAsUser"))
    user = {} if uid == 0 else {"ansible_user": str(uid), "ansible_remote_tmp": _NO_HOME}
    return {"ansible_pod_container": name, "ansible_pod_jail": False, "slurm_kubernetes_node": spec.get("nodeName") or "", **user}


def _container(pod: dict[str, Any]) -> str:
    """Return the container of a pod's daemon."""
    return str((pod["metadata"].get("annotations") or {}).get(_CONTAINER) or pod["spec"]["containers"][0]["name"])
