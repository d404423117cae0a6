# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon that keeps the rules of NetworkPolicies (policies.py) as the API server's pods, namespaces and policies want them."""

from __future__ import annotations

import http.client
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .control_plane import POLICIES_HEALTH_PORT
from .health import Api
from .network import CHAIN, parse_save
from .policies import MAIN, Rules
from .state import LabError

KINDS = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "policies": "/apis/networking.k8s.io/v1/networkpolicies",
}
# A pod's packets to other pods and to the outside, and those to this machine itself. What the machine sends is let through.
PLACES = ("FORWARD", "INPUT")
# Events come in crowds.
QUIET_SECONDS = 0.05
# kube-proxy puts its jumps first when it starts, and what they accept would never come to ours.
LOOK_SECONDS = 5.0


class Kind:
    """All objects of one kind, followed."""

    def __init__(self, api: Api, path: str, changed: Callable[[], None]) -> None:
        self._api, self._path, self._changed = api, path, changed
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._lock = threading.Lock()
        self.listed = threading.Event()

    def objects(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._objects.values())

    def follow(self) -> None:
        """List, then watch until that ends, for ever. While the API server is away, what was known last holds."""
        while True:
            try:
                self._once()
            except (OSError, http.client.HTTPException, ValueError, LabError) as error:
                print(f"{self._path}: {error}", file=sys.stderr, flush=True)
                time.sleep(1)

    def _once(self) -> None:
        status, answer = self._api.call("GET", self._path)
        if status != 200:
            raise LabError(f"{status} {str(answer)[:200]}")
        with self._lock:
            self._objects = {_key(one): one for one in answer["items"]}
        self.listed.set()
        self._changed()
        for event in self._api.watch(self._path, answer["metadata"]["resourceVersion"]):
            if event["type"] == "ERROR":
                return  # its version is too old by now
            if event["type"] != "BOOKMARK":
                with self._lock:
                    if event["type"] == "DELETED":
                        self._objects.pop(_key(event["object"]), None)
                    else:
                        self._objects[_key(event["object"])] = event["object"]
                self._changed()


def _key(found: dict[str, Any]) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def run(api: Api) -> None:
    """Keep the rules, until the process is ended; they stay then as they are."""
    changed = threading.Event()
    changed.set()
    kinds = {name: Kind(api, path, changed.set) for name, path in KINDS.items()}
    followers = [threading.Thread(target=kind.follow, daemon=True) for kind in kinds.values()]
    for follower in followers:
        follower.start()
    for kind in kinds.values():
        kind.listed.wait()
    made, well = "", threading.Event()
    threading.Thread(target=_serve, args=(well,), daemon=True).start()
    while True:
        if not all(follower.is_alive() for follower in followers):
            raise LabError("A part of the daemon has ended, by the error above; lab/lab up starts it anew.")
        if changed.wait(LOOK_SECONDS):
            time.sleep(QUIET_SECONDS)
            changed.clear()
        rules = Rules(kinds["pods"].objects(), kinds["namespaces"].objects(), kinds["policies"].objects())
        text = rules.script(())
        try:
            if text != made or not first():
                write(rules)
                made = text
            well.set()
        except LabError as error:
            well.clear()
            print(error, file=sys.stderr, flush=True)
            time.sleep(1)
            changed.set()


def _filter() -> list[str]:
    done = subprocess.run(["iptables-save", "-t", "filter"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"iptables-save failed: {done.stderr.strip()}")
    return parse_save(done.stdout).get("filter", [])


def first(lines: list[str] | None = None) -> bool:
    """Whether our chain is the first that each place leads to."""
    found = _filter() if lines is None else lines
    return all(next((line for line in found if line.startswith(f"-A {place} ")), "").endswith(f"-j {MAIN}") for place in PLACES)


def write(rules: Rules) -> None:
    """Make the rules in one step, and lead to them."""
    lines = _filter()
    own = [line[1:].split()[0] for line in lines if line.startswith(f":{CHAIN}-")]
    _run(["iptables-restore", "--noflush", "-w", "10"], rules.script(own))
    if not first(lines):
        for place in PLACES:
            for line in lines:
                if line.startswith(f"-A {place} ") and line.endswith(f"-j {MAIN}"):
                    _run(["iptables", "-w", "10", "-D", place, "-j", MAIN])
            _run(["iptables", "-w", "10", "-I", place, "-j", MAIN])


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")


def _serve(well: threading.Event) -> None:
    """Say whether the rules are as they should be."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if well.is_set() else 503)
            self.end_headers()
            self.wfile.write(json.dumps({"well": well.is_set()}).encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nobody reads who asked."""

    http.server.ThreadingHTTPServer(("127.0.0.1", POLICIES_HEALTH_PORT), Handler).serve_forever()
