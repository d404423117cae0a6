# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kind of another operator, with the fields of its own definition that documents here set. The test is that operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from ..conftest import REPOSITORY, eventually, playbook
from ..kubectl import Kubectl
from .conftest import Engine

Json = dict[str, Any]
TEXT: Json = {"type": "string"}


def mapping(**fields: Json) -> Json:
    """The schema of a mapping."""
    return {"type": "object", "properties": fields}


_CONDITION = {**mapping(type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TEXT), "required": ["type", "status"]}
CONDITIONS: Json = {"type": "array", "items": _CONDITION}


class StandIn:
    """``crd`` is the definition's name; ``names`` and ``schemas`` (of spec and status) are its; ``name`` is that of the tests' cluster."""

    def __init__(self, crd: str, version: str, names: Json, schemas: dict[str, Json], *, name: str) -> None:
        self.crd = crd
        self.name = name
        group = crd.partition(".")[2]
        schema = mapping(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, **schemas)
        served = {
            "name": version,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
        self.definition: Json = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": crd},
            "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
        }

    def document(self, namespace: str, spec: Json) -> Json:
        """A cluster with ``spec`` beside what it has to have."""
        found: Json = yaml.safe_load((REPOSITORY / "examples" / "minimal.yml").read_text())
        found["metadata"] = {"name": self.name, "namespace": namespace}
        found["spec"] |= spec
        return found

    def rendered(self, engine: Engine, template: str, spec: Json) -> Json:
        """The object that a run applies; ``template`` is below roles/."""
        model = resolve.model(self.document(engine.namespace, spec)).to_dict()
        (found,), _origins = render([REPOSITORY / "roles" / template], {"corral": model}, [])
        return found

    def report(self, engine: Engine, name: str, status: str, reason: str, message: str) -> None:
        """Write the condition that its operator writes."""
        condition = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        patch = json.dumps({"status": {"conditions": [condition]}})
        engine.kubectl("patch", self.crd, name, "-n", engine.namespace, "--subresource=status", "--type=merge", "-p", patch)

    def is_missed(self, engine: Engine, folder: Path, spec: Json, message: str) -> None:
        """Without the definition a run ends before it changes the cluster."""
        engine.kubectl("delete", "crd", self.crd, "--ignore-not-found", "--timeout=60s")  # of a run that was killed
        file = folder / f"{self.name}.yml"
        file.write_text(yaml.safe_dump(self.document(engine.namespace, spec)))
        run = playbook("site", file)
        assert run.rc != 0
        assert message in run.output, run.output
        kinds = "secrets,services,statefulsets,jobs,networkpolicies,persistentvolumeclaims"
        assert engine.kubectl.items(kinds, "-n", engine.namespace) == []

    @contextmanager
    def served(self) -> Iterator[None]:
        """The API server has the definition meanwhile."""
        kubectl = Kubectl(REPOSITORY)
        kubectl("create", "-f", "-", stdin=json.dumps(self.definition))
        try:
            eventually(lambda: kubectl.serves(self.crd), "the definition is served")
            yield
        finally:
            kubectl("delete", f"crd/{self.crd}", "--wait=false")
