# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends of accounts, users, associations and QoS against a slurmdbd of paper: what it is told, how often, and what it is not told."""

from __future__ import annotations

import copy
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, Status, api_error
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurm import tenancy_plan
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import slurmctld, tenants

from .slurmdbd import Slurmdbd

CONNECTION = {"namespace": "demo", "pod": "demo-controller-0", "container": "slurmctld"}
OPTIONS = {**CONNECTION, "objects": False, "path": "", "wait_timeout": 0}
ASSOCIATION = {**CONNECTION, "state": "present", "limits": None, "fairshare": None, "qos": None, "default_qos": None}
ACCOUNT = {**ASSOCIATION, "parent": None, "description": None, "organization": None, "coordinators": None}
QOS = {
    **CONNECTION, "state": "present", "description": None, "priority": None, "flags": None, "preempt": None, "preempt_mode": None, "preempt_exempt_time": None,
    "grace_time": None, "usage_factor": None, "usage_threshold": None, "limit_factor": None, "limits": None,
}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "qos": [
        {"name": "high", "priority": 100, "preempt": ["low"], "limits": {"MaxWall": "1-00:00:00", "MaxTRESPerUser": {"gres/gpu": 2}}},
        {
            "name": "low",
            "description": "Scavenger",
            "preemptMode": "requeue",
            "graceTime": 120,
            "usageFactor": 0.5,
            "preemptExemptTime": "00:05:00",
        },
    ],
    "accounts": [
        {"name": "optics", "parent": "physics", "fairshare": 20, "limits": {"MaxJobs": 50}, "coordinators": ["alice"]},
        {
            "name": "physics",
            "description": "Physics department",
            "organization": "University",
            "qos": ["normal", "high", "low"],
            "limits": {"GrpTRES": {"cpu": 512, "mem": "1536G", "gres/gpu": 16}, "GrpTRESMins": {"cpu": 1000000}},
        },
        {"name": "chemistry"},
    ],
    "users": [
        {
            "name": "alice",
            "adminLevel": "Operator",
            "defaultAccount": "optics",
            "associations": [
                {"account": "physics"},
                {"account": "optics", "limits": {"MaxJobs": 5, "MaxWall": "12:00:00"}, "defaultQos": "high"},
            ],
        },
        {
            "name": "bob",
            "associations": [
                {"account": "chemistry"},
                {"account": "optics"},
                {"account": "chemistry", "partition": "main", "limits": {"MaxJobs": 1}},
            ],
        },
        {"name": "carol", "associations": [{"account": "chemistry"}]},
    ],
}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Slurmdbd:
    paper = Slurmdbd()
    monkeypatch.setattr(tenants, "connected", paper.connected)
    monkeypatch.setattr(slurmctld, "run_in_pod", paper.run_in_pod)
    return paper


@pytest.fixture
def document() -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT)


def converge(document: dict[str, Any], *, prune: bool = False, check: bool = False, **more: Any) -> dict[str, Any]:
    return tenants.tenants({**OPTIONS, "tenants": document, "prune": prune, **more}, check=check, diff=True)


def test_a_document_is_made_once(database: Slurmdbd, document: dict[str, Any]) -> None:
    made = converge(document)
    assert (made["changed"], made["writes"], database.reads, len(database.stdin)) == (True, len(database.lines), 2, 1)
    assert database.users["alice"] == {"AdminLevel": "Operator", "DefaultAccount": "optics"}
    assert database.associations["optics", "", ""]["ParentName"] == "physics"
    assert database.associations["physics", "", ""]["GrpTRES"] == "cpu=512,gres/gpu=16,mem=1572864M"
    assert database.associations["optics", "alice", ""]["MaxWall"] == "12:00:00"
    assert database.accounts["optics"]["coordinators"] == {"alice"}
    assert database.qos["low"]["Description"] == "scavenger [corral]"
    assert "PreemptExemptTime=0-00:05:00" in database.lines[1]
    lines = list(database.lines)
    again = converge(document)
    assert (again["changed"], again["writes"], database.reads, database.lines) == (False, 0, 3, lines)
    assert "diff" not in again


def test_check_mode_says_the_same_and_tells_nothing(database: Slurmdbd, document: dict[str, Any]) -> None:
    planned = converge(document, check=True)
    assert (database.lines, database.reads) == ([], 1)
    made = converge(document)
    assert (planned["changed"], planned["writes"], planned["diff"]) == (made["changed"], made["writes"], made["diff"])


def test_one_limit_is_one_line_and_one_diff(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.lines.clear()
    document["accounts"][1]["limits"]["GrpTRES"]["cpu"] = 600
    result = converge(document)
    assert database.lines == ["modify account where name=physics cluster=demo set GrpTRES=cpu=600"]
    (diff,) = result["diff"]
    assert diff["before"] == {"account physics": {"GrpTRES": {"cpu": 512, "gres/gpu": 16, "mem": 1572864}}}
    assert diff["after"] == {"account physics": {"GrpTRES": {"cpu": 600, "gres/gpu": 16, "mem": 1572864}}}


def test_lines_that_sacctmgr_did_not_read_are_given_again(database: Slurmdbd, document: dict[str, Any]) -> None:
    database.deaf = 2
    made = converge(document)
    assert (made["changed"], made["writes"], database.deaf) == (True, len(database.lines), 0)
    assert not converge(document)["changed"]


@pytest.mark.parametrize(("given", "length", "printed"), [("one\ntwo", 7, "one two\n"), ("ön\ntwo", 7, "ön two\n"), ("one\nt", 7, "")])
def test_sacctmgr_gets_all_lines_or_none(tmp_path: Path, given: str, length: int, printed: str) -> None:
    """One that is cut off could say more than it was to say: delete user where name=alice account=physics."""
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text("#!/bin/sh\nexec xargs\n")
    sacctmgr.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([*tenants.SACCTMGR, str(length)], input=given, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode != 0) == (printed, not printed)


def test_what_the_document_no_longer_says_is_taken_away(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.lines.clear()
    del document["accounts"][1]["limits"], document["users"][0]["associations"][1]["limits"]["MaxWall"], document["users"][0]["adminLevel"]
    document["accounts"][0]["coordinators"] = []
    converge(document)
    assert database.lines == [
        "modify account where name=physics cluster=demo set GrpTRES=cpu=-1,gres/gpu=-1,mem=-1 GrpTRESMins=cpu=-1",
        "modify user where name=alice set AdminLevel=None",
        "modify user where name=alice account=optics cluster=demo partition= set MaxWall=-1",
        "delete coordinator account=optics names=alice",
    ]
    assert not converge(document)["changed"]


def test_users_of_whom_the_same_is_said_share_a_line(database: Slurmdbd) -> None:
    document: dict[str, Any] = {
        "accounts": [{"name": "a"}, {"name": "b"}],
        "users": [{"name": f"u{number}", "associations": [{"account": "a"}, {"account": "b"}]} for number in range(1200)],
    }
    result = converge(document)
    assert result["writes"] == 2 + 3  # 500 names a line
    assert database.lines[2].startswith("add user name=u0,u1,") and " account=a,b " in database.lines[2]
    assert [len(text.splitlines()) for text in database.stdin] == [2, 1, 1, 1]  # 1 000 associations a run
    for user in document["users"]:
        user["associations"][0]["limits"] = {"MaxJobs": 3}
    database.lines.clear()
    assert converge(document)["writes"] == 3


def test_prune_takes_what_was_made_and_leaves_what_others_made(database: Slurmdbd, document: dict[str, Any]) -> None:
    database.by_hand(
        "add account name=chemistry cluster=demo\nadd account name=old cluster=demo\nadd qos name=theirs\nadd user name=zoe account=old cluster=demo"
    )
    converge(document)
    database.by_hand("add user name=zoe account=physics cluster=demo")
    before = dict(database.associations)
    left = {"accounts": [{"name": "physics"}], "users": []}
    assert converge(left)["kept"] == [] and set(database.associations) == set(before), "without prune all stays"
    database.lines.clear()
    result = converge(left, prune=True)
    assert len(database.lines) == result["writes"], "each line once, so none was refused"
    assert not converge(left, prune=True)["changed"]
    assert set(before) - set(database.associations) == {
        ("optics", "", ""), ("optics", "alice", ""), ("optics", "bob", ""), ("physics", "alice", ""), ("chemistry", "bob", ""), ("chemistry", "bob", "main"),
        ("chemistry", "carol", ""),
    }  # fmt: skip
    assert set(database.qos) == {"normal", "theirs"}
    assert set(database.users) == {"root", "zoe"}
    assert result["kept"] == []


def test_what_others_have_below_an_account_keeps_it(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.by_hand("add user name=zoe account=optics cluster=demo QOS=low")
    result = converge({"accounts": [{"name": "chemistry"}]}, prune=True)
    assert [one.partition(",")[0] for one in result["kept"]] == [
        "Account optics stays",
        "Account physics stays",
        "QoS high stays",
        "QoS low stays",
    ]
    assert {("physics", "", ""), ("optics", "", ""), ("optics", "zoe", "")} < set(database.associations)
    assert ("optics", "alice", "") not in database.associations and "low" in database.qos
    assert not converge({"accounts": [{"name": "chemistry"}]}, prune=True)["changed"]


def test_who_loses_the_default_account_gets_one_that_is_left(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.by_hand("add account name=hand cluster=demo\nadd user name=carol account=hand cluster=demo")
    document["users"].pop()
    converge(document, prune=True)
    assert database.users["carol"]["DefaultAccount"] == "hand"
    assert ("chemistry", "carol", "") not in database.associations


def test_a_document_of_nothing_is_not_pruned(database: Slurmdbd) -> None:
    with pytest.raises(CorralError, match="names no account, so prune would remove everything"):
        converge({}, prune=True)
    assert database.reads == 0


def test_accounts_change_places_without_a_loop_on_the_way(database: Slurmdbd) -> None:
    chain = [{"name": "a"}, {"name": "b", "parent": "a"}, {"name": "c", "parent": "b"}]
    converge({"accounts": chain})
    converge({"accounts": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "c"}, {"name": "c"}]})
    assert {name: database.associations[name, "", ""]["ParentName"] for name in "abc"} == {"a": "b", "b": "c", "c": "root"}


def test_a_line_that_is_refused_is_told_and_the_rest_is_done(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.refused["delete user where name=carol"] = "Error with request: Job(s) active, cancel job(s) before remove"
    database.refused["delete user where name=bob,carol"] = "Error with request: Job(s) active, cancel job(s) before remove"
    document["users"] = document["users"][:1]
    with pytest.raises(
        CorralError,
        match=r"slurmdbd refuses 'delete user where name=carol account=chemistry .*Job\(s\) active.*Whatever does not depend on it is done",
    ) as caught:
        converge(document, prune=True)
    assert caught.value.data["changed"] is True
    assert "carol" in database.users and "bob" not in database.users
    with pytest.raises(CorralError) as caught:
        converge(document, prune=True)
    assert caught.value.data["changed"] is False


def test_an_account_stays_when_what_is_below_it_could_not_leave(database: Slurmdbd) -> None:
    converge({"accounts": [{"name": "a"}, {"name": "b", "parent": "a"}]})
    database.refused["modify account where name=b"] = "no"
    with pytest.raises(
        CorralError, match="slurmdbd refuses 'modify account where name=b cluster=demo set parent=root' and 1 lines more: no"
    ):
        converge({"accounts": [{"name": "b"}]}, prune=True)
    assert ("a", "", "") in database.associations
    database.refused.clear()
    assert converge({"accounts": [{"name": "b"}]}, prune=True)["writes"] == 2
    assert ("a", "", "") not in database.associations


def test_a_run_that_breaks_off_may_have_changed_something(
    database: Slurmdbd, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(client: Any, *, command: list[str], **more: Any) -> Output:
        if "sacctmgr -i" in " ".join(command):
            raise ExecError("Could not run sh in pod demo/demo-controller-0: the connection broke; try again.")
        return database.run_in_pod(client, command=command, **more)

    monkeypatch.setattr(slurmctld, "run_in_pod", broken)
    with pytest.raises(CorralError, match=r"Could not change accounts, users and QoS: .*the connection broke") as caught:
        converge(document)
    assert caught.value.data["changed"] is True


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "You are not running a supported accounting_storage plugin",
            "has no accounting, so there are no accounts; add spec.accounting",
        ),
        (
            "sacctmgr: error: Sending PersistInit msg: Connection refused",
            "cannot be asked for accounts, users and QoS: .*Connection refused; see its log",
        ),
    ],
)
def test_a_database_that_can_not_be_asked(
    database: Slurmdbd, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.setattr(slurmctld, "run_in_pod", lambda *_args, **_more: Output(1, "", words))
    with pytest.raises(CorralError, match=sentence):
        converge(document)
    assert database.lines == []


def test_what_sacctmgr_said_of_each_line(database: Slurmdbd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transcript of a real one."""
    text = (Path(__file__).parents[1] / "_slurm" / "recorded" / "refusals.txt").read_text()
    lines = [line.removeprefix("sacctmgr: ") for line in text.splitlines() if line.startswith("sacctmgr: ") and "error:" not in line]
    plan = tenancy_plan.Plan(lines=[tenancy_plan.Line(line) for line in lines if line])
    monkeypatch.setattr(slurmctld, "run_in_pod", lambda *_args, **_more: Output(1, text, ""))
    said = tenants._write(slurmctld.Slurmctld(database, CONNECTION), plan)  # type: ignore[arg-type]
    assert list(said) == lines[:-1]
    assert said[lines[1]] == "Request didn't affect anything Error with request: Data has not changed since time specified"
    assert said["add coordinator account=physics names=nobody"] == "You specified a non-existent user 'nobody'."
    assert "no TRES known by type gres/tpu" in said["modify account where name=physics cluster=demo set GrpTRES=gres/tpu=3"]


def test_nothing_is_told_of_a_document_with_a_mistake(database: Slurmdbd, document: dict[str, Any]) -> None:
    document["users"][2]["associations"][0]["account"] = "chemstry"
    with pytest.raises(
        CorralError,
        match=r"users\[2\]\.associations\[0\]\.account is chemstry, and there is no account of that name; .*chemistry may be meant",
    ):
        converge(document)
    assert database.lines == []


def test_an_account_by_itself(database: Slurmdbd) -> None:
    def account(**options: Any) -> dict[str, Any]:
        return tenants.account({**ACCOUNT, "name": "optics", **options}, check=False, diff=True)

    made = account(description="Lenses", limits={"MaxJobs": 5, "GrpTRES": {"cpu": 8}}, fairshare="7")
    assert made["account"]["limits"] == {"GrpTRES": {"cpu": 8}, "MaxJobs": 5}
    assert (made["account"]["fairshare"], made["account"]["managed"], made["account"]["description"]) == (7, True, "lenses")
    assert not account(limits={"MaxJobs": 5})["changed"], "what is not said stays"
    assert account(limits={"MaxJobs": None})["account"]["limits"] == {"GrpTRES": {"cpu": 8}}
    database.by_hand("add user name=zoe account=optics cluster=demo")
    with pytest.raises(CorralError, match="Account optics stays, for below it there are users zoe"):
        account(state="absent")
    database.by_hand("delete user where name=zoe account=optics cluster=demo")
    assert account(state="absent")["account"] == {}
    assert not account(state="absent")["changed"]
    assert account()["account"]["description"] == "lenses", "the words of an account outlive its place in a cluster"


def test_a_user_by_themselves(database: Slurmdbd) -> None:
    def user(**options: Any) -> dict[str, Any]:
        given = {**CONNECTION, "state": "present", "default_account": None, "admin_level": None, "name": "alice", **options}
        return tenants.user(given, check=False, diff=True)

    database.by_hand("add account name=a cluster=demo\nadd account name=b cluster=demo")
    with pytest.raises(CorralError, match="makes none without an account; say default_account"):
        user()
    assert user(default_account="a", admin_level="Operator")["user"] == {
        "name": "alice", "admin_level": "Operator", "default_account": "a", "accounts": ["a"], "coordinates": [],
    }  # fmt: skip
    assert not user(default_account="a")["changed"]
    assert user(default_account="b")["user"]["accounts"] == ["a", "b"]
    assert user(state="absent")["user"] == {}
    assert not user(state="absent")["changed"]


def test_an_association_by_itself(database: Slurmdbd) -> None:
    def association(**options: Any) -> dict[str, Any]:
        return tenants.association({**ASSOCIATION, "user": "alice", "account": "a", "partition": "", **options}, check=False, diff=True)

    with pytest.raises(CorralError, match=r"user alice\.account is a, and there is no account of that name"):
        association()
    database.by_hand("add account name=a cluster=demo")
    assert association(limits={"MaxWall": "1-0"})["association"]["limits"] == {"MaxWall": 1440}
    assert not association(limits={"MaxWall": 1440})["changed"]
    assert association(partition="main", limits={"MaxJobs": 1})["association"]["partition"] == "main"
    assert association(state="absent", partition="main")["changed"]
    assert ("a", "alice", "") in database.associations
    assert association(state="absent")["association"] == {}


def test_a_qos_by_itself(database: Slurmdbd) -> None:
    def qos(**options: Any) -> dict[str, Any]:
        return tenants.qos({**QOS, "name": "high", **options}, check=False, diff=True)

    made = qos(priority=5, flags=["NoDecay", "DenyOnLimit"], grace_time="60", limits={"MaxWall": "00:30:00"})
    assert (made["qos"]["flags"], made["qos"]["limits"], made["qos"]["description"]) == (
        ["DenyOnLimit", "NoDecay"],
        {"MaxWall": 30},
        "high",
    )
    assert not qos(priority=5)["changed"]
    assert qos(flags=[])["qos"]["flags"] == []
    database.by_hand("add account name=a cluster=demo QOS=high,normal")
    with pytest.raises(CorralError, match="QoS high stays, for account a has it"):
        qos(state="absent")
    database.by_hand("modify account where name=a cluster=demo set QOS=")
    assert qos(state="absent")["qos"] == {}


def test_asking(database: Slurmdbd, document: dict[str, Any]) -> None:
    converge(document)
    database.lines.clear()
    asked = {**CONNECTION, "name": ["optics", "nosuch"]}
    (optics,) = tenants.account_info(asked, check=False, diff=False)["accounts"]
    assert (optics["parent"], optics["coordinators"], optics["limits"], optics["fairshare"]) == ("physics", ["alice"], {"MaxJobs": 50}, 20)
    (alice,) = tenants.user_info({**CONNECTION, "name": ["alice"]}, check=False, diff=False)["users"]
    assert (alice["accounts"], alice["coordinates"]) == (["optics", "physics"], ["optics"])
    assert [one["name"] for one in tenants.qos_info({**CONNECTION, "name": []}, check=False, diff=False)["qos"]] == [
        "normal",
        "high",
        "low",
    ]
    found = tenants.association_info({**CONNECTION, "user": ["bob"], "account": ["chemistry"]}, check=False, diff=False)["associations"]
    assert [one["partition"] for one in found] == ["", "main"]
    assert database.lines == []


def tenants_of(name: str, cluster: str = "demo", **lists: Any) -> dict[str, Any]:
    """An object as a list of the API server has it, which names no kind."""
    return {"metadata": {"name": name}, "spec": {"cluster": cluster, **lists}}


CHEMISTRY = tenants_of("chemistry", accounts=[{"name": "chemistry"}], users=[{"name": "carol", "associations": [{"account": "chemistry"}]}])
PHYSICS = tenants_of("physics", accounts=[{"name": "physics", "parent": "science"}])
OWN = {"accounts": [{"name": "science"}]}


def test_objects_and_the_document_are_one(database: Slurmdbd) -> None:
    database.objects = [PHYSICS, CHEMISTRY, tenants_of("other", "demo2", accounts=[{"name": "music"}])]
    made = converge(OWN, prune=True, objects=True)
    assert (made["changed"], database.requests) == (True, 1)
    assert {key[0] for key in database.associations} == {"root", "science", "physics", "chemistry"}
    assert database.associations["physics", "", ""]["ParentName"] == "science"
    assert not converge(OWN, prune=True, objects=True)["changed"]
    database.objects = [PHYSICS]
    assert converge(OWN, prune=True, objects=True)["changed"]
    assert {key[0] for key in database.associations} == {"root", "science", "physics"}
    assert "carol" not in database.users


def test_the_document_alone_asks_for_no_objects(database: Slurmdbd) -> None:
    database.objects = [PHYSICS]
    converge(OWN)
    assert database.requests == 0
    assert ("physics", "", "") not in database.associations


def test_sentences_name_the_object_and_the_place_in_the_clusters_document(database: Slurmdbd) -> None:
    database.objects = [CHEMISTRY, tenants_of("twin", accounts=[{"name": "chemistry"}, {"name": "optics", "parent": "scince"}])]
    with pytest.raises(CorralError) as caught:
        converge({"accounts": [{"name": "science"}, {"name": "chemistry"}]}, objects=True, path="spec.accounting.tenants")
    assert caught.value.data["problems"] == [
        f"SlurmTenants {name} spec.accounts[0].name is chemistry, as {other}.name is; there is one account of a name, so leave one out or make them one."
        for name, other in (("chemistry", "spec.accounting.tenants.accounts[1]"), ("twin", "SlurmTenants chemistry spec.accounts[0]"))
    ]
    database.objects = database.objects[1:]
    with pytest.raises(CorralError) as caught:
        converge({"accounts": [{"name": "science", "parent": "nosuch"}]}, objects=True, path="spec.accounting.tenants")
    assert [one.partition(",")[0] for one in caught.value.data["problems"]] == [
        "spec.accounting.tenants.accounts[0].parent is nosuch",
        "SlurmTenants twin spec.accounts[1].parent is scince",
    ]
    with pytest.raises(CorralError, match=r"^spec.accounting.tenants has 'user', which"):
        converge({"user": []}, path="spec.accounting.tenants")
    assert database.lines == []


def test_nothing_is_pruned_unless_each_object_was_read(database: Slurmdbd) -> None:
    database.objects = [CHEMISTRY]
    converge(OWN, prune=True, objects=True)
    database.lines.clear()
    database.objects = None
    with pytest.raises(CorralError, match=r"does not know the kind; have an administrator apply .*slurmtenants"):
        converge(OWN, prune=True, objects=True)
    database.objects = []
    with pytest.raises(CorralError, match=r"^spec.accounting.tenants names no account, so prune would remove everything"):
        converge({}, prune=True, objects=True, path="spec.accounting.tenants")
    assert database.lines == []


@pytest.mark.usefixtures("database")
def test_a_dry_run_before_there_is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_args: Any, **_more: Any) -> Output:
        raise api_error(Status(404, reason="NotFound", message="not found"), "run sacctmgr", server="https://here")

    monkeypatch.setattr(slurmctld, "run_in_pod", gone)
    planned = converge(OWN, check=True)
    assert planned["changed"]
    assert "there is no accounting yet" in planned["warnings"][0]
    with pytest.raises(CorralError, match="cannot be asked for accounts"):
        converge(OWN)
    with pytest.raises(CorralError, match=r"accounts\[0\].name is 'Science'"):
        converge({"accounts": [{"name": "Science"}]}, check=True)


def test_slurmdbd_is_waited_for(database: Slurmdbd, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Output(1, "", "slurmdbd: Connection refused"), Output(0, database.shown().replace("root||", "nosuch||"), "")]

    def first(client: Any, **more: Any) -> Output:
        return answers.pop(0) if answers else database.run_in_pod(client, **more)

    monkeypatch.setattr(slurmctld, "run_in_pod", first)
    with pytest.raises(CorralError, match="Connection refused"):
        converge(OWN)
    assert converge(OWN, wait_timeout=5)["changed"]
    assert answers == []


def reserved(name: str, start: float, **more: Any) -> dict[str, Any]:
    when = datetime.fromtimestamp(int(start), UTC).isoformat()
    return {"name": name, "start": when, **({"duration": 60} if "end" not in more else {}), "nodes": "cpu-0", "users": ["alice"], **more}


def test_reservations_are_made_after_their_accounts_and_once(database: Slurmdbd, document: dict[str, Any]) -> None:
    now = time.time()
    document["reservations"] = [
        reserved("later", now + 7200, flags=["MAINT"]),
        reserved("begun", now - 1800, accounts=["physics"], users=None),
        reserved("over", now - 7200),
        reserved("weekly", now - 8 * 86400, flags=["WEEKLY"], nodes=None, nodeCount=2, users=["-bob", "root"]),
    ]
    planned = converge(document, check=True)
    assert database.scontrol == [] and planned["changed"]
    made = converge(document)
    assert (made["diff"], made["writes"]) == (planned["diff"], planned["writes"])
    assert sorted(database.reservations) == ["begun", "later", "weekly"], "what is over is not made"
    assert {one["comment"] for one in database.reservations.values()} == {"corral"}
    later, begun, weekly = database.scontrol
    assert f"starttime=uts{int(now + 7200)}" in later and "duration=60" in later
    assert "starttime=now" in begun and f"endtime=uts{int(now - 1800) + 3600}" in begun
    assert f"starttime=uts{int(now - 8 * 86400) + 14 * 86400}" in weekly, "slurmctld takes no start in the past"
    again = converge(document)
    assert (again["changed"], again["writes"], len(database.scontrol)) == (False, 0, 3)
    document["reservations"][0]["duration"] = 90
    changed = converge(document)
    assert (changed["writes"], database.scontrol[3:]) == (
        1,
        [["scontrol", "update", "reservationname=later", f"endtime=uts{int(now + 7200) + 5400}"]],
    )
    assert list(changed["diff"][0]["after"]) == ["reservation later"]


def test_prune_deletes_the_reservations_that_it_made_and_no_others(database: Slurmdbd, document: dict[str, Any]) -> None:
    theirs = {"flags": "", "users": "root", "accounts": "", "start_time": 1, "end_time": 2, "node_list": "cpu-0"}
    database.reservations = {
        "theirs": {**theirs, "name": "theirs"},
        "sly": {**theirs, "name": "sly", "comment": "x Comment=corral"},
        "alike": {**theirs, "name": "alike", "comment": "corral too"},
    }
    document["reservations"] = [reserved("ours", time.time() + 7200)]
    converge(document)
    del document["reservations"]
    assert not converge(document)["changed"] and "ours" in database.reservations
    converge(document, prune=True)
    assert sorted(database.reservations) == ["alike", "sly", "theirs"]
    assert not converge(document, prune=True)["changed"]


def test_a_reservation_that_somebody_else_made_gets_the_values_and_no_mark(database: Slurmdbd, document: dict[str, Any]) -> None:
    start = int(time.time()) + 7200
    database.reservations["mine"] = {
        "name": "mine", "flags": "", "users": "bob", "accounts": "", "start_time": start, "end_time": start + 3600, "node_list": "cpu-0",
    }  # fmt: skip
    document["reservations"] = [reserved("mine", start)]
    converge(document)
    assert database.scontrol == [["scontrol", "update", "reservationname=mine", "users=alice"]]
    converge({"accounts": document["accounts"], "users": document["users"], "qos": document["qos"]}, prune=True)
    assert "mine" in database.reservations


def test_what_slurmctld_refuses_names_the_place(database: Slurmdbd, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    document["reservations"] = [reserved("one", time.time() + 60, nodes="nope-0")]
    monkeypatch.setattr(database, "reserve", lambda _command: Output(1, "", "Error creating the reservation: Invalid node name specified"))
    monkeypatch.setattr(tenants, "_LEARN", 0.0)
    with pytest.raises(CorralError, match=r"reservation one \(reservations\[0\]\).*Invalid node name") as caught:
        converge(document)
    assert caught.value.data["changed"] is True
    with pytest.raises(CorralError) as caught:
        converge(document)
    assert caught.value.data["changed"] is False
