# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a claim can be mounted in the way that pods need it, before any of them waits for it in vain."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound


def check_claim(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Read a claim; the parameters are those of the module k8s_claim_check.

    Returns ``changed`` (False), ``exists``, ``access_modes`` and ``requests``. Raises KubeError for a claim that does not fit.
    """
    del check, diff  # nothing is changed in any mode
    client = Client(auth.resolve(params))
    try:
        ref = Ref(BUILTIN["", "PersistentVolumeClaim"], str(params.get("namespace") or client.access.namespace), str(params["name"]))
        try:
            claim = client.get(ref.path, what=f"read {ref}").data
        except NotFound as error:
            if params["must_exist"]:
                raise KubeError(f"{ref} does not exist; make it, or correct its name. Nothing was changed.") from error
            return {"changed": False, "exists": False, "access_modes": [], "requests": client.requests}
        modes = access_modes(claim)
        if params["access_mode"] not in modes:
            raise KubeError(refusal(ref, modes, str(params["access_mode"])))
        return {"changed": False, "exists": True, "access_modes": modes, "requests": client.requests}
    except KubeError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()


def access_modes(claim: dict[str, Any]) -> list[str]:
    """Return what the volume behind a claim offers; before there is one, what the claim asks for."""
    return [str(mode) for mode in (claim.get("status") or {}).get("accessModes") or claim["spec"].get("accessModes") or ()]


def refusal(ref: Ref, modes: list[str], wanted: str) -> str:
    """Return the sentence for a claim that lacks a mode."""
    return (
        f"{ref} is {' and '.join(modes) or 'without access modes'}, but pods on several nodes mount it, which takes {wanted}; a claim keeps its access "
        f"modes, so make one with {wanted}, copy what is in this one while nothing writes to it, and name that one. Nothing was changed."
    )
