# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on which the health check runs, and a scheduler of a few lines that keeps what it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[3] / "images" / "slurm" / "health.py"
OUTAGE = "corral-jail-outage"
# Of health.py, for a job that must not begin.
REFUSED = 3

# scontrol and sinfo as far as the script uses them; anything else is an error.
SCHEDULER = f"""\
#!{sys.executable}
import json, os, sys
path = {{path!r}}
with open(path) as file: state = json.load(file)
verb, *words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
given = dict(word.split("=", 1) for word in words if "=" in word)
if verb == "sinfo" and "-O" in words:
    assert words[:3] + words[4:] == ["-h", "-N", "-n", "-O", "Comment:1200"], words
    print((state["nodes"][words[3]].get("comment") or "(null)").ljust(1200))
elif verb == "squeue" and "-O" in words:
    assert words[:2] + words[3:] == ["-h", "-j", "-O", "AdminComment:200"], words
    print((state.setdefault("comments", {{}}).get(words[2]) or "(null)").ljust(200))
elif verb == "squeue":
    assert words[:2] + words[3:4] + words[5:] == ["-h", "-w", "-u", "-o", "%A"], words
    print(" ".join(state.get("jobs", [])))
elif words[0] == "notify":
    state.setdefault("notified", []).append(words[1:])
elif words[0] == "update" and "jobid" in given:
    state.setdefault("comments", {{}})[given["jobid"]] = given["admincomment"]
elif verb == "sinfo":
    assert words == ["-h", "-N", "-o", "%N %T %E"], words
    for name, node in state["nodes"].items():
        for partition in range(2):
            print(name, "drained" if node["drain"] else "maint" if state["held"] else "idle", node["reason"] or "none")
elif words[:2] == ["show", "node"]:
    node = state["nodes"][words[2]]
    flags = "+DRAIN" * node["drain"] + "+INVALID_REG" * node.get("refused", False) + "+MAINTENANCE" * state["held"]
    flags += "+FAIL" * node.get("fail", False)
    print(f"NodeName={{words[2]}} State={{node.get('base', 'IDLE')}}{{flags}} " + (f"Reason={{node['reason']}}" if node["reason"] else ""))
elif words[:2] == ["show", "reservation"]:
    sys.exit(0 if state["held"] else 1)
elif words[0] == "update" and "reservation" in given:
    sys.exit(0 if state["held"] else 1)
elif words[0] == "create":
    assert given["nodes"] == "ALL" and given["reservationname"] == {OUTAGE!r} and not state["held"], words
    state["held"] = True
elif words[0] == "delete":
    state["held"] = False
elif words[0] == "update" and "comment" in given:
    state["nodes"][given["nodename"]]["comment"] = given["comment"]
elif words[0] == "update":
    node = state["nodes"][given["nodename"]]
    node["drain"] = given["state"] == "drain"
    node["reason"] = given.get("reason", node["reason"])
    if given["state"] == "resume":
        node.update(base="IDLE", fail=False)
else:
    sys.exit(f"not known here: {{words}}")
with open(path, "w") as file: json.dump(state, file)
"""


class Nodes:
    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.path = folder / "state.json"
        self.names = [f"n{number:03}" for number in range(count)]
        self.save({"held": False, "nodes": {name: {"drain": False, "reason": ""} for name in self.names}})
        for name in ("scontrol", "sinfo", "squeue"):
            self.program(name, SCHEDULER.replace("{path!r}", repr(str(self.path))).replace("{{", "{").replace("}}", "}"))
        conf = folder / "plugstack.conf"
        conf.write_text("required /opt/corral/lib/corral/spank_corral_jail.so jail=/mnt/jail\n")
        self.system = folder / "system"
        (self.system / "proc/self").mkdir(parents=True)
        (self.system / "proc/self/mountinfo").touch()
        self.settings({"off": ["clock", "munge"]})
        self.jail(True)

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def save(self, state: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(state))

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def jail(self, there: bool) -> None:
        said = "" if there else "echo 'jail-exec: /mnt/jail has no marker file' >&2; exit 125"
        # A program of the jail is root's there, and its status would be an answer of whoever that is.
        nothing_run = 'case " $* " in *" -- "*) exit 125 ;; *" --try "*) ;; *) exit 125 ;; esac'
        self.program("jail-exec", f"#!/bin/sh\n{nothing_run}\n{said}\n")

    def settings(self, settings: dict[str, Any]) -> None:
        (self.folder / "health.json").write_text(json.dumps(settings))

    def check(self, *names: str) -> None:
        for name in names or self.names:
            self.hook(name)

    def hook(self, name: str, *more: str, text: str = "", **environment: str) -> int:
        """Run the program on a node, by default as HealthCheckProgram; return its status."""
        (self.folder / "node").write_text(name + "\n")
        path = f"{self.folder}:{os.environ['PATH']}"
        given = {"node-file": "node", "settings": "health.json", "jail-exec": "jail-exec", "plugstack": "plugstack.conf"}
        words = [f"--{option}={self.folder / file}" for option, file in given.items()]
        words += [f"--folder={self.folder / 'run' / name}", f"--root={self.system}"]
        command = [sys.executable, "-Es", SCRIPT, *words, *more]
        done = subprocess.run(command, env={"PATH": path, **environment}, input=text, check=False, capture_output=True, text=True)
        if done.returncode not in (0, REFUSED):
            raise RuntimeError(done.stderr)
        return done.returncode

    def last(self, name: str) -> dict[str, Any]:
        """What the last run of a node's found."""
        found: dict[str, Any] = json.loads((self.folder / "run" / name / "results.jsonl").read_text().splitlines()[-1])
        return found

    def out(self) -> list[str]:
        return [name for name, node in self.state()["nodes"].items() if node["drain"]]
