#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Serves metrics of a Slurm cluster for Prometheus. Runs Slurm's commands once per interval and never for a scrape."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from corral_exporter.collector import Collector, Settings
from corral_exporter.commands import records
from corral_exporter.server import Server


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cluster", required=True, help="the value of the label cluster")
    parser.add_argument("--port", type=int, required=True, help="the port of /metrics")
    parser.add_argument("--interval", type=float, required=True, help="seconds from query to query")
    parser.add_argument("--accounts", type=int, required=True, help="how many accounts have series of their own")
    parser.add_argument("--users", type=int, required=True, help="how many users have series of their own")
    parser.add_argument("--nodes", type=int, required=True, help="how many unavailable nodes have a series")
    parser.add_argument(
        "--passwd", type=Path, default=Path("/etc/corral/monitoring/passwd"), help="a file like /etc/passwd with the users' names"
    )
    given = parser.parse_args()
    settings = Settings(given.cluster, given.accounts, given.users, given.nodes, max(10.0, given.interval / 2), given.passwd)
    collector = Collector(settings, records)
    server = Server(given.port, collector.text)
    # If the server fails, this process ends, and so its container.
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    while True:
        began = time.monotonic()
        collector.collect()
        time.sleep(max(1.0, given.interval - (time.monotonic() - began)))


def _serve(server: Server) -> None:
    try:
        server.serve_forever()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
