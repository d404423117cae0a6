# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the proxy by hand, for a playbook under test: it prints its kubeconfig's path and runs until its standard input ends."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .proxy import Fault, FaultProxy


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="python -m tests.faultproxy", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="of the API server behind the proxy")
    parser.add_argument("--output", required=True, type=Path, help="where the kubeconfig that leads through the proxy is written")
    parser.add_argument("--fault", action="append", default=[], type=json.loads, help='like {"action": "429", "write": 3, "seconds": 1}')
    parser.add_argument("--trace", type=Path, help="file that gets a JSON line for each request")
    arguments = parser.parse_args()
    with FaultProxy(arguments.kubeconfig, trace=arguments.trace) as proxy:
        proxy.plan(*(Fault(**fault) for fault in arguments.fault))
        print(proxy.kubeconfig(arguments.output), flush=True)
        sys.stdin.read()
        print(json.dumps({"requests": proxy.requests, "writes": proxy.writes}))


if __name__ == "__main__":
    main()
