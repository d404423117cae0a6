# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's process: what was set, and who works by it."""

from __future__ import annotations

import asyncio
import os
import sys

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from corral_operator import limits, log, settings
from corral_operator.api import fence, rate_limit
from corral_operator.runs import zygote


def main() -> int:
    """Run until SIGTERM."""
    try:
        if sys.argv[1:]:
            raise CorralError(
                f"There are no arguments, and {' '.join(sys.argv[1:])!r} were given. Settings are environment variables, CORRAL_…."
            )
        wanted = settings.read()
        log.configure(wanted.log_level)
        limits.raise_descriptors()
        limit = fence.Fence()
        common = rate_limit.RateLimiter(rate=wanted.qps, burst=wanted.burst)
        os.environ[rate_limit.VARIABLE] = common.path  # for all that runs are made by
        # It takes longest to get ready, so it begins before this process imports what it needs itself.
        started = None if wanted.engine == "cold" else zygote.start(limit.path)
        from corral_operator import service

        return asyncio.run(service.run(wanted, limit, common, started))
    except CorralError as error:
        print(f"corral-operator: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
