# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slurmdbd of paper behind a sacctmgr that does with lines what that of Slurm 24.11.5 was seen to do, its untruths among them."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Status, api_error
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import tenants

Words = dict[str, str]
_COLUMNS = {match[1]: match[2].split(",") for match in re.finditer(r"show (\w+).* format=(\S+)", accounting.READ[2])}
_ASSOCIATION = {"Fairshare": "1"}
_QOS = {"GraceTime": "00:00:00", "PreemptMode": "cluster", "UsageFactor": "1.000000", "Priority": "0"}


class No(Exception):
    """sacctmgr's words of refusal."""


class Slurmdbd:
    """``lines`` are those that sacctmgr has read, ``reads`` counts the looks; ``refused`` has words by the beginning of a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stdin: list[str] = []
        self.reads = self.requests = 0
        self.deaf = 0  # how often it reads nothing of what it is given
        self.refused: dict[str, str] = {}
        # The periods that were asked for, and what jobs have used in each: account, user, QoS, partition and numbers.
        self.periods: list[list[int]] = []
        self.usage: list[str] = []
        self.enforced = "associations,limits,qos"
        self.tres = ["cpu", "mem", "node", "billing", "gres/gpu"]
        self.qos: dict[str, Words] = {"normal": {**_QOS, "Description": "Normal QOS default"}}
        self.users: dict[str, Words] = {"root": {"AdminLevel": "Administrator", "DefaultAccount": "root"}}
        self.accounts: dict[str, dict[str, Any]] = {
            "root": {"description": "default root account", "organization": "root", "coordinators": set()}
        }
        self.associations: dict[tuple[str, str, str], Words] = {
            ("root", "", ""): {**_ASSOCIATION, "QOS": "normal"},
            ("root", "root", ""): dict(_ASSOCIATION),
        }
        # The SlurmTenants that the API server has; None where it does not know the kind.
        self.objects: list[dict[str, Any]] | None = []
        # slurmctld's: the words of each by its name, and the commands that it got.
        self.reservations: dict[str, dict[str, Any]] = {}
        self.scontrol: list[list[str]] = []
        self.access = type("Access", (), {"namespace": "demo"})()

    @contextmanager
    def connected(self, _params: dict[str, Any]) -> Iterator[Slurmdbd]:
        yield self

    def run_in_pod(self, client: Any, *, command: list[str], stdin: bytes | None = None, **_more: Any) -> Output:
        assert client is self
        if command == accounting.READ:
            self.reads += 1
            return Output(0, self.shown(), "")
        if command == tenants.RESERVATIONS:
            text = "\n".join(
                f"ReservationName={name} StartTime=x Users={one['users']} MaxStartDelay=(null) Comment={one.get('comment', '(null)')}"
                for name, one in self.reservations.items()
            )
            return Output(
                0, json.dumps({"reservations": list(self.reservations.values())}) + f"\n#corral\n{text or 'No reservations'}\n", ""
            )
        if command[0] == "scontrol":
            return self.reserve(command)
        if command[0] == "env":
            self.periods.append([int(number) for number in command[6:]])
            return Output(0, self.used(*self.periods[-1]), "")
        assert stdin is not None and command == [*tenants.SACCTMGR, str(len(stdin))]
        if self.deaf:
            self.deaf -= 1
            return Output(0, "sacctmgr: \n", "")
        self.stdin.append(stdin.decode())
        return self.sacctmgr(stdin.decode())

    def reserve(self, command: list[str]) -> Output:
        self.scontrol.append(command)
        words = dict(word.split("=", 1) for word in command[2:] if "=" in word)
        name = words["reservationname"]
        if any(account and (account, "", "") not in self.associations for account in words.get("accounts", "").split(",")):
            return Output(1, "", "Error creating the reservation: Invalid account or account/partition combination specified")
        if command[1] == "delete":
            del self.reservations[name]
            return Output(0, "", "")
        one = self.reservations.setdefault(name, {"name": name, "flags": "", "users": "", "accounts": "", "partition": "", "features": ""})
        one.update({key: words[key] for key in ("users", "accounts", "comment", "partition") if key in words})
        one["flags"] = words.get("flags", one["flags"])
        one["node_list"], one["node_count"] = (
            words.get("nodes", one.get("node_list", "")),
            int(words.get("nodecnt", one.get("node_count", 1))),
        )
        start = words.get("starttime", "").removeprefix("uts")
        one["start_time"] = int(time.time()) if start == "now" else int(start or one.get("start_time", 0))
        if "endtime" in words:
            one["end_time"] = int(words["endtime"].removeprefix("uts"))
        elif "duration" in words:
            one["end_time"] = one["start_time"] + 60 * int(words["duration"])
        return Output(0, "", "")

    def used(self, *numbers: int) -> str:
        """What the command of slurm_usage prints: the same for each period."""
        sections = zip(numbers[::2], numbers[1::2], strict=True)
        return "".join(
            "\n".join([f"== corral range {start} {end}", f"== corral day {start} {end}", *self.usage, ""]) for start, end in sections
        )

    def get(self, path: str, **_more: Any) -> Any:
        """The controller's pod, read for what explains an error: it is well."""
        self.requests += 1
        conditions = [{"type": "Ready", "status": "True"}]
        return type(
            "Response",
            (),
            {"data": {"metadata": {"name": path.rsplit("/", 1)[-1]}, "status": {"phase": "Running", "conditions": conditions}}},
        )()

    def items(self, path: str, *, what: str, **_more: Any) -> list[dict[str, Any]]:
        assert path == "/apis/corral.hpc/v1alpha1/namespaces/demo/slurmtenants"
        self.requests += 1
        if self.objects is None:
            raise api_error(Status(404, reason="NotFound", message="not found"), what, server="https://here")
        return self.objects

    def by_hand(self, lines: str) -> None:
        """Have somebody else tell lines, which are not noted."""
        before = list(self.lines)
        self.sacctmgr(lines)
        self.lines = before

    def sacctmgr(self, text: str) -> Output:
        """Carry out lines, go on behind one that is refused, and end with the status of the worst."""
        said, code = [], 0
        for line in text.splitlines():
            self.lines.append(line)
            said.append(f"sacctmgr: {line}")
            try:
                for beginning, words in self.refused.items():
                    if line.startswith(beginning):
                        raise No(words)
                said += [f" {words}" for words in self.carry_out(shlex.split(line))]
            except No as error:
                said += [f"sacctmgr: error: {error}"]
                code = 1
        return Output(code, "\n".join([*said, "sacctmgr: "]), "")

    def carry_out(self, words: list[str]) -> list[str]:
        """Do what a line says, and return what is said of it."""
        verb, kind = words[:2]
        given = [word.partition("=") for word in words[2:] if word not in ("where", "set")]
        behind = words.index("set") - 2 if "set" in words else len(words)
        which = {name: value for name, _sign, value in given[: behind - (1 if "where" in words else 0)]} if verb == "modify" else {}
        values = {name: value for name, _sign, value in given if name not in which}
        return getattr(self, f"_{verb}_{kind}")(which, values) or ["done"]

    def shown(self) -> str:
        """What the command READ prints."""
        qos = [self._row("qos", {"Name": name, **one}) for name, one in self.qos.items()]
        users = [self._row("user", {"User": name, **one}) for name, one in self.users.items()]
        associations = [
            self._row("assoc", {"Account": account, "User": user, "Partition": partition, **one})
            for (account, user, partition), one in self.associations.items()
        ]
        accounts = [
            {**one, "name": name, "coordinators": [{"name": user, "direct": True} for user in one["coordinators"]]}
            for name, one in self.accounts.items()
        ]
        sections = {
            "cluster": ["demo"],
            "enforce": [self.enforced],
            "tres": [tres.replace("/", "|") for tres in self.tres],
            "qos": qos,
            "users": users,
            "associations": associations,
        }
        return "".join(
            "\n".join([f"== corral {name}", *lines, ""])
            for name, lines in {**sections, "accounts": [json.dumps({"accounts": accounts})]}.items()
        )

    @staticmethod
    def _row(kind: str, one: Words) -> str:
        return "|".join(one.get(column, "") for column in _COLUMNS[kind])

    def _set(self, one: Words, values: Words, kinds: dict[str, str], unset: Words) -> None:
        for name, value in values.items():
            if name == "Comment":
                one[name] = value.lower()
                continue
            kind = kinds[name]
            if kind == accounting.TRES:
                had = dict(pair.split("=") for pair in one.get(name, "").split(",") if pair)
                had |= dict(pair.split("=") for pair in value.split(","))
                if had.keys() - set(self.tres):
                    raise No("no TRES known by that type")
                one[name] = ",".join(
                    f"{tres}={amount}{'M' * (tres == 'mem')}" for tres, amount in sorted(had.items()) if amount != "-1"
                ).replace("MM", "M")
            elif value == "-1":
                one[name] = unset.get(name, "")
            elif kind == accounting.MINUTES:
                one[name] = f"{int(value) // 60:02}:{int(value) % 60:02}:00"
            elif kind == accounting.SECONDS and value.isdigit():  # a number of PreemptExemptTime is minutes
                seconds = int(value) * (60 if name == "PreemptExemptTime" else 1)
                one[name] = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            else:
                one[name] = value
            if kind == accounting.NAMES and name != "Flags" and set(one[name].split(",")) - self.qos.keys() - {""}:
                raise No("You gave a bad qos")

    def _add_qos(self, _which: Words, values: Words) -> None:
        name = values.pop("name")
        self.qos[name] = dict(_QOS)
        self._modify_qos({"name": name}, values)

    def _modify_qos(self, which: Words, values: Words) -> None:
        one = dict(self.qos[which["name"]])
        one["Description"] = values.pop("Description", one.get("Description", which["name"])).lower()
        self._set(one, values, accounting.QOS_FIELDS, _QOS)
        self.qos[which["name"]] = one

    def _delete_qos(self, _which: Words, values: Words) -> None:
        if any(one.get("DefaultQOS") == values["name"] for one in self.associations.values()):
            raise No("Associations listed below have these as their Default QOS.")
        del self.qos[values["name"]]

    def _add_account(self, _which: Words, values: Words) -> None:
        name, parent = values.pop("name"), values.pop("parent", "root")
        assert values.pop("cluster", "demo") == "demo"
        if (parent, "", "") not in self.associations:
            raise No(f"No parent account '{parent}' on cluster 'demo'")
        words = {word: values.pop(word.capitalize(), name).lower() for word in ("description", "organization")}
        self.accounts.setdefault(name, {**words, "coordinators": set()})
        one = {**_ASSOCIATION, "ParentName": parent, "Comment": values.pop("Comment", "")}
        self._set(one, values, accounting.ASSOCIATION_FIELDS, _ASSOCIATION)
        self.associations[name, "", ""] = one

    def _modify_account(self, which: Words, values: Words) -> None:
        name = which["name"]
        for word in ("description", "organization"):
            if word.capitalize() in values:
                self.accounts[name][word] = values.pop(word.capitalize()).lower()
        one = dict(self.associations[name, "", ""])
        if "parent" in values:
            one["ParentName"] = values.pop("parent")
            above = one["ParentName"]
            while above != "root":
                assert above != name, "slurmdbd hangs from now on"
                above = self.associations[above, "", ""]["ParentName"]
        self._set(one, values, accounting.ASSOCIATION_FIELDS, _ASSOCIATION)
        self.associations[name, "", ""] = one

    def _delete_account(self, _which: Words, values: Words) -> None:
        del self.associations[values["name"], "", ""]

    def _add_user(self, _which: Words, values: Words) -> None:
        users, accounts, partition = values.pop("name").split(","), values.pop("account").split(","), values.pop("partition", "")
        assert values.pop("cluster") == "demo"
        default, comment = values.pop("DefaultAccount", ""), values.pop("Comment", "")
        accounts = [account for account in accounts if (account, "", "") in self.associations]  # the others are skipped, and it ends with 0
        if not accounts:
            raise No("Nothing added.")
        for user in users:
            known = self.users.setdefault(user, {"AdminLevel": "None", "DefaultAccount": default or accounts[0]})
            known["DefaultAccount"] = default or known["DefaultAccount"]
            for account in accounts:
                one = {**_ASSOCIATION, "Comment": comment}
                self._set(one, dict(values), accounting.ASSOCIATION_FIELDS, _ASSOCIATION)
                self.associations[account, user, partition] = one

    def _modify_user(self, which: Words, values: Words) -> None:
        for user in which["name"].split(","):
            if "AdminLevel" in values:
                self.users[user]["AdminLevel"] = values["AdminLevel"]
            elif "DefaultAccount" in values:
                if not any(key[:2] == (values["DefaultAccount"], user) for key in self.associations):
                    raise No("Can't modify because these users aren't associated with new default account")
                self.users[user]["DefaultAccount"] = values["DefaultAccount"]
            else:
                key = (which["account"], user, which["partition"])
                one = dict(self.associations[key])
                self._set(one, dict(values), accounting.ASSOCIATION_FIELDS, _ASSOCIATION)
                self.associations[key] = one

    def _delete_user(self, _which: Words, values: Words) -> None:
        users, accounts = values["name"].split(","), values["account"].split(",")
        partition = values.get("partition")  # without one, those of all
        going = [key for key in self.associations if key[1] in users and key[0] in accounts and partition in (None, key[2])]
        for user in users:
            left = [key for key in self.associations if key[1] == user and key not in going]
            if left and (self.users[user]["DefaultAccount"], user, "") in going:
                raise No("You can not remove the default account of a user")
        for key in going:
            self.associations.pop(key)
        for user in users:
            if not any(key[1] == user for key in self.associations):
                del self.users[user]
                for account in self.accounts.values():
                    account["coordinators"].discard(user)

    def _add_coordinator(self, _which: Words, values: Words) -> None:
        self.accounts[values["account"]]["coordinators"].update(values["names"].split(","))

    def _delete_coordinator(self, _which: Words, values: Words) -> None:
        self.accounts[values["account"]]["coordinators"].difference_update(values["names"].split(","))
