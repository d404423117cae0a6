# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What the prolog and the epilog of a job need beyond a shell (entry/job_hook.sh): what becomes of a node whose script failed, the message for the job's
user, and the processes that a user left behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from corral_health import decide, system
from corral_health.scheduler import Fleet, node
from corral_health.slurm import Silent, slurm

# Of the program, for a job that must not begin.
REFUSED = 3
_OURS = "corral:"


def _fleet() -> Fleet:
    return Fleet.read(slurm("sinfo", "-h", "-N", "-o", "%N %T %E"))


def script_failed(hook: str, name: str, script: str, detail: str, percent: int, *, always: bool) -> str:
    """Drain the node and return the reason; "" when scripts have taken a share of the nodes out, and this one is spared. Raises Silent.

    All nodes of a job run their prologs at the same time and see none of each other's drains. So they are counted again afterwards, and the first by name
    stay out.
    """
    me = node(name, slurm("scontrol", "show", "node", name, "--oneliner"))
    if me is None:
        raise Silent(f"slurmctld does not show the node {name}")
    prefix = f"corral: {hook}:"
    text = decide.reason_text(prefix, f"{script}: {detail}")
    fleet = _fleet()
    most = fleet.most(percent)
    if not always and len(fleet.out(prefix, name)) >= most:
        return ""
    if me.drained or me.taken:
        return text
    slurm("scontrol", "update", f"nodename={name}", "state=drain", f"reason={text}")
    if not always and sum(other < name for other in _fleet().out(prefix, name)) >= most:
        slurm("scontrol", "update", f"nodename={name}", "state=resume")
        return ""
    return text


def tell_user(job: str, name: str, reason: str) -> None:
    """Have the job's user read why it did not begin: in the job's AdminComment, unless somebody else has written one, and from the srun that waits."""
    if not job.isdigit() or job == "0":
        return
    text = f"{reason} (on {name}, where the job did not begin)"
    with contextlib.suppress(Silent):
        slurm("scontrol", "notify", job, text)
    with contextlib.suppress(Silent):
        there = slurm("squeue", "-h", "-j", job, "-O", "AdminComment:200").strip()
        if there in ("", "(null)", "N/A") or there.startswith(_OURS):
            slurm("scontrol", "update", f"jobid={job}", f"admincomment={text}")


def end_leftovers(root: Path, name: str, uid: int, job: str) -> int:
    """Kill the processes of a job's user that belong to no step, unless the user has another job on the node; return how many. Raises Silent.

    A job that begins meanwhile has no process among them: they are found, and held by descriptors, before slurmctld is asked.
    """
    if uid < 1000 or system.DAEMONS[0] <= uid <= system.DAEMONS[1]:
        return 0
    with contextlib.ExitStack() as stack:
        held = []
        for pid in system.of_no_step(root / "proc", uid):
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                held.append((pid, descriptor))
        # Of a number that another process has got since, the descriptor is that one's.
        still = set(system.of_no_step(root / "proc", uid))
        held = [(pid, descriptor) for pid, descriptor in held if pid in still]
        jobs = set(slurm("squeue", "-h", "-w", name, "-u", str(uid), "-o", "%A").split()) - {job} if held else set()
        if jobs:
            return 0
        for _pid, descriptor in held:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return len(held)
