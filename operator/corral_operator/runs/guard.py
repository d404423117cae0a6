# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects the requests of a run's process to the fence and the rate limit of its controller, which its environment names.

It is imported before Ansible has set up its collection loader.
"""

from __future__ import annotations

import os
import time

from corral_operator.api import rate_limit
from corral_operator.api.fence import VARIABLE, Fence
from corral_operator.api.rate_limit import RateLimiter


def guard() -> None:
    """Subject the requests of this process and its children to both. Outside an operator the environment names neither."""
    from ansible_collections.corral.slurm.plugins.module_utils._kube.client import ask_before_requests

    fence = Fence(path) if (path := os.environ.get(VARIABLE)) else None
    limiter = RateLimiter(path) if (path := os.environ.get(rate_limit.VARIABLE)) else None
    if fence is None and limiter is None:
        return

    def ask(writes: bool) -> None:
        if limiter is not None and (wait := limiter.reserve()):
            time.sleep(wait)
        if fence is not None and writes:
            fence.check()

    ask_before_requests(ask)
