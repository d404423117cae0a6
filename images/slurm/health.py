#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""slurmd's HealthCheckProgram: finds what is wrong with this node, takes it out of service with a reason of ours before jobs are lost on it, and back when
it is well again. Reasons of others are left alone, but for the one that Slurm gives a node whose batch job could not enter the jail. With --job it is run by
the prolog or the epilog of a job (entry/job_hook.sh).

A check that does not work itself, or takes too long, changes nothing. When one check has taken a share of the nodes out, the next ones are spared.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corral_health import decide, hooks, records, settings
from corral_health.catalogue import CHECKS, of_site
from corral_health.checks import BROKEN, FAILED, Broken, Check, Facts, Output, Result
from corral_health.gpu_checks import TOOLS
from corral_health.processes import Stuck, Work, run
from corral_health.scheduler import Fleet, Node, node
from corral_health.slurm import Silent, slurm

# slurmd ends a HealthCheckProgram after 60 s, and this has things to do after its checks.
SECONDS = 40
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def commands(given: argparse.Namespace, name: str, wanted: settings.Settings) -> dict[str, Work]:
    """Return the commands that checks may need, by the names by which these know them."""
    # With the plugin's own arguments, so that this tries what a step does; nothing of the jail is run, which would be whatever root there put in its place.
    enter = (given.jail_exec, f"plugstack={given.plugstack}", "wait=0", "timeout=5")
    found = {
        "node": Work(10, ("scontrol", "show", "node", name, "--oneliner")),
        "jail-exec": Work(20, (given.jail_exec, "--try", "--room", *enter[1:])),
        "munge": Work(5, ("munge", "-n")),
        "nvidia-smi": Work(20, ("nvidia-smi", "-q", "-x")),
        "nvidia-smi-nvlink": Work(20, ("nvidia-smi", "nvlink", "-s")),
        "amd-smi": Work(20, ("amd-smi", "metric", "--json")),
    }
    for own in wanted.own:
        found[f"own {own.name}"] = Work(own.timeout, (*enter, "--", *own.command) if own.inside else own.command)
    return found


def needed(check: Check, wanted: settings.Settings) -> Iterator[str]:
    """Return the names of the commands that a check needs."""
    for need in check.needs:
        yield TOOLS[wanted.vendor] if need == "gpus" else need


def result_of(check: Check, facts: Facts) -> Result:
    """Return the result of a check, which may not be able to tell, or be wrong itself."""
    try:
        return check.function(facts)
    except Broken as error:
        return Result(BROKEN, str(error))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a check is nothing that is wrong with the node
        return Result(BROKEN, f"{type(error).__name__}: {error}")


def read_result(output: Output) -> Result:
    """Return the result that a check's own process printed."""
    if output.problem:
        return Result(BROKEN, output.problem)
    try:
        return Result(**json.loads(output.stdout))
    except (ValueError, TypeError):
        return Result(BROKEN, output.stderr.strip() or f"its process ended with status {output.status}")


class Run:
    """One run of the checks of a node."""

    def __init__(self, given: argparse.Namespace, name: str) -> None:
        self.given = given
        self.name = name
        self.folder = Path(given.folder)
        self.notes: list[str] = []
        # For the prologs to come; see Plan.
        self.unfit = ""
        try:
            self.settings = settings.read(Path(given.settings), name)
        except settings.SettingsError as error:
            self.notes.append(str(error))
            self.settings = settings.Settings()
        self.state = records.load(self.folder / "state.json")
        self.context = given.job or ("interval" if self.state else "start")
        self.wanted = frozenset(given.checks.split(",")) - {""}
        rows = (*CHECKS, *(of_site(own) for own in self.settings.own))
        self.checks = [check for check in rows if self.settings.platform in check.platforms and check.name not in self.settings.off]
        self.kept: dict[str, Any] = self.state.get("checks", {})

    def due(self, check: Check) -> bool:
        """A check that failed is run until it is well again, in whatever context."""
        kept = self.kept.get(check.name, {})
        if self.given.job:
            return check.name in self.wanted or any(kept.get("last", ())) or bool(kept.get("latched"))
        return self.context in check.contexts or any(kept.get("last", ()))

    def counters(self, check: Check) -> Mapping[str, Any]:
        """What the check counted in its last run."""
        return self.kept.get(check.name, {}).get("counters") or {}

    def measure(self) -> tuple[dict[str, Result], Node | None]:
        """Run the checks that are due."""
        facts = Facts(self.settings, Path(self.given.root))
        due = [check for check in self.checks if self.due(check)]
        known = commands(self.given, self.name, self.settings)
        work = {"node": known["node"], **{need: known[need] for check in due for need in needed(check, self.settings)}}
        for check in due:
            if check.files:
                alone = Facts(self.settings, facts.root, counters=self.counters(check))
                work[f"file {check.name}"] = Work(check.timeout, function=functools.partial(_as_json, check, alone))
        stuck = {name: Stuck(*one) for name, one in self.state.get("stuck", {}).items()}
        gc.freeze()  # so that children share what is loaded
        outputs: dict[str, Output] = {}
        self.state["stuck"] = {name: [one.pid, one.started] for name, one in stuck.items() if name not in work}
        for name, output, hangs in run(work, stuck=stuck, until=time.monotonic() + SECONDS):
            outputs[name] = output
            if hangs:
                self.state["stuck"][name] = [hangs.pid, hangs.started]
        # Without a response nothing is done: a drain that is not visible may belong to somebody.
        shown = outputs["node"]
        me = node(self.name, shown.stdout) if not shown.problem and not shown.status else None
        results = {}
        for check in due:
            if check.states == "idle" and (me is None or not me.idle):
                results[check.name] = Result("skipped", "the node has a job")
            elif check.files:
                results[check.name] = read_result(outputs[f"file {check.name}"])
            else:
                results[check.name] = result_of(check, Facts(self.settings, facts.root, outputs, me, self.counters(check)))
        return results, me

    def judge(self, results: Mapping[str, Result], me: Node | None) -> tuple[dict[str, str], frozenset[str]]:
        """Keep what the next run has to know; return the details of what counts as failed, and the checks that could not tell."""
        failures: dict[str, str] = {}
        for check in self.checks:
            kept = self.kept.setdefault(check.name, {})
            result = results.get(check.name)
            if result is None:
                continue
            counts, kept["last"] = decide.failing(check, result, kept.get("last", ()))
            if result.counters is not None:
                kept["counters"] = dict(result.counters)
            if result.status == FAILED and not result.warning:
                kept["detail"] = result.detail
            if check.latched:
                if me and not me.drained and me.reason.startswith(check.prefix) and self.state.get("out") == check.name:
                    kept["latched"] = False  # resumed by somebody, who knows
                kept["latched"] = counts = counts or bool(kept.get("latched"))
            if counts:
                failures[check.name] = str(kept.get("detail", ""))
        self.state["checks"] = {check.name: self.kept[check.name] for check in self.checks}
        unknown = {name for name, result in results.items() if result.status == BROKEN}
        if self.given.job:
            # What was not run takes no drain back.
            unknown |= {check.name for check in self.checks} - set(results)
        return failures, frozenset(unknown)

    @functools.cached_property
    def fleet(self) -> Fleet:
        """All nodes, asked for once, and only when something fails."""
        return Fleet.read(slurm("sinfo", "-h", "-N", "-o", "%N %T %E"))

    def act(self, results: Mapping[str, Result], failures: Mapping[str, str], unknown: frozenset[str], me: Node) -> decide.Plan:
        """Change the node, its comment and the reservations as is due."""
        drains = [check for check in self.checks if check.on_failure == "drain"]
        wrong = {check.name: failures[check.name] for check in drains if check.name in failures}
        plan = decide.plan(me, drains, wrong, unknown, lambda: self.fleet, self.settings.guard_percent)
        self.unfit = plan.unfit
        # Jobs are held before the node takes them again.
        for name in plan.hold:
            self.hold(name)
        if plan.state:
            slurm("scontrol", "update", f"nodename={self.name}", f"state={plan.state}", *([f"reason={plan.reason}"] if plan.reason else []))
            self.state["out"] = next((check.name for check in drains if plan.reason.startswith(check.prefix)), "")
        for name, prefix in plan.release.items():
            if _reserved(name) and not self.fleet.out(prefix, self.name):
                slurm("scontrol", "delete", f"reservation={name}")
        if self.given.job:
            return plan  # the comment is one of all checks
        text = decide.comment(self.checks, results, failures, plan.guarded)
        if text != self.state.get("comment"):
            self.write_comment(text)
            self.state["comment"] = text
        return plan

    def hold(self, name: str) -> None:
        """Keep jobs from starting anywhere, for as long as somebody renews it."""
        try:
            slurm("scontrol", "update", f"reservation={name}", "endtime=now+5minutes")
        except Silent:
            words = ("starttime=now", "duration=5", "nodes=ALL", "users=root", "flags=MAINT,IGNORE_JOBS")
            slurm("scontrol", "create", f"reservationname={name}", *words)

    def write_comment(self, text: str) -> None:
        """Write the node's comment, unless somebody else has written one."""
        lines = slurm("sinfo", "-h", "-N", "-n", self.name, "-O", "Comment:1200").splitlines()
        there = lines[0].strip() if lines else ""
        there = "" if there == "(null)" else there
        if there != text and (not there or there.startswith(decide.COMMENT)):
            slurm("scontrol", "update", f"nodename={self.name}", f"comment={text}")

    def record(self, results: Mapping[str, Result], failures: Mapping[str, str], plan: decide.Plan, seconds: float) -> None:
        """Leave behind what was found."""
        now = time.time()
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "node": self.name,
            "context": self.context,
            "seconds": round(seconds, 3),
            "failed": dict(failures),
            "results": {name: {"status": one.status, "detail": one.detail} for name, one in results.items()},
            "action": plan.state,
            "reason": plan.reason,
            "spared": plan.guarded,
            "notes": self.notes,
        }
        records.append(self.folder / "results.jsonl", line)
        records.save(self.folder / "failed", self.unfit)
        if not self.given.job:
            records.save(self.folder / "health.prom", records.metrics(self.name, results, failures, seconds, now), 0o644)
        # The container's log has what is new.
        news = {key: line[key] for key in ("failed", "action", "reason", "spared", "notes")}
        news["broken"] = {name: one.detail for name, one in results.items() if one.status == BROKEN}
        known = self.state.get("news", {})
        if (not self.given.job or plan.state) and {key: value for key, value in news.items() if value} != known:
            self.state["news"] = {key: value for key, value in news.items() if value}
            _log(json.dumps({"health": self.name, **self.state["news"]}, ensure_ascii=False))
        records.save(self.folder / "state.json", json.dumps(self.state))


def _as_json(check: Check, facts: Facts) -> dict[str, Any]:
    return asdict(result_of(check, facts))


def _reserved(name: str) -> bool:
    with contextlib.suppress(Silent):
        slurm("scontrol", "show", "reservation", name)
        return True
    return False


def _log(text: str) -> None:
    """Print, also where the log of slurmd's container is read: slurmd drops what its HealthCheckProgram prints."""
    print(text, flush=True)
    with contextlib.suppress(OSError):
        if Path("/proc/1/comm").read_text(encoding="utf-8").strip() == "tini":
            Path("/proc/1/fd/2").write_text(f"health: {text}\n", encoding="utf-8")


def _locked(file: Any, seconds: float) -> bool:
    """Wait for a run that has begun. One of the HealthCheckProgram is ended by slurmd after a minute."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        else:
            return True


def _for_job(given: argparse.Namespace, name: str) -> int:
    """Do what a hook of a job asks for, other than checks."""
    job = os.environ.get("SLURM_JOB_ID", "")
    try:
        if given.leftovers:
            ended = hooks.end_leftovers(Path(given.root), name, int(os.environ.get("SLURM_JOB_UID", "0")), job)
            print(f"{given.job}: job {job}: {ended} processes that its user left behind were killed", file=sys.stderr)
            return 0
        percent = settings.read(Path(given.settings), name).guard_percent
        reason = hooks.script_failed(given.job, name, given.failed, sys.stdin.read(), percent, always=given.action == "always")
    except (Silent, settings.SettingsError) as error:
        print(f"{given.job}: job {job}: nothing was done: {error}", file=sys.stderr)
        return 0
    if not reason:
        print(f"{given.job}: job {job}: the node stays in service, because too many are out by scripts of the {given.job}", file=sys.stderr)
        return 0
    if given.job == "prolog":
        hooks.tell_user(job, name, reason)
    return hooks.REFUSED


def main(arguments: list[str] | None = None) -> int:
    """The command line. As HealthCheckProgram it returns 0 wherever it ran, because only the start of slurmd reads that, and would fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--node-file", default="/run/corral-node", help="the file that has the node's name")
    parser.add_argument("--settings", default="/etc/corral/health/health.json")
    parser.add_argument("--folder", default="/run/corral-health", help="where results and the state are")
    parser.add_argument("--jail-exec", default="/opt/corral/bin/jail-exec")
    parser.add_argument("--plugstack", default="/run/slurm/conf/plugstack.conf")
    parser.add_argument("--root", default="/", help="where /proc, /sys and /dev are")
    parser.add_argument(
        "--job", default="", choices=("prolog", "epilog"), help="the hook of a job that runs this: what failed is checked again"
    )
    parser.add_argument("--checks", default="", help="with --job: checks that are run besides, separated by commas")
    parser.add_argument("--failed", default="", metavar="SCRIPT", help="with --job: a script that failed, with its detail on stdin")
    parser.add_argument("--action", default="drain", choices=("drain", "always"), help="with --failed: always takes no heed of other nodes")
    parser.add_argument("--leftovers", action="store_true", help="with --job: end processes that the job's user left behind")
    given = parser.parse_args(arguments)
    os.umask(0o022)
    os.environ.setdefault("PATH", PATH)
    # Messages of tools are read.
    os.environ["LC_ALL"] = "C"
    name = Path(given.node_file).read_text(encoding="utf-8").strip()
    folder = Path(given.folder)
    if given.failed or given.leftovers:
        return _for_job(given, name)
    with contextlib.ExitStack() as stack:
        # On a full disk the checks run all the same; they then know nothing of the last run.
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            lock = stack.enter_context((folder / "lock").open("w", encoding="utf-8"))
            # slurmd runs one at a time, and an administrator or a job perhaps another.
            if not _locked(lock, 55):
                _log(f"the checks of {name} are not run, because others have not ended for 55 s")
                return 0
        began = time.monotonic()
        this = Run(given, name)
        results, me = this.measure()
        failures, unknown = this.judge(results, me)
        plan = decide.Plan()
        if me is None:
            this.notes.append("slurmctld does not show this node, so nothing was done")
            this.unfit = "; ".join(failures.values())  # the next prolog finds out
        else:
            try:
                plan = this.act(results, failures, unknown, me)
            except Silent as error:
                this.notes.append(str(error))
        try:
            this.record(results, failures, plan, time.monotonic() - began)
        except OSError as error:
            _log(f"the results of {name} cannot be kept: {error}")
    if given.job == "prolog" and plan.unfit and me is not None:
        hooks.tell_user(os.environ.get("SLURM_JOB_ID", ""), name, plan.unfit)
        return hooks.REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
