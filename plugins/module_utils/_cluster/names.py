# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of a cluster's objects, which those of another can meet: cluster m with a set n-x and cluster m-n with a set x both want the StatefulSet m-n-x.

Names that clusters have cannot be changed, so the second document is refused with the name of the first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import Model, Volume

# Kind, namespace ("" for what has none) and name.
Name = tuple[str, str, str]
# What a sentence names first.
_KINDS = ("StatefulSet", "PersistentVolume", "PersistentVolumeClaim", "Service", "Secret", "ConfigMap", "Job")


def of(model: Model) -> frozenset[Name]:
    """Return the names of the objects whose names hold more of the document than the cluster's name, and of those that they could meet."""
    found = {(kind, "" if kind == "PersistentVolume" else model.namespace, name) for kind, name in _named(model)}
    return frozenset(found)


def meeting(ours: frozenset[Name], first: frozenset[Name], whose: str) -> str:
    """Return a sentence where two clusters want the same object, "" where they do not. ``whose`` is the namespace and name of the first."""
    common = min(ours & first, key=lambda one: (_KINDS.index(one[0]), one), default=None)
    if common is None:
        return ""
    return (
        f"metadata.name makes the name {common[2]} of a {common[0]}, which the cluster {whose} has already; nothing was changed: give this cluster, or its "
        "node set or volume, another name."
    )


def _named(model: Model) -> Iterator[tuple[str, str]]:
    for name in (model.controller.name, model.login.name, *(one.stateful_set for one in model.workers.node_sets)):
        yield "StatefulSet", name
    services = (model.workers.service, model.login.service, model.login.pods_service, *(host.service for host in model.controller.hosts))
    yield from (("Service", name) for name in services)
    yield from (("Secret", secret["name"]) for secret in model.secrets)
    maps = (
        model.config.name,
        revisions.name(model.name),
        model.jail.kind,
        model.login.init_config_map,
        model.workers.health_config_map,
        *model.users.names,
    )
    yield from (("ConfigMap", name) for name in maps)
    yield from (("ConfigMap", one.init_config_map) for one in model.workers.node_sets)
    yield from (("ConfigMap", applyset.name) for applyset in model.teardown.applysets)
    for jail in model.jails:
        yield "ConfigMap", jail.populate.config_map
        yield from (("Job", name) for name in (jail.populate.job, jail.users.job) if name)
        yield from _volume(jail.volume)
    if model.rest:
        yield "StatefulSet", model.rest.stateful_set
        yield "Service", model.rest.service
        yield "ConfigMap", model.rest.config_map
    if model.monitoring:
        yield "StatefulSet", model.monitoring.stateful_set
        yield "Service", model.monitoring.service
        yield "ConfigMap", model.monitoring.config_map
        if model.monitoring.dashboards:
            yield "ConfigMap", model.monitoring.dashboards.config_map
    if model.accounting:
        yield "StatefulSet", model.accounting.stateful_set
        yield from (("Service", host.service) for host in model.accounting.hosts)
        yield "ConfigMap", model.accounting.config_map
        if model.accounting.database:
            yield "StatefulSet", model.accounting.database.stateful_set
            yield "Service", model.accounting.database.service
            yield "ConfigMap", model.accounting.database.config_map
            yield from _volume(model.accounting.database.volume)
        if model.accounting.mariadb:
            # The object is not of a kind of corral's; what its operator makes of it has its name.
            yield "StatefulSet", model.accounting.mariadb.name
            yield "Service", model.accounting.mariadb.service
            yield from (("PersistentVolumeClaim", claim) for claim in model.accounting.mariadb.claims)
        yield from _volume(model.accounting.backup.volume)
        yield from _volume(model.accounting.archive)
    for volume in (model.controller.state, *model.sub_mount_volumes):
        yield from _volume(volume)


def _volume(volume: Volume | None) -> Iterator[tuple[str, str]]:
    if volume and volume.create:
        yield "PersistentVolumeClaim", volume.claim
    if volume and volume.persistent_volume:
        yield "PersistentVolume", volume.persistent_volume
