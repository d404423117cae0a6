# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_revision and slurm_revision_info: the documents by which a cluster was made, kept beside it."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import revisions, schema
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import APPLY, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, NotFound

_MANAGER = "corral"
_JSON_PATCH = "application/json-patch+json"

Json = dict[str, Any]


def revision(params: Json, *, check: bool, diff: bool) -> Json:
    """Note a document, or give the cluster one that was noted; the parameters are those of the module slurm_revision.

    Returns ``changed``, ``requests``, and for a restored one ``revision``, ``document`` and ``operator``.
    Raises CorralError.
    """
    client = Client(auth.resolve(params))
    try:
        work = _Work(client, params, check=check, diff=diff)
        return work.restore() if params["state"] == "restored" else work.record()
    except CorralError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()


def state(client: Client, namespace: str, cluster: str, document: Json, labels: Json) -> Json:
    """Return what a pass has to know of the history: ``note`` (whether it has to note that the document is tried), ``pending`` (whether there will be
    something to note at its end), and ``removed_users``. Raises CorralError."""
    work = _Work(client, {"namespace": namespace, "cluster": cluster, "labels": labels}, check=True, diff=False)
    tried = work.history.trying(document)
    return {
        "note": tried is not work.history or work.has_drifted(tried),
        "pending": tried.is_pending(document),
        "removed_users": work.history.removed_users(document),
    }


def revision_info(params: Json, *, check: bool, diff: bool) -> Json:
    """Return ``revisions``, the oldest first, ``tried``, and of one of them ``revision``, ``document`` and ``image_changes``.

    The parameters are those of the module slurm_revision_info. Raises CorralError.
    """
    client = Client(auth.resolve(params))
    try:
        history = _Work(client, params, check=check, diff=diff).history
        known = history.known
        result: Json = {"changed": False, "revisions": [one.to_dict() for one in known], "tried": history.tried is not None}
        if params.get("revision") is not None or len(known) > (history.tried is None):
            one = history.chosen(params.get("revision"), str(params["cluster"]))
            now = history.tried["spec"] if history.tried else known[-1].spec
            result.update(revision=one.number, document=one.document, image_changes=one.spec.get("images") != now.get("images"))
        return {**result, "requests": client.requests}
    except CorralError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()


class _Work:
    def __init__(self, client: Client, params: Json, *, check: bool, diff: bool) -> None:
        self._client = client
        self._params = params
        self._check = check
        self._diff = diff
        self._cluster = str(params["cluster"])
        self._ref = Ref(BUILTIN["", "ConfigMap"], str(params.get("namespace") or client.access.namespace), revisions.name(self._cluster))
        live = self._read(self._ref.path, str(self._ref), NotFound)
        self._labels = (live.get("metadata") or {}).get("labels") or {}
        self.history = revisions.parse(live.get("binaryData") or {})

    def record(self) -> Json:
        """Note that a run of the document goes, or that it has come to its end."""
        document: Json = json.loads(self._params["document"])
        history = self.history
        tries = self._params["state"] == "tried"
        found = history.trying(document) if tries else history.done(document, str(self._client.clock or ""))
        changed = found is not history or self.has_drifted(found)
        if changed and not self._check:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self._ref.name, "namespace": self._ref.namespace, "labels": self._params["labels"]},
                "binaryData": found.data(),
            }
            query = {"fieldManager": _MANAGER, "force": "true"}
            self._client.request("PATCH", self._ref.path, what=f"apply {self._ref}", query=query, body=body, content_type=APPLY)
        result: Json = {"changed": changed, "requests": self._client.requests}
        if self._diff and changed:
            result["diff"] = [
                {
                    "before_header": str(self._ref),
                    "before": _shown(history, self._labels),
                    "after": _shown(found, {**self._labels, **self._params["labels"]}),
                }
            ]
        return result

    def has_drifted(self, history: revisions.History) -> bool:
        """True for an object without its labels: it is none of the cluster's that is looked after, or goes with it."""
        return history != revisions.History() and not self._params["labels"].items() <= self._labels.items()

    def restore(self) -> Json:
        """Return a document that was kept; where an operator makes the cluster of a SlurmCluster, have that say the same."""
        one = self.history.chosen(self._params.get("revision"), self._cluster)
        path = f"/apis/{schema.API_VERSION}/namespaces/{self._ref.namespace}/{schema.PLURAL}/{self._cluster}"
        what = f"{schema.KIND} {self._ref.namespace}/{self._cluster}"
        # Who may not see the kind, as those with a namespace's rights, has no operator to ask.
        live = self._read(path, what, NotFound, Forbidden)
        changed = bool(live) and live.get("spec") != one.spec
        if changed and not self._check:
            body = [{"op": "replace", "path": "/spec", "value": one.spec}]
            self._client.request("PATCH", path, what=f"change {what}", body=body, content_type=_JSON_PATCH)
        return {
            "changed": changed,
            "revision": one.number,
            "document": one.document,
            "operator": bool(live),
            "requests": self._client.requests,
        }

    def _read(self, path: str, what: str, *none: type[CorralError]) -> Json:
        """Return an object, {} where the API server answers with one of these errors."""
        try:
            return dict(self._client.get(path, what=f"read {what}").data)
        except none:
            return {}


def _shown(history: revisions.History, labels: Json) -> Json:
    return {"documents": [one.number for one in history.known], "tried": history.tried is not None, "labels": labels}
