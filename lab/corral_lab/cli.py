# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of lab/lab."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import images, lifecycle, prerequisites
from .state import Lab, LabError, Paths, lock


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="lab/lab",
        description="A real Kubernetes on this machine, for trying corral and for testing it. One a machine; docs/lab.md tells more.",
        epilog="Environment: LAB_NODES=1..3 (default 2), CORRAL_LAB_DIR (default /var/lib/corral-lab), CORRAL_CACHE (default ~/.cache/corral).",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start the lab, or mend it; returns at once when it is running and well")
    commands.add_parser("down", help="take the lab away without a trace; caches stay")
    commands.add_parser("status", help="one line a part; exit status 1 when one is not well")
    load = commands.add_parser("load", help="bring OCI image archives into every node")
    load.add_argument("archives", nargs="+", type=Path, metavar="IMAGE_ARCHIVE")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    needs = commands.add_parser("prerequisites", help="what this machine lacks")
    how = needs.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="tell what is missing (the default)")
    how.add_argument("--install", action="store_true", help="install what is missing with apt-get")
    return top


def run(arguments: argparse.Namespace) -> int:
    paths = Paths.from_environment(dict(os.environ))
    if arguments.command not in ("kubeconfig", "prerequisites") and os.geteuid() != 0:
        raise LabError("The lab needs root (it starts containers and sets up a network); run it as root, for example with sudo -E.")
    match arguments.command:
        case "up":
            with lock():
                lifecycle.up(paths, dict(os.environ))
        case "down":
            with lock():
                lifecycle.down(paths)
        case "status":
            statuses = lifecycle.status(paths)
            for status in statuses:
                print(f"{status.name:26} {status.pid or '-':>8} {status.state:8} {' '.join(status.why.split())}".rstrip())
            return 0 if lifecycle.healthy(statuses) else 1
        case "load":
            images.load(paths, lifecycle.load_lab(paths).nodes, arguments.archives)
        case "kubeconfig":
            lifecycle.load_lab(paths)
            print(paths.kubeconfig)
        case "prerequisites":
            if arguments.install:
                prerequisites.install()
            prerequisites.check(paths, everything=True, new=Lab.load(paths) is None)
            print("lab: nothing is missing.")
    return 0


def main(argv: list[str]) -> int:
    # Root's shell on Debian may lack the folders of iptables and its like.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{prerequisites.SYSTEM_PATH}"
    try:
        return run(parser().parse_args(argv))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"lab: {error}; lab/lab status tells how the lab is, lab/lab up mends it.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; lab/lab up goes on where it was, lab/lab down takes all away.", file=sys.stderr)
        return 130
