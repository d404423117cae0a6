# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes that hit the object that was meant: always with its UID, and with a word on what becomes of its dependents."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, NotFound, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog


def delete(client: Client, ref: Ref, *, uid: str, propagation: str, version: str = "", check: bool = False) -> bool:
    """Delete the object with this UID; return False when it was gone already (or another one of its name has come since).

    ``version``: its resourceVersion, where it is to go only as it was seen; False when it has changed since.
    ``propagation``: ``Background`` returns at once and the dependents follow, ``Foreground`` keeps the object until its dependents are gone.
    """
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
        "preconditions": {"uid": uid, **({"resourceVersion": version} if version else {})},
    }
    if check:
        body["dryRun"] = ["All"]  # with a body the API server ignores dryRun in the query, and really deletes
    try:
        response = client.request("DELETE", ref.path, what=f"delete {ref}", query={"dryRun": "All"} if check else None, body=body)
    except NotFound as error:
        if error.status.code != 404:
            raise
        return False
    except Conflict as error:
        if not error.status.is_uid_mismatch:
            raise
        return False
    return response.code in (200, 202)


def usual_propagation(ref: Ref, *, waits: bool) -> str:
    """Return how an object is deleted where nobody says it.

    What a custom kind's controller has made follows its object and does not go before it: with ``Foreground``, the controller still sees the object while its
    dependents go, makes them anew, and cleans up what they stand for (mariadb-operator before 0.38.1 drops a database for its Database object).
    """
    return "Foreground" if waits and ref.resource.builtin else "Background"


def wait_gone(client: Client, ref: Ref, uid: str, *, timeout: float) -> None:
    """Return when the object with this UID does not exist any more. Raises WaitTimeout with what holds it."""
    deadline = time.monotonic() + timeout
    pause = 0.05
    progress = ProgressLog()
    while True:
        try:
            live = client.get(ref.path, what=f"read {ref}").data
        except NotFound:
            return
        if live["metadata"].get("uid") != uid:
            return
        if time.monotonic() > deadline:
            raise WaitTimeout(f"{ref} was not gone after {timeout:g} s: {holds(live)}.")
        progress.log(f"waiting until {ref} is gone: {holds(live)}")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def holds(live: dict[str, Any]) -> str:
    """Report what keeps an object that should go."""
    metadata = live["metadata"]
    if not metadata.get("deletionTimestamp"):
        return "it is not marked for deletion, so somebody has made it again; stop whoever does"
    conditions = (live.get("status") or {}).get("conditions") or ()
    remains = [str(c.get("message")) for c in conditions if c.get("status") == "True" and "Remaining" in str(c.get("type"))]
    if remains:
        return "; ".join(remains)
    finalizers = [*(metadata.get("finalizers") or ()), *((live.get("spec") or {}).get("finalizers") or ())]
    if finalizers:
        return f"the finalizers {', '.join(map(str, finalizers))} hold it until their owner has cleaned up; see what still uses it"
    return "its pods are still ending"
