# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_token: slurmctld signs a token by which a user is known to the REST API."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected

LONGEST = 30 * 24 * 3600
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
# scontrol makes one for any name, and Slurm takes that of an unknown user as one of uid 99.
_KNOWN = ["getent", "passwd"]


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Make a token; the parameters are those of the module slurm_token. In check mode none is made."""
    del diff  # a token is not to be shown
    user, lifespan = str(params["user"]), int(params["lifespan"])
    if not _USER.fullmatch(user):
        raise CorralError(f"user is {user}, which no user can be called; correct the name.")
    if not 1 <= lifespan <= LONGEST:
        raise CorralError(f"lifespan is {lifespan}; give 1 to {LONGEST} seconds (30 days): nobody can take a token back.")
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        if slurmctld.run([*_KNOWN, user]).code != 0:
            raise KubeError(f"slurmctld in {slurmctld.ref} knows no user {user}; correct the name, or add the user.")
        result: dict[str, Any] = {"changed": True, "user": user}
        if not check:
            command = ["scontrol", "token", f"username={user}", f"lifespan={lifespan}"]
            token = slurmctld.ask(command, f"a token of {user}").strip().removeprefix("SLURM_JWT=")
            result |= {"token": token, "expires": _expires(token, str(slurmctld.ref))}
        return {**result, "requests": client.requests}


def _expires(token: str, where: str) -> int:
    try:
        part = token.split(".")[1]
        return int(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise KubeError(f"slurmctld in {where} returned no token; does the cluster have spec.rest?") from error
