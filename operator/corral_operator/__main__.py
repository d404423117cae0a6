# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's process: reads the settings and starts the service."""

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
                f"The operator takes no arguments, but got {' '.join(sys.argv[1:])!r}; set the environment variables CORRAL_… instead."
            )
        wanted = settings.read()
        log.configure(wanted.log_level)
        limits.raise_descriptors()
        limit = fence.Fence()
        common = rate_limit.RateLimiter(rate=wanted.qps, burst=wanted.burst)
        os.environ[rate_limit.VARIABLE] = common.path  # inherited by the processes of runs
        # The zygote takes longest to start, so it starts before this process imports its own modules.
        started = None if wanted.engine == "cold" else zygote.start(limit.path)
        from corral_operator import service

        return asyncio.run(service.run(wanted, limit, common, started))
    except CorralError as error:
        print(f"corral-operator: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
