#!/usr/bin/python
# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_apply
short_description: Apply a batch of Kubernetes objects, prune what is no longer in it, and wait until it is ready
version_added: 0.1.0
description:
  - Applies all given objects server-side in the order in which they need one another, one request each and several at once.
  - With O(applyset) it also deletes what an earlier batch of the same set held and this one does not.
  - It distinguishes an unchanged object from a changed one exactly, without reading it first.
extends_documentation_fragment:
  - corral.slurm.kubernetes
  - corral.slurm.kubernetes.attributes
options:
  objects:
    description:
      - Objects as mappings with C(apiVersion), C(kind) and C(metadata.name). Lists of objects are taken apart.
      - What the API server keeps by itself (C(status), C(metadata.uid) and the like) is left out, so that an exported object can be applied.
    type: list
    elements: dict
    default: []
  templates:
    description:
      - Templates of objects, found in the C(templates) folder of the role or beside the play. They are rendered on the controller.
      - Each may hold several YAML documents, and their objects are added to O(objects).
      - Every expression is printed as JSON, so values need no quoting and cannot break out of their place.
        Texts are joined inside the expression, as in C({{ corral.name ~ "-base" }}).
      - The host's fact C(corral) is visible as C(corral), everything else has to be given by O(variables).
    type: list
    elements: str
    default: []
  template_paths:
    description:
      - Folders in which C(include) looks for templates after the folder of the including one.
    type: list
    elements: path
    default: []
  variables:
    description:
      - Further variables of the templates.
    type: dict
    default: {}
  state:
    description:
      - V(present) makes the objects as given. V(absent) deletes O(objects), and with O(applyset) all members of the set and the set itself.
      - With V(absent) a name is enough. An object that is given with the labels of a cluster, or as a PersistentVolume with C(spec.claimRef), stays, with a
        warning, where the live one has those of another cluster or is kept for another claim.
    type: str
    choices: [present, absent]
    default: present
  create_only:
    description:
      - Make objects that are missing and never change those that exist.
    type: bool
    default: false
  namespace:
    description:
      - Namespace of namespaced objects that do not name theirs. The kubeconfig's context decides when it is not set.
    type: str
  field_manager:
    description:
      - Name under which the API server notes the fields as owned.
    type: str
    default: corral
  force:
    description:
      - Take over fields that another manager owns with another value. Otherwise such a conflict fails and names field and manager.
    type: bool
    default: false
  foreign_fields:
    description:
      - When it is set, even to an empty list, what others have added to objects of the batch is taken back, and a warning, RV(foreign) and the diff name
        manager and field. Looked at are pod templates, whether a Job is suspended, the C(spec) of Services and NetworkPolicies, the C(data) of ConfigMaps,
        roles and bindings, and whether a ServiceAccount mounts its token.
      - The list names fields that may be somebody else's. Each entry has C(field), the field's name as the API server writes it, with C(*) for anything,
        and what is below it (C(.spec.template.spec.containers[name="istio-proxy"])), or C(manager), the name of who owns it, or both, and perhaps
        C(kind) and C(labels) of the objects that it is about.
      - The annotation of C(kubectl rollout restart) may always be there.
    type: list
    elements: dict
  owner:
    description:
      - An owner reference for the objects in the owner's namespace, C(apiVersion), C(kind), C(name) and C(uid), perhaps C(controller) and
        C(blockOwnerDeletion). When the owner is deleted, Kubernetes deletes them.
      - The key C(namespace) names the owner's namespace when it is not O(namespace). Objects elsewhere never get the owner.
    type: dict
  applyset:
    description:
      - The set that the objects belong to, as KEP-3659 describes it. Members that are not in the batch are deleted.
      - Namespaces, volumes, volume claims, Secrets and custom resource definitions are never members and are never pruned.
    type: dict
    suboptions:
      name:
        description: Name of the set's parent, a ConfigMap.
        type: str
        required: true
      namespace:
        description: Namespace of the parent. Taken from O(namespace) when it is not set.
        type: str
      labels:
        description: Labels of the parent.
        type: dict
        default: {}
  propagation:
    description:
      - What O(state=absent) does with dependents. V(Foreground) keeps an object until its dependents are gone, V(Background) lets them follow.
      - V(Foreground) is taken with O(wait=true) for Kubernetes' own kinds, otherwise V(Background).
    type: str
    choices: [Background, Foreground]
  wait:
    description:
      - Wait until StatefulSets, Deployments, DaemonSets, Jobs, Pods, volume claims, Namespaces, custom resource definitions, Certificates
        and MariaDB objects are ready, or with O(state=absent) until the objects are gone.
      - Ends early with the pod's own reason when an image cannot be had (20 seconds or a second back-off), a container crashes again and
        again (3 restarts or 20 seconds), no node fits (30 seconds) or a Job has failed.
      - A claim whose storage class binds when the first pod comes counts as ready.
    type: bool
    default: false
  wait_timeout:
    description:
      - Longest wait in seconds.
    type: int
    default: 300
  wait_load_balancer:
    description:
      - With O(wait=true), also wait until Services of type C(LoadBalancer) have an address.
    type: bool
    default: false
  retry_failed_jobs:
    description:
      - Delete a Job of the batch that has failed, and create it again, once.
    type: bool
    default: false
  rebind_volumes:
    description:
      - Have a PersistentVolume of the batch whose claim is gone (V(Released), with C(persistentVolumeReclaimPolicy=Retain)) serve the next claim of the
        same name and namespace, with its data, when the object's C(claimRef) names that claim without a C(uid).
      - Kubernetes keeps such a volume for the claim that is gone, and a new one of that name waits for it without end.
    type: bool
    default: false
  skip_unknown_kinds:
    description:
      - Leave out objects of kinds that the API server does not have; RV(unknown_kinds) names the kinds. Otherwise such a kind is an error.
    type: bool
    default: false
  replace_stuck_pods:
    description:
      - Delete the pods of a StatefulSet of the batch that cannot start (crash loop, image, configuration) and were made from an older template,
        for which Kubernetes would wait for ever.
      - A pod is deleted only when one of its containers waits to be started, never while all of them run; with C(updateStrategy.type=OnDelete) only
        when none of them runs.
    type: bool
    default: false
  in_use:
    description:
      - How to find out who uses a pod of a StatefulSet of the batch.
      - With it, a warning names the users of each pod that goes with fewer C(replicas), or is replaced at once for another template. In check mode too.
      - Pods that go with fewer C(replicas) are then not waited for, since their users may take long, unless O(in_use.wait) says so.
      - With O(state=absent) a warning names the users of each pod of a StatefulSet that is deleted, and with O(wait=true) such pods have the time that they
        have to end beyond O(wait_timeout).
    type: dict
    suboptions:
      container:
        description:
          - The container in which O(in_use.command) is run. A pod in which it does not run is not used.
        type: str
        required: true
      command:
        description:
          - A program and its arguments. Exit code 0 means that the pod is not in use; otherwise it prints who uses it.
        type: list
        elements: str
        required: true
      wait:
        description:
          - With O(wait=true), also wait for pods that go with fewer C(replicas), O(wait_timeout) seconds from when all else is ready. A warning names those
            that are still there then, who uses them, and when they end.
        type: bool
        default: false
  replace_idle_pods:
    description:
      - Delete pods of an older template of StatefulSets with C(updateStrategy.type=OnDelete) that nobody uses (O(in_use), which it needs), one after the other,
        each when the one before is ready again. A warning names the others, and who uses them.
      - If all pods are of the newest template, no request is made.
    type: bool
    default: false
author:
  - the corral authors (@corral-hpc)
seealso:
  - module: corral.slurm.k8s_secret
"""

EXAMPLES = r"""
- name: Apply a role's templates as one set and wait for the pods
  corral.slurm.k8s_apply:
    templates: [service.yml.j2, stateful_set.yml.j2]
    applyset:
      name: demo-login
      namespace: demo
    wait: true

- name: Create a namespace if it is missing
  corral.slurm.k8s_apply:
    objects:
      - {apiVersion: v1, kind: Namespace, metadata: {name: demo}}
    create_only: true

- name: Delete the whole set and wait until its pods are gone
  corral.slurm.k8s_apply:
    state: absent
    applyset:
      name: demo-login
      namespace: demo
    wait: true
"""

RETURN = r"""
objects:
  description:
    - One row for each object, in the order of the input, then those that were pruned or deleted with their set, and replaced pods.
    - RV(objects[].result) is V(created), V(configured), V(unchanged), V(pruned), V(absent) (deleted by this run), V(replaced) (a pod
      deleted for O(replace_stuck_pods)), V(refused) (the error is about it) or V(skipped) (not reached).
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object.
      type: str
      returned: always
    namespace:
      description: Namespace of the object, V(null) for cluster-scoped ones.
      type: str
      returned: always
    name:
      description: Name of the object.
      type: str
      returned: always
    result:
      description: What became of the object.
      type: str
      returned: always
  sample:
    - {kind: Service, namespace: demo, name: demo-login, result: unchanged}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 5
writes:
  description: Number of objects that were really written, the set's parent included. V(0) in check mode.
  returned: always
  type: int
  sample: 0
outdated:
  description:
    - Names of StatefulSets with C(updateStrategy.type=OnDelete) that have pods of an older template. Whoever deletes these has them replaced.
    - With O(wait=false) those that the API server knows at the time of its response.
  returned: when there are any
  type: list
  elements: str
  sample: [demo-cpu]
unknown_kinds:
  description:
    - The kinds of objects that the API server does not have, with O(state=absent), O(skip_unknown_kinds=true) or in check mode. Otherwise such a kind is an
      error.
  returned: when there are any
  type: list
  elements: str
  sample: [monitoring.coreos.com/v1/ServiceMonitor]
foreign:
  description: The fields that others had added and that were taken back, or would be in check mode.
  returned: when there are any
  type: list
  elements: dict
  sample:
    - {kind: Service, namespace: demo, name: demo-login, result: foreign, field: .spec.externalIPs, manager: kubectl-edit}
conflicts:
  description: The fields that other managers own, when these made the task fail.
  returned: on a field conflict
  type: list
  elements: dict
  sample:
    - {kind: StatefulSet, namespace: demo, name: demo-cpu, result: conflict, field: .spec.replicas, manager: autoscaler}
"""

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.diff import shown
from ansible_collections.corral.slurm.plugins.module_utils._kube.run import run
from ansible_collections.corral.slurm.plugins.module_utils._module import connection_options, run_module

CONSTRAINTS: dict[str, list[tuple[object, ...]]] = {
    "mutually_exclusive": [("create_only", "applyset")],
    "required_if": [("replace_idle_pods", True, ["in_use"])],
}


def argument_spec() -> dict[str, object]:
    """Return the options of the module and of the action."""
    return {
        **connection_options(),
        "objects": {"type": "list", "elements": "dict", "default": []},
        "templates": {"type": "list", "elements": "str", "default": []},
        "template_paths": {"type": "list", "elements": "path", "default": []},
        "variables": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "create_only": {"type": "bool", "default": False},
        "namespace": {"type": "str"},
        "field_manager": {"type": "str", "default": "corral"},
        "force": {"type": "bool", "default": False},
        "foreign_fields": {"type": "list", "elements": "dict"},
        "owner": {"type": "dict"},
        "applyset": {
            "type": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "namespace": {"type": "str"},
                "labels": {"type": "dict", "default": {}},
            },
        },
        "propagation": {"type": "str", "choices": ["Background", "Foreground"]},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 300},
        "wait_load_balancer": {"type": "bool", "default": False},
        "retry_failed_jobs": {"type": "bool", "default": False},
        "rebind_volumes": {"type": "bool", "default": False},
        "skip_unknown_kinds": {"type": "bool", "default": False},
        "replace_stuck_pods": {"type": "bool", "default": False},
        "in_use": {
            "type": "dict",
            "options": {
                "container": {"type": "str", "required": True},
                "command": {"type": "list", "elements": "str", "required": True},
                "wait": {"type": "bool", "default": False},
            },
        },
        "replace_idle_pods": {"type": "bool", "default": False},
    }


def backend(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Apply the objects. Raises CorralError for templates too, which the module does not render."""
    if params["templates"]:
        raise CorralError(
            "Templates are rendered by the action plugin of the same name on the controller; it was not found, so install the whole collection."
        )
    return run(params, check=check, diff=diff)


def without_secrets(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as a result may show them."""
    return {**params, "objects": [shown(obj, str(obj.get("kind"))) for obj in params["objects"]]}


def main() -> None:
    """Run as a module, on the host that the task is delegated to."""
    run_module(backend, argument_spec, CONSTRAINTS, shown=without_secrets)


if __name__ == "__main__":
    main()
