# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which path of the API a kind has: a table for Kubernetes' own kinds, one request a group for all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import NotFound, Status


@dataclass(frozen=True, order=True)
class Resource:
    """A kind of objects and where the API server keeps it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    builtin: bool = True
    """Kept in the API server's own store, so that its resourceVersions compare with those of the other built-in kinds."""

    @property
    def api_version(self) -> str:
        """As an object's ``apiVersion`` says it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> str:
        """As ApplySets write it: ``StatefulSet.apps``, ``ConfigMap``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of the collection, or of the object ``name``; ``namespace`` None means all of them."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{base}{scope}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True, order=True)
class Ref:
    """The name of one object."""

    resource: Resource
    namespace: str | None
    name: str

    @property
    def path(self) -> str:
        """The object's path."""
        return self.resource.path(self.namespace, self.name)

    @property
    def collection(self) -> str:
        """The path of the collection in the object's namespace."""
        return self.resource.path(self.namespace)

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource.kind} {where}{self.name}"

    def row(self, result: str) -> dict[str, Any]:
        """Return the object's line in a task's result."""
        return {"kind": self.resource.kind, "namespace": self.namespace, "name": self.name, "result": result}


def _table() -> dict[tuple[str, str], Resource]:
    """Kinds of Kubernetes 1.30 and later by (group, kind), with the version that LISTs use."""
    namespaced: dict[str, str] = {
        "v1": "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota"
        " Secret Service ServiceAccount",
        "apps/v1": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
        "autoscaling/v2": "HorizontalPodAutoscaler",
        "batch/v1": "CronJob Job",
        "coordination.k8s.io/v1": "Lease",
        "discovery.k8s.io/v1": "EndpointSlice",
        "networking.k8s.io/v1": "Ingress NetworkPolicy",
        "policy/v1": "PodDisruptionBudget",
        "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    }
    cluster: dict[str, str] = {
        "v1": "Namespace Node PersistentVolume",
        "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
        " ValidatingWebhookConfiguration",
        "apiextensions.k8s.io/v1": "CustomResourceDefinition",
        "apiregistration.k8s.io/v1": "APIService",
        "certificates.k8s.io/v1": "CertificateSigningRequest",
        "networking.k8s.io/v1": "IngressClass",
        "node.k8s.io/v1": "RuntimeClass",
        "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
        "scheduling.k8s.io/v1": "PriorityClass",
        "storage.k8s.io/v1": "CSIDriver CSINode StorageClass VolumeAttachment",
    }
    table: dict[tuple[str, str], Resource] = {}
    for scope, versions in ((True, namespaced), (False, cluster)):
        for api_version, kinds in versions.items():
            group, version = split_api_version(api_version)
            for kind in kinds.split():
                table[group, kind] = Resource(group, version, kind, _plural(kind), scope)
    return table


def split_api_version(api_version: str) -> tuple[str, str]:
    """Return group ("" for the core) and version."""
    group, _dummy, version = api_version.rpartition("/")
    return group, version


def _plural(kind: str) -> str:
    low = kind.lower()
    if low == "endpoints":
        return low
    if low.endswith(("s", "ss")):
        return f"{low}es"
    return f"{low[:-1]}ies" if low.endswith("y") else f"{low}s"


BUILTIN = _table()


class Discovery:
    """Finds the Resource of a kind; keeps what it has read as long as it lives (one task), never on disk."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], dict[str, Resource]] = {}
        self._preferred: dict[str, str | None] = {}

    def resource(self, api_version: str, kind: str) -> Resource:
        """Return the resource of ``kind``. Raises NotFound with a sentence when the API server has no such kind."""
        group, version = split_api_version(api_version)
        builtin = BUILTIN.get((group, kind))
        if builtin is not None:
            return Resource(group, version, kind, builtin.plural, builtin.namespaced)
        known = self._known.get((group, version))
        if known is None or kind not in known:  # a kind may have come since the group was read
            known = self._read(group, version)
            self._known[group, version] = known
        if kind in known:
            return known[kind]
        raise unknown_kind(api_version, kind)

    def learn(self, definition: dict[str, Any]) -> list[Resource]:
        """Take the kinds of a CustomResourceDefinition as known, so that no request is needed; return them."""
        spec = definition.get("spec") or {}
        names = spec.get("names") or {}
        found: list[Resource] = []
        for version in spec.get("versions") or ():
            key = str(spec.get("group")), str(version.get("name"))
            resource = Resource(*key, str(names.get("kind")), str(names.get("plural")), spec.get("scope") == "Namespaced", builtin=False)
            self._known.setdefault(key, {})[resource.kind] = resource
            found.append(resource)
        return found

    def group_kind(self, group_kind: str) -> Resource | None:
        """Return the resource of an ApplySet's ``Kind.group``, or None when the API server has no such kind (its objects are gone too)."""
        kind, _dummy, group = group_kind.partition(".")
        if (group, kind) in BUILTIN:
            return BUILTIN[group, kind]
        if group not in self._preferred:
            try:
                response = self._client.get(f"/apis/{group}", what=f"ask for the API group {group}")
                self._preferred[group] = str((response.data.get("preferredVersion") or {}).get("version"))
            except NotFound:
                self._preferred[group] = None
        version = self._preferred[group]
        if version is None:
            return None
        try:
            return self.resource(f"{group}/{version}", kind)
        except NotFound:
            return None

    def _read(self, group: str, version: str) -> dict[str, Resource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            response = self._client.get(path, what=f"ask for the kinds of {group or 'core'}/{version}")
        except NotFound:
            return {}
        return {
            str(entry["kind"]): Resource(
                group, version, str(entry["kind"]), str(entry["name"]), bool(entry.get("namespaced")), builtin=False
            )
            for entry in response.data.get("resources") or ()
            if "/" not in str(entry.get("name"))
        }


def unknown_kind(api_version: str, kind: str) -> NotFound:
    """Return the error for a kind that the API server does not serve."""
    return NotFound(
        f"The API server has no kind {kind} in {api_version}; correct apiVersion and kind, or install the CustomResourceDefinition first.",
        Status(404, "NotFound"),
    )
