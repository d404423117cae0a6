# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_job and slurm_job_info.

sbatch --uid is root's alone, and slurmctld's pod has no root; so a job is submitted in a login pod, by its user's own id. Everything else
is slurmctld's pod's business: SlurmUser may cancel, hold and requeue what it likes.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, KubeError, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, jobs
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import COMMAND, Slurmctld, connected, difference, wait

# Components whose pods have Slurm's clients, their configuration and root; the first that has a ready pod is taken.
_PLACES = (("login", "sshd"), ("worker", "slurmd"))
_OUTPUT = 4096

# As the user, with a session's environment and nothing of the pod's: user, folder ("" is home), program, words.
_AS_USER = """
entry=$(getent passwd "$1") || { echo "the cluster has no user $1" >&2; exit 66; }
IFS=: read -r name _ uid gid _ home shell <<END
$entry
END
[ "$uid" -ge 500 ] || { echo "$1 is an account of the pod and none of the cluster's users" >&2; exit 66; }
cd / ; folder=${2:-$home}; program=$3; shift 3
[ "$program" != sbatch ] || set -- --chdir="$folder" "$@"
exec setpriv --reuid="$uid" --regid="$gid" --init-groups --inh-caps=-all --no-new-privs \\
  env -i HOME="$home" USER="$name" LOGNAME="$name" SHELL="$shell" PATH=/usr/local/bin:/usr/bin:/bin "$program" "$@"
"""


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Submit a job, or cancel, hold, release or requeue jobs; the parameters are those of the module slurm_job."""
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        action = _present if params["state"] == "present" else _other
        result = action(slurmctld, params, check=check, diff=diff)
        return {**result, "requests": client.requests}


def info(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return jobs; the parameters are those of the module slurm_job_info."""
    del check, diff  # nothing is changed in any mode
    filters: list[str] = []
    for option, flag in (("job_id", "jobs"), ("name", "name"), ("user", "user"), ("partition", "partition"), ("states", "states")):
        values = [str(value) for value in params.get(option) or ()]
        if any("," in value or not value for value in values):
            raise CorralError(f"The option {option} has {values!r}: one name an item, and no commas in it.")
        if values:
            filters.append(f"--{flag}={','.join(values)}")
    names = hostlist.expand(str(params.get("nodes") or ""))
    if names:
        filters.append(f"--nodelist={hostlist.compress(names)}")
    with connected(params) as client:
        warnings: list[str] = []
        try:
            found = _found(Slurmctld(client, params), *filters)
            if params.get("removed_users"):
                warnings = jobs.of_removed_users(found)
        except CorralError as error:
            if not params.get("removed_users"):
                raise
            users = ", ".join(params["user"])
            found, warnings = [], [f"It is not known which jobs are of {users}, whom the document no longer has: {error}"]
        result: dict[str, Any] = {"changed": False, "jobs": [job.to_dict() for job in found], "requests": client.requests}
        return {**result, "warnings": warnings} if warnings else result


def _present(slurmctld: Slurmctld, params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    name, user = jobs.job_name(params), str(params["user"])
    words, script = jobs.submission(params)
    found = _found(slurmctld, f"--name={name}", f"--user={user}")
    changed = jobs.must_submit(found, str(params["resubmit"]))
    job = max(found, key=lambda one: one.id, default=None)
    place: tuple[str, str] | None = None
    if changed:
        job = None
        if not check:
            place = _place(slurmctld, params)
            done = _as_user(slurmctld, place, user, str(params.get("chdir") or ""), ["sbatch", *words], script.encode())
            if done.code != 0:
                raise KubeError(f"Could not submit job {name} as {user}: {done.summary.rstrip('.')}.")
            job = _one(slurmctld, jobs.submitted(done.stdout))
    text = ""
    if job is not None and params["wait"] and not check:
        job, text = _ended(slurmctld, params, job, changed, place)
    result: dict[str, Any] = {"changed": changed, "job": job.to_dict() if job else {}, "output": text}
    if diff and changed:
        result["diff"] = difference(f"job {name} of {user}", {}, {"sbatch": words, "script": script})
    return result


def _ended(
    slurmctld: Slurmctld, params: dict[str, Any], job: jobs.Job, changed: bool, place: tuple[str, str] | None
) -> tuple[jobs.Job, str]:
    """Wait for a job's end and return it with the end of its output. Raises CorralError for one that failed, unless that is fine."""

    def probe() -> tuple[jobs.Job, str]:
        now = _one(slurmctld, job.id)
        return now, "" if now.ended else now.summary

    timeout = float(params["wait_timeout"])
    last, missing = wait(timeout, probe, "waiting")
    data = {"changed": changed, "job": (last or job).to_dict()}
    if missing or last is None:
        raise WaitTimeout(
            f"After {timeout:g} s {missing.rstrip('.')}; run again to go on waiting, or cancel it with state: absent.", data=data
        )
    text = _output(slurmctld, params, last, place)
    if not last.succeeded and params["must_succeed"]:
        said = " | ".join(line.strip() for line in text.splitlines()[-5:] if line.strip())[-500:]
        lines = f"; its last lines: {said}" if said else ""
        hint = "" if changed else "; it was submitted before, and resubmit: failed submits it again"
        words = last.summary
        raise CorralError(f"{words[0].upper()}{words[1:].rstrip('.')}{lines}{hint}.", data={**data, "output": text})
    return last, text


def _other(slurmctld: Slurmctld, params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    filters: list[str] = []
    if params.get("job_id") is not None:
        filters.append(f"--jobs={int(params['job_id'])}")
    if params.get("name") is not None:
        filters.append(f"--name={jobs.job_name(params)}")
    if params.get("user") is not None:
        filters.append(f"--user={params['user']}")
    found = _found(slurmctld, *filters)
    state = str(params["state"])
    if not found and state != "absent":
        raise CorralError(
            f"slurmctld knows no such job ({' '.join(filters)}), so there is none to be {state}; it forgets jobs some minutes after their end."
        )
    if state == "requeued":  # of jobs that had one name after another, the last is meant
        found = found[-1:]
    planned = jobs.actions(found, state)
    if not check:
        slurmctld.execute_each((command, f"have job {job.id} ({job.name} of {job.user}) {state}") for job, command, _after in planned)
        if planned:
            found = _found(slurmctld, *filters)
        if params["wait"] and state == "absent":
            found = _gone(slurmctld, filters, float(params["wait_timeout"]), bool(planned))
    result: dict[str, Any] = {
        "changed": bool(planned),
        "job": found[-1].to_dict() if found else {},
        "jobs": [job.to_dict() for job in found],
        "output": "",
    }
    if diff and planned:
        result["diff"] = difference(
            "jobs", {str(job.id): job.state for job, _command, _after in planned}, {str(job.id): after for job, _command, after in planned}
        )
    return result


def _gone(slurmctld: Slurmctld, filters: list[str], timeout: float, changed: bool) -> list[jobs.Job]:
    def probe() -> tuple[list[jobs.Job], str]:
        found = _found(slurmctld, *filters)
        return found, "; ".join(job.summary for job in found if not job.ended)

    found, missing = wait(timeout, probe, "waiting")
    if missing:
        raise WaitTimeout(
            f"After {timeout:g} s not all cancelled jobs have ended: {missing.rstrip('.')}; run again to go on waiting.",
            data={"changed": changed},
        )
    return found or []


def _found(slurmctld: Slurmctld, *filters: str) -> list[jobs.Job]:
    """Return jobs; an id that slurmctld has forgotten gives none."""
    try:
        return slurmctld.read_jobs(*filters)
    except KubeError as error:
        if "Invalid job id" in str(error):
            return []
        raise


def _one(slurmctld: Slurmctld, number: int) -> jobs.Job:
    found = _found(slurmctld, f"--jobs={number}")
    if not found:
        raise KubeError(f"slurmctld has forgotten job {number}, which ended more than MinJobAge seconds ago; how it ended is not known.")
    return found[-1]


def _place(slurmctld: Slurmctld, params: dict[str, Any]) -> tuple[str, str]:
    """Return the pod and the container in which jobs are submitted."""
    if params.get("submit_pod"):
        return str(params["submit_pod"]), str(params["submit_container"])
    pods = slurmctld.cluster_pods("")
    for component, container in _PLACES:
        for pod in pods:
            metadata = pod["metadata"]
            if (
                (metadata.get("labels") or {}).get("app.kubernetes.io/component") == component
                and not metadata.get("deletionTimestamp")
                and not describe(pod)
            ):
                return str(metadata["name"]), container
    raise KubeError(
        f"No login pod and no worker pod of the cluster of {slurmctld.ref} is ready, and a job is submitted from there; see why, or name one in 'submit_pod'."
    )


def _as_user(
    slurmctld: Slurmctld, place: tuple[str, str], user: str, folder: str, command: list[str], stdin: bytes | None = None
) -> Output:
    return run_in_pod(
        slurmctld.client,
        namespace=slurmctld.namespace,
        pod=place[0],
        container=place[1],
        command=["sh", "-c", _AS_USER, "sh", user, folder, *command],
        stdin=stdin,
        timeout=COMMAND,
    )


def _output(slurmctld: Slurmctld, params: dict[str, Any], job: jobs.Job, place: tuple[str, str] | None) -> str:
    """Return the end of a job's output as its user may read it; "" where that cannot be had."""
    if job.tasks > 1 or not job.output.startswith("/") or job.output == "/dev/null":
        return ""
    try:
        place = place or _place(slurmctld, params)
        done = _as_user(slurmctld, place, job.user, "/", ["tail", "-c", str(_OUTPUT), "--", f"/mnt/jail{job.output}"])
    except (ExecError, KubeError):
        return ""
    return done.stdout if done.code == 0 else ""
