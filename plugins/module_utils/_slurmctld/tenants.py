# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of slurm_tenants, slurm_account, slurm_user, slurm_qos, slurm_association and of what asks for these.

All read the database in one exec, and write what differs by as few runs of sacctmgr as can be. sacctmgr's exit status says too little: it is 0 when of two
accounts of a user one is not there, when a parent is not, and when an AdminLevel is none. So the database is read again, and what still differs then was
refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Resource
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, NotFound
from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting, reservations, tenancy, tenancy_plan
from ansible_collections.corral.slurm.plugins.module_utils._slurm.accounting import MARK, Key, Live
from ansible_collections.corral.slurm.plugins.module_utils._slurm.tenancy import Desired
from ansible_collections.corral.slurm.plugins.module_utils._slurm.tenancy_plan import Plan
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import (
    COMMAND,
    Refused,
    Slurmctld,
    connected,
    difference,
    wait,
)

# Its prompt repeats each line, and what it prints for that line follows, whichever stream it is for. sacctmgr reads by readline, which may take the
# standard input of an exec for ended before it came (14 times of 960; never when the pipe was full before). And a line that a broken connection cuts off
# may mean more than the whole one. So sacctmgr starts once all lines are there.
SACCTMGR = ["sh", "-c", 'lines=$(cat) && [ "$(printf %s "$lines" | wc -c)" = "$0" ] && printf "%s\\n" "$lines" | sacctmgr -i 2>&1']
_PROMPT = "sacctmgr: "
# A database of hundreds of thousands of associations, or one with much to do; and what a new association took on a machine with much to do, thrice.
_READ = 300.0
_A_ROW = 0.2
# A line may need what one behind it does: the default QoS of users below an account whose QoS become fewer. And sacctmgr does a line wholly or not at all,
# so what is left is given again by user, of so many at most: a job of one of them keeps only that one.
_ROUNDS = 4
_BY_USER = 1000
# Two outputs in one exec; scontrol prints no such line.
_BETWEEN = "#corral"
RESERVATIONS = ["sh", "-c", f"scontrol show reservations --json && echo '{_BETWEEN}' && scontrol show reservations --oneliner"]
# slurmctld may learn of a new account from slurmdbd when sacctmgr has ended.
_LEARN = 10.0

OBJECTS = Resource("corral.hpc", "v1alpha1", tenancy.KIND, "slurmtenants", namespaced=True, builtin=False)

Params = dict[str, Any]


class Absent(Refused):
    """There is no slurmctld, or one without accounting."""


def tenants(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Converge a tenancy document; the parameters are those of the module slurm_tenants."""
    prune, path = bool(params["prune"]), str(params["path"])
    desired = tenancy.read(params["tenants"], prune=prune, path=path)
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        if params["objects"]:
            desired = tenancy.read(params["tenants"], prune=prune, path=path, objects=_objects(client, slurmctld))
        if prune and not desired.accounts:
            raise tenancy.Problems(
                [
                    f"{path or 'The document'} names no account, so prune would remove everything that was ever made; name one, or leave prune out."
                ]
            )
        try:
            _before, plan, _after = converge(slurmctld, lambda _live: desired, check=check, timeout=float(params["wait_timeout"]))
            reserved = _reservations(slurmctld, desired, plan, check=check) if desired.reservations or prune else 0
        except Absent as error:
            if not check:
                raise
            warning = f"It is not known which accounts, users and QoS a run would change, since there is no accounting yet: {error}"
            return {"changed": True, "writes": 0, "kept": [], "warnings": [warning], "requests": client.requests}
        return {**result(plan, diff, "tenants", reserved), "kept": plan.kept, "requests": client.requests}


def _reservations(slurmctld: Slurmctld, desired: Desired, plan: Plan, *, check: bool) -> int:
    """Converge reservations, of which the plan gets what differs; return the number of commands. One of ours that prune takes goes last."""
    text, _line, comments = ask(slurmctld, RESERVATIONS, "its reservations", COMMAND).partition(f"\n{_BETWEEN}\n")
    live = {one.name: one for one in reservations.parse(text)}
    steps: list[tuple[list[str], str]] = []
    now = time.time()
    for name, one in desired.reservations.items():
        known = live.get(name)
        wanted = reservations.current(one.reservation, known, now)
        commands = reservations.commands(known, wanted) if wanted else []
        if wanted and commands:
            before, after = reservations.difference(known, wanted)
            plan.differs(f"reservation {name}", before if known else None, after)
        mark = [] if known else [f"comment={MARK}"]
        steps.extend(([*command, *mark], f"{command[1]} reservation {name} ({one.path})") for command in commands)
    for name in sorted(reservations.commented(comments, MARK) & live.keys() - desired.reservations.keys()) if desired.prune else ():
        plan.differs(f"reservation {name}", {"nodes": live[name].nodes}, None)
        steps.append((["scontrol", "delete", f"reservationname={name}"], f"delete reservation {name}"))
    if not check:
        _carry_out(slurmctld, steps, patient=bool(plan.lines))
    return len(steps)


def _carry_out(slurmctld: Slurmctld, steps: list[tuple[list[str], str]], *, patient: bool) -> None:
    done, until = patient, time.monotonic() + _LEARN
    for command, what in steps:
        while True:
            try:
                slurmctld.execute(command, what)
            except KubeError as error:
                if patient and isinstance(error, Refused) and time.monotonic() < until:
                    time.sleep(1.0)
                    continue
                error.data["changed"] = done
                raise
            done = True
            break


def _objects(client: Client, slurmctld: Slurmctld) -> list[dict[str, Any]]:
    """Return the SlurmTenants of the cluster, by name."""
    what = f"list the SlurmTenants in {slurmctld.namespace}"
    try:
        found = client.items(OBJECTS.path(slurmctld.namespace), what=what, query={})
    except NotFound as error:
        why = "the API server does not know the kind; have an administrator apply playbooks/files/slurmtenants.corral.hpc.yml, or leave objects out."
        raise tenancy.Problems([f"Could not {what}: {why}"]) from error
    own = (one for one in found if (one.get("spec") or {}).get("cluster") == slurmctld.cluster)
    return sorted(own, key=lambda one: str(one["metadata"]["name"]))


def account(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Make, change or remove an account; the parameters are those of the module slurm_account."""
    reader = tenancy.Reader()
    name = reader.name(params["name"], "name", "account")
    named = _words(
        params, parent="parent", description="description", organization="organization", coordinators="coordinators", **_ASSOCIATION
    )
    one = reader.account({"name": name, **named}, f"account {name}", exact=False)
    absent = params["state"] == "absent"
    desired = tenancy.finished(reader, Desired(absent=frozenset({(name, "", "")})) if absent else Desired(accounts={name: one}))
    with connected(params) as client:
        _before, plan, after = converge(Slurmctld(client, params), lambda _live: desired, check=check, keeps=absent)
        own = after.account(name)
        return {**result(plan, diff, f"account {name}"), "account": after.account_dict(own) if own else {}, "requests": client.requests}


def user(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Make, change or remove a user; the parameters are those of the module slurm_user."""
    reader = tenancy.Reader()
    name = reader.name(params["name"], "name", "user")
    level = reader.admin_level(params["admin_level"], "admin_level") if params["admin_level"] is not None else None
    default = reader.name(params["default_account"], "default_account", "account") if params["default_account"] is not None else None
    tenancy.finished(reader, Desired())

    def desired(live: Live) -> Desired:
        held = live.by_user.get(name, [])
        if params["state"] == "absent":
            return Desired(absent=frozenset(one.key for one in held))
        if not held and default is None:
            raise CorralError(f"Slurm has no user {name} and makes none without an account; say default_account. Nothing was changed.")
        found = Desired(users={name: tenancy.WantedUser(f"user {name}", level, default)})
        if default is not None and default not in {one.account for one in held}:
            found.associations[default, name, ""] = tenancy.WantedAssociation(f"user {name}", {})
        return found

    with connected(params) as client:
        _before, plan, after = converge(Slurmctld(client, params), desired, check=check)
        known = after.users.get(name)
        return {**result(plan, diff, f"user {name}"), "user": _user(after, known) if known else {}, "requests": client.requests}


def association(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Make, change or remove a user's association; the parameters are those of the module slurm_association."""
    reader = tenancy.Reader()
    name, partition = reader.name(params["user"], "user", "user"), str(params["partition"])
    key = (reader.name(params["account"], "account", "account"), name, partition)
    path = f"user {name}"
    fields = reader.association_fields(_words(params, **_ASSOCIATION), path, exact=False)
    tenancy.finished(reader, Desired())

    def desired(live: Live) -> Desired:
        if params["state"] == "absent":
            return Desired(absent=frozenset({key} & live.associations.keys()))
        found = Desired(associations={key: tenancy.WantedAssociation(path, fields)})
        if name not in live.users:
            found.users[name] = tenancy.WantedUser(path, default_account=key[0])
        return found

    with connected(params) as client:
        _before, plan, after = converge(Slurmctld(client, params), desired, check=check)
        known = after.associations.get(key)
        return {**result(plan, diff, path), "association": known.to_dict() if known else {}, "requests": client.requests}


def qos(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Make, change or remove a QoS; the parameters are those of the module slurm_qos."""
    reader = tenancy.Reader()
    name = reader.name(params["name"], "name", "QoS")
    one = reader.qos(_words(params, description="description", limits="limits", **_QOS), f"QoS {name}", exact=False)
    absent = params["state"] == "absent"
    desired = tenancy.finished(reader, Desired(absent_qos=frozenset({name})) if absent else Desired(qos={name: one}))
    with connected(params) as client:
        _before, plan, after = converge(Slurmctld(client, params), lambda _live: desired, check=check, keeps=absent)
        known = after.qos.get(name)
        return {**result(plan, diff, f"qos {name}"), "qos": known.to_dict() if known else {}, "requests": client.requests}


def account_info(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Return accounts; the parameters are those of the module slurm_account_info."""
    del check, diff  # nothing is changed in any mode
    return _info(params, "accounts", lambda live: {key[0]: live.account_dict(one) for key, one in live.associations.items() if not key[1]})


def user_info(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Return users; the parameters are those of the module slurm_user_info."""
    del check, diff
    return _info(params, "users", lambda live: {name: _user(live, one) for name, one in live.users.items()})


def qos_info(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Return QoS; the parameters are those of the module slurm_qos_info."""
    del check, diff
    return _info(params, "qos", lambda live: {name: one.to_dict() for name, one in live.qos.items()})


def association_info(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Return users' associations; the parameters are those of the module slurm_association_info."""
    del check, diff
    users, accounts = ({str(name) for name in params[key]} for key in ("user", "account"))

    def wanted(key: Key) -> bool:
        account, user, _partition = key
        return bool(user) and (not users or user in users) and (not accounts or account in accounts)

    with connected(params) as client:
        live = read(Slurmctld(client, params))
        found = [one.to_dict() for key, one in live.associations.items() if wanted(key)]
        return {"changed": False, "associations": found, "requests": client.requests}


_ASSOCIATION = {"fairshare": "fairshare", "limits": "limits", "qos": "qos", "default_qos": "defaultQos"}
_QOS = {
    "priority": "priority",
    "flags": "flags",
    "preempt": "preempt",
    "preempt_mode": "preemptMode",
    "preempt_exempt_time": "preemptExemptTime",
    "grace_time": "graceTime",
    "usage_factor": "usageFactor",
    "usage_threshold": "usageThreshold",
    "limit_factor": "limitFactor",
}


def _words(params: Params, **words: str) -> dict[str, Any]:
    """Return what a task says in the words of the document. A share is text as an option, for it may be a word."""
    found = {word: params[option] for option, word in words.items() if params[option] is not None}
    return {word: int(one) if word == "fairshare" and str(one).isdigit() else one for word, one in found.items()}


def _user(live: Live, known: accounting.User) -> dict[str, Any]:
    coordinates = sorted(one.name for one in live.accounts.values() if known.name in one.coordinators)
    accounts = list(dict.fromkeys(one.account for one in live.by_user.get(known.name, ())))
    return {**known.to_dict(), "accounts": accounts, "coordinates": coordinates}


def _info(params: Params, what: str, found: Callable[[Live], dict[str, Any]]) -> dict[str, Any]:
    names = [str(name) for name in params["name"]]
    with connected(params) as client:
        known = found(read(Slurmctld(client, params)))
        return {
            "changed": False,
            what: [known[name] for name in names if name in known] if names else list(known.values()),
            "requests": client.requests,
        }


def read(slurmctld: Slurmctld) -> Live:
    """Return all that the database has. Raises CorralError."""
    return accounting.parse(ask(slurmctld, accounting.READ, "accounts, users and QoS", _READ))


def ask(slurmctld: Slurmctld, command: list[str], what: str, timeout: float) -> str:
    """Return what a command prints that asks slurmdbd. Raises CorralError: ``what`` completes "slurmctld cannot be asked for"."""
    try:
        return slurmctld.ask(command, what, timeout)
    except KubeError as error:
        if isinstance(error.__cause__, NotFound):
            raise Absent(str(error)) from error
        if "supported accounting_storage plugin" in str(error) or "accounting storage is disabled" in str(error):
            raise Absent(
                f"slurmctld in {slurmctld.ref} has no accounting, so there are no accounts; add spec.accounting to the "
                "cluster's document, and run again.",
            ) from error
        if "persistent connection" in str(error):
            raise KubeError(f"slurmdbd does not answer in {slurmctld.ref}: {error} See whether slurmdbd runs, and its log too.") from error
        raise


def _awaited(slurmctld: Slurmctld, timeout: float) -> Live:
    """Return what is on record, as soon as slurmdbd responds and knows the cluster."""
    live, missing = wait(timeout, lambda: (read(slurmctld), ""), "slurmdbd responds")
    if live is None:
        raise KubeError(missing)
    return live


def converge(
    slurmctld: Slurmctld, desired: Callable[[Live], Desired], *, check: bool, keeps: bool = False, timeout: float = 0.0
) -> tuple[Live, Plan, Live]:
    """Write what differs; return what was there, the plan, and what is there then. ``keeps``: what cannot go is an error."""
    before = _awaited(slurmctld, timeout)
    wanted = desired(before)
    plan = tenancy_plan.make(wanted, before)
    if keeps and plan.kept:
        raise CorralError(" ".join([*plan.kept, "Nothing was changed."]))
    if check or not plan.lines:
        return before, plan, before
    output: dict[str, str] = {}
    left, after = plan, before
    for _round in range(_ROUNDS):
        output |= _write(slurmctld, left)
        written = [line.text for line in left.next]
        after = read(slurmctld)
        left = tenancy_plan.make(wanted, after, 1)
        if not left.lines:
            return before, plan, after
        # Lines that were not even repeated were not read.
        if (output and [line.text for line in left.next] == written) or (len(left.next) > _BY_USER and not left.next[0].last):
            break
    refused = left.lines[0].text
    words = output.get(refused) or " ".join(output.values()) or "it printed nothing"
    more = f" and {len(left.lines) - 1} lines more" if len(left.lines) > 1 else ""
    raise Refused(
        f"slurmdbd refuses '{_short(refused)}'{more}: {_short(words).rstrip('.')}. Whatever does not depend on it is done; correct the cause and run again.",
        data={"changed": tenancy_plan.make(wanted, before, 1).after != left.after},
    )


def _write(slurmctld: Slurmctld, plan: Plan) -> dict[str, str]:
    """Have sacctmgr carry out the lines; return what it printed for each."""
    output: dict[str, str] = {}
    line = ""
    for text, weight in plan.batches():
        try:
            lines = text.rstrip("\n")
            command = [*SACCTMGR, str(len(lines.encode()))]
            done = slurmctld.feed(command, lines, "change accounts, users and QoS", COMMAND + _A_ROW * weight)
        except KubeError as error:
            error.data["changed"] = True  # it may have done all of it
            raise
        for printed in done.stdout.splitlines():
            if printed.startswith(_PROMPT) and not printed.startswith(f"{_PROMPT}error:"):
                line = printed.removeprefix(_PROMPT)
            elif printed.strip():
                output[line] = f"{output.get(line, '')} {' '.join(printed.removeprefix(f'{_PROMPT}error:').split())}".strip()
    return output


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."


def result(plan: Plan, diff: bool, title: str, more: int = 0) -> dict[str, Any]:
    """Return what a task returns of a plan, and of so many writes more."""
    writes = len(plan.lines) + more
    found: dict[str, Any] = {"changed": bool(writes), "writes": writes}
    if diff and writes:
        found["diff"] = difference(title, plan.before, plan.after)
    return found
