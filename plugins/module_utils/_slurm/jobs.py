# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of ``squeue --json``, and the actions that make one present, absent, held… Pure.

slurmctld forgets a job MinJobAge seconds (300 if not set) after its end; until then its name tells a repeated play that it was submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, output
from ansible_collections.corral.slurm.plugins.module_utils._slurm.output import printable

_LIVE = frozenset(
    {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SIGNALING",
     "STAGE_OUT", "STOPPED", "SPECIAL_EXIT", "POWER_UP_NODE", "RESV_DEL_HOLD", "EXPEDITING"}
)  # fmt: skip
# For squeue: the jobs that have nodes. No job in another state has one.
ON_NODES = "--states=running,suspended,completing,configuring,stopped,signaling,stage_out"
# States of jobs that wait: to squeue, one that is held after a requeue is not pending.
QUEUED = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
# The jobs that have nodes, and those that wait.
NOT_ENDED = ",".join([ON_NODES, "requeued", *sorted(state.lower() for state in QUEUED)])
# For squeue: which nodes a job names (%n by --nodelist, %x by --exclude). The job's own name is last, since it may have anything in it.
NAMES = "%i|%n|%x|%N|%T|%u|%P|%q|%j"
# A job that was requeued completes on its node and waits in the queue at once.
_WAITS = frozenset({"PENDING", "REQUEUED"})
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
# The module's own, and those by which a job would not be the one that was asked for.
_TAKEN = frozenset(
    {"job-name", "chdir", "wrap", "parsable", "wait", "test-only", "uid", "gid", "get-user-env", "help", "usage", "version", "quiet"}
)
# What slurmstepd gives a job whose output file it could not open ("Slurmd could not connect IO").
_NO_OUTPUT = 53


@dataclass(frozen=True)
class Job:
    """A job: one record of slurmctld, or all of an array's made into one. ``exit_code`` is None until it has ended by itself."""

    id: int
    name: str
    user: str
    state: str
    ended: bool
    held: bool
    exit_code: int | None
    signal: int
    reason: str
    nodes: str
    partition: str
    output: str
    comment: str
    submit_time: str
    start_time: str
    end_time: str
    tasks: int = 1

    @property
    def succeeded(self) -> bool:
        """True when it has ended and did what it should."""
        return self.ended and self.state == "COMPLETED"

    @property
    def summary(self) -> str:
        """Describe its state, for errors."""
        where = f" on {self.nodes}" if self.nodes else ""
        return f"job {self.id} ({self.name} of {self.user}) is {self.state}{where}" + self._how()

    def _how(self) -> str:
        if self.signal == _NO_OUTPUT:
            return f", for its output file {self.output} could not be made; see that its folder exists and {self.user} may write there"
        if self.signal:
            return f", ended by signal {self.signal}"
        if self.exit_code:
            return f" with exit code {self.exit_code}"
        return f" ({self.reason})" if self.reason not in ("", "None") and not self.succeeded else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "succeeded": self.succeeded}


def of_removed_users(found: Iterable[Job]) -> list[str]:
    """Describe what happens to those of these jobs that have not ended, whose users the document no longer has."""
    left = [job for job in found if not job.ended]
    if not left:
        return []
    users, numbers = ", ".join(sorted({job.user for job in left})), ", ".join(map(str, sorted(job.id for job in left)))
    ends = 'fails with "Error generating job credential". Cancel them (scancel), or keep the user until they have ended.'
    return [f"The document no longer has {users}, whose jobs {numbers} have not ended. What runs goes on, but its next srun {ends}"]


def parse(text: str) -> list[Job]:
    """Return the jobs of squeue's JSON, the tasks of an array (and the parts of a heterogeneous job) as one, newest last. Raises OutputError."""
    groups: dict[int, list[tuple[output.Row, Job]]] = {}
    for row in output.rows(text, "jobs", "squeue", "job_id"):
        job = _job(row)
        together = output.number(row.get("array_job_id")) or output.number(row.get("het_job_id")) or job.id
        groups.setdefault(together, []).append((row, job))
    return [_together(number, [job for _row, job in groups[number]]) for number in sorted(groups)]


def submission(params: dict[str, Any]) -> tuple[list[str], str]:
    """Return sbatch's arguments and its standard input; the parameters are those of the module slurm_job. Raises CorralError."""
    arguments = ["--parsable", f"--job-name={job_name(params)}"]
    if params.get("comment"):
        arguments.append(f"--comment={printable(str(params['comment']), 'comment')}")
    for name, value in (params.get("options") or {}).items():
        option = str(name).replace("_", "-")
        if not _OPTION.fullmatch(option) or option in _TAKEN or (option == "comment" and params.get("comment")):
            raise CorralError(
                f"The option {name!r} cannot be given to sbatch here; use the module's own options for name, chdir and command."
            )
        if isinstance(value, bool):
            arguments += [f"--{option}"] if value else []
        elif value is not None:
            arguments.append(f"--{option}={printable(str(value), f'option {name}')}")
    script = params.get("script")
    if script is None:
        script = f"#!/bin/sh\n{params['command']}\n"
    if not str(script).startswith("#!"):
        raise CorralError("The script does not begin with '#!' and a program, so Slurm would refuse it; begin it with #!/bin/bash, say.")
    return arguments, str(script)


def job_name(params: dict[str, Any]) -> str:
    """Return the checked name of a job. Raises CorralError."""
    name = printable(str(params["name"]), "name")
    if not name or "," in name:
        raise CorralError(f"The job's name {name!r} is empty or has a comma, which separates names for squeue; choose another.")
    return name


def submitted(text: str) -> int:
    """Return the job's number of what ``sbatch --parsable`` printed. Raises OutputError."""
    lines = text.strip().splitlines()
    number = lines[-1].split(";")[0].strip() if lines else ""
    if not number.isdigit():
        raise output.OutputError(
            f"sbatch printed {text.strip()[:200]!r} and not the job's number; see with squeue whether it was submitted."
        )
    return int(number)


def must_submit(found: Iterable[Job], resubmit: str) -> bool:
    """True when a job has to be submitted; ``resubmit`` is never, failed, ended or always."""
    last = max(found, key=lambda job: job.id, default=None)
    if last is None or resubmit == "always":
        return True
    return last.ended and (resubmit == "ended" or (resubmit == "failed" and not last.succeeded))


def actions(found: Iterable[Job], state: str) -> list[tuple[Job, list[str], str]]:
    """Return the jobs that need a command so that they get into ``state`` (absent, held, released, requeued), with it and the state after it."""
    planned: list[tuple[Job, list[str], str]] = []
    for job in found:
        number = str(job.id)
        if state == "absent" and not job.ended and ("COMPLETING" not in job.state or job.state.split("+")[0] in _WAITS):
            planned.append((job, ["scancel", number], "CANCELLED"))
        elif state == "held" and job.state.startswith("PENDING") and not job.held:
            planned.append((job, ["scontrol", "hold", number], "PENDING (held)"))
        elif state == "released" and job.held:
            planned.append((job, ["scontrol", "release", number], "PENDING"))
        elif state == "requeued" and not job.state.startswith("PENDING"):
            planned.append((job, ["scontrol", "requeue", number], "PENDING"))
    return planned


def _job(row: output.Row) -> Job:
    states = output.strings(row.get("job_state"))
    ended = bool(states) and not _LIVE & set(states)
    code = output.section(row.get("exit_code"))
    returned = output.section(code.get("return_code"))
    signal = output.section(code.get("signal")).get("id")
    finished = ended and bool(returned.get("set"))
    return Job(
        id=output.number(row["job_id"]),
        name=str(row.get("name") or ""),
        user=str(row.get("user_name") or row.get("user_id") or ""),
        state="+".join(states),
        ended=ended,
        held=bool(row.get("hold")) and not ended,  # one that was cancelled while it was held keeps the mark
        exit_code=output.number(returned) if finished else None,
        signal=output.number(signal) if ended else 0,
        reason=str(row.get("state_reason") or ""),
        nodes=str(row.get("nodes") or ""),
        partition=str(row.get("partition") or ""),
        # Slurm 25.05 and later tell the pattern, or nothing where sbatch got none, and the file beside it.
        output=str(row.get("stdout_expanded") or row.get("standard_output") or ""),
        comment=str(row.get("comment") or ""),
        submit_time=output.moment(row.get("submit_time")),
        start_time=output.moment(row.get("start_time")),
        end_time=output.moment(row.get("end_time")) if ended else "",
    )


def _together(number: int, parts: list[Job]) -> Job:
    """Make one of an array's tasks: it has ended when all have, and is as bad as the worst."""
    if len(parts) == 1 and parts[0].id == number:
        return parts[0]
    running = [job for job in parts if not job.ended]
    failed = [job for job in parts if job.ended and not job.succeeded]
    shown = (running or failed or parts)[0]
    codes = [job.exit_code for job in parts if job.exit_code is not None]
    return Job(
        **{
            **asdict(shown),
            "id": number,
            "ended": not running,
            "held": any(job.held for job in parts),
            "exit_code": max(codes) if codes and not running else None,
            "nodes": hostlist.compress({name for job in parts for name in hostlist.expand(job.nodes)}),
            "tasks": len(parts),
        }
    )
