# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tenancy document may not say, each with its place; a real Slurm has what docs/tenants.md asks for."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema, validate
from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting, tenancy, tenancy_plan

from .test_accounting import recorded

PAGE = Path(__file__).parents[5] / "docs" / "tenants.md"
LIVE = accounting.parse(recorded())


def example() -> dict[str, Any]:
    match = re.search(r"```yaml\n(# tenants\.yml\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert match
    found: dict[str, Any] = yaml.safe_load(match[1])
    return found


def lines(document: Any, *, prune: bool = False, live: accounting.Live = LIVE) -> list[str]:
    return [line.text for line in tenancy_plan.make(tenancy.read(document, prune=prune), live).lines]


def problems(document: Any, *, prune: bool = False) -> list[str]:
    with pytest.raises(tenancy.Problems) as caught:
        lines(document, prune=prune)
    found: list[str] = caught.value.data["problems"]
    return found


def test_the_example_of_the_page_is_what_the_real_slurm_has() -> None:
    assert lines(example()) == ["modify account where name=chemistry cluster=demo set GrpTRES=mem=-1 GrpWall=-1"], "which was set by hand"


def test_the_example_is_the_pages_document_as_an_object() -> None:
    found = yaml.safe_load((PAGE.parents[1] / "examples" / "tenants.yml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("corral.hpc/v1alpha1", tenancy.KIND)
    assert lines(found) == lines(example())
    assert list(validate._structure(found["spec"], schema.tenants_document()["properties"]["spec"], "spec")) == []
    found["spec"]["users"][0]["name"] = "Alice"
    assert problems(found) == ["spec.users[0].name is 'Alice', and Slurm keeps names in lower case; write alice."]
    assert {key: one for key, one in found["spec"].items() if key not in ("cluster", "users")} == {
        key: one for key, one in example().items() if key != "users"
    }


def test_the_definition_has_each_field_and_each_limit_by_its_type() -> None:
    spec = schema.tenants_document()["properties"]["spec"]["properties"]
    items = {name: spec[name]["items"]["properties"] for name in ("qos", "accounts", "users")}
    items["associations"] = items["users"]["associations"]["items"]["properties"]
    wanted = {"qos": tenancy._QOS, "accounts": tenancy._ACCOUNT, "users": tenancy._USER, "associations": tenancy._ASSOCIATION}
    assert {name: set(fields) for name, fields in items.items()} == {name: set(fields) for name, fields in wanted.items()}
    for name, limits in (("qos", accounting.QOS_LIMITS), *((one, accounting.ASSOCIATION_LIMITS) for one in ("accounts", "associations"))):
        defined = items[name]["limits"]["properties"]
        kinds = {
            limit: accounting.TRES
            if "additionalProperties" in one
            else accounting.COUNT
            if one.get("type") == "integer"
            else accounting.MINUTES
            for limit, one in defined.items()
        }
        assert kinds == limits
    assert items["qos"]["preemptMode"]["enum"] == list(tenancy.PREEMPT_MODES)
    assert items["users"]["adminLevel"]["enum"] == list(tenancy.ADMIN_LEVELS)


def test_the_page_has_each_field() -> None:
    text = PAGE.read_text()
    for word in (
        *tenancy._QOS,
        *tenancy._ACCOUNT,
        *tenancy._USER,
        *tenancy._ASSOCIATION,
        *accounting.ASSOCIATION_LIMITS,
        *tenancy.PREEMPT_MODES,
    ):
        assert f"`{word}`" in text, word


Change = Callable[[dict[str, Any]], object]


RESERVATION = {"name": "one", "start": "2027-01-12T06:00:00Z", "duration": 60, "nodes": "ALL", "users": ["root"]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(user=[]), "The document has 'user', which is no field here; users may be meant."),
        *(
            (lambda d, change=change: d.update(reservations=[{**RESERVATION, **change}]), sentence)
            for change, sentence in (
                ({"start": None}, "reservations[0] has no start; write one, such as 2026-01-31T08:00:00Z."),
                ({"start": "now+1hour"}, "reservations[0].start is 'now+1hour', another time in each run; write one such as"),
                ({"start": "soon"}, "reservations[0]: The start 'soon' is no time; write it like"),
                ({"duration": "x"}, "reservations[0]: The duration 'x' is none that Slurm knows;"),
                ({"end": "2027-01-12T07:00:00Z"}, "reservations[0] must have one of end and duration; write one of them."),
                ({"duration": None}, "reservations[0] must have one of end and duration; write one of them."),
                ({"duration": None, "end": "2027-01-12T06:00:30Z"}, "reservations[0].end is not a minute after its start;"),
                ({"nodes": None}, "reservations[0] has neither nodes nor nodeCount;"),
                ({"nodes": "cpu-[0"}, "reservations[0]: "),
                ({"nodes": "cpu-0 users=eve"}, "reservations[0].nodes is 'cpu-0 users=eve'; it must be one word."),
                ({"nodes": None, "nodeCount": 0}, "reservations[0].nodeCount is '0'; it must be a number from 1 on."),
                ({"users": []}, "reservations[0] has neither users nor accounts;"),
                ({"users": "alice"}, "reservations[0].users is not a list of names;"),
                ({"users": ["alice,eve"]}, "reservations[0]: The user 'alice,eve' is no name;"),
                ({"users": ["eve"]}, "reservations[0].users has eve, and there is no user of that name;"),
                ({"accounts": ["-physic"]}, "reservations[0].accounts is physic, and there is no account of that name;"),
                ({"flags": ["MAINT,x"]}, "reservations[0]: The flag 'MAINT,x' is not a flag"),
                ({"name": "a b"}, "reservations[0]: The reservation's name 'a b' has other characters"),
                ({"colour": "red"}, "reservations[0] has 'colour', which is no field here;"),
            )
        ),
        (
            lambda d: d.update(reservations=[dict(RESERVATION), dict(RESERVATION)]),
            "reservations[1].name is one, as reservations[0].name is; there is one reservation of a name, so leave one out.",
        ),
        (lambda d: d.update(users={}), "users is not a list; begin each entry with a dash."),
        (lambda d: d["users"].append("eve"), "users[2] is 'eve' and not a mapping; write name: in front of it."),
        (lambda d: d["users"][0].update(name="Alice"), "users[0].name is 'Alice', and Slurm keeps names in lower case; write alice."),
        (
            lambda d: d["users"][0].update(name="a b"),
            "users[0].name is 'a b'; a name begins with a letter, a digit or _ and has only these and . @ - in it, ",
        ),
        (lambda d: d["users"][0].update(name="x" * 43), "of 43 letters; Slurm tells names apart by 42, so choose a shorter one."),
        (lambda d: d["users"][0].update(name="root"), "users[0].name is root, who is Slurm's own administrator; leave them out."),
        (lambda d: d["users"][0].pop("name"), "users[0].name must be the name of a user; write one."),
        (
            lambda d: d["users"][1].update(name="alice"),
            "users[1].name is alice, as users[0].name is; there is one user of a name, so leave one out",
        ),
        (lambda d: d["accounts"].append({"name": "physics"}), "accounts[3].name is physics, as accounts[1].name is;"),
        (lambda d: d["qos"].append({"name": "high"}), "qos[2].name is high, as qos[0].name is;"),
        (
            lambda d: d["accounts"].append({"name": "root"}),
            "accounts[3].name is root, which is Slurm's own account above all; leave it out,",
        ),
        (
            lambda d: d["users"][1].update(associations=[]),
            "users[1] has no associations, and Slurm has no user without one; give bob an account",
        ),
        (
            lambda d: d["users"][1]["associations"][0].update(account="root"),
            "users[1].associations[0].account is root, whose jobs no limit holds back;",
        ),
        (
            lambda d: d["users"][1]["associations"].append({"account": "physics"}),
            "users[1].associations[2] is user bob in account physics again, as users[1].associations[0] is; leave one out.",
        ),
        (
            lambda d: d["users"][1]["associations"][0].update(account="phsics"),
            "users[1].associations[0].account is phsics, and there is no account of that name; make it first, or correct the name: physics may be meant.",
        ),
        (
            lambda d: d["users"][1].update(defaultAccount="chemistry"),
            "users[1].defaultAccount is chemistry, to which user bob has no association; add one,",
        ),
        (
            lambda d: d["users"][0].update(adminLevel="Admin"),
            "users[0].adminLevel is 'Admin'; it must be one of None, Operator, Administrator,",
        ),
        (
            lambda d: d["accounts"][1].update(parent="nosuch"),
            "accounts[1].parent is nosuch, and there is no account of that name; make it first,",
        ),
        (
            lambda d: d["accounts"][0].update(parent="physics"),
            "accounts[0].parent makes a loop: science is below physics is below science; put one of them below another account.",
        ),
        (
            lambda d: d["accounts"][0].update(parent="hand"),
            "accounts[0].parent makes a loop: science is below hand is below physics is below science;",
        ),
        (lambda d: d["accounts"][1].update(parent="physics"), "accounts[1].parent makes a loop: physics is below physics;"),
        (lambda d: d["accounts"][1].update(coordinators=["eve"]), "accounts[1].coordinators has eve, and there is no user of that name;"),
        (lambda d: d["accounts"][1].update(coordinators=["bob", "bob"]), "accounts[1].coordinators has bob twice; leave one out."),
        (
            lambda d: d["accounts"][1].update(qos=["hihg"]),
            "accounts[1].qos is hihg, and there is no QoS of that name; make it first, or correct the name: high may",
        ),
        (lambda d: d["accounts"][1].update(defaultQos="nosuch"), "accounts[1].defaultQos is nosuch, and there is no QoS of that name;"),
        (
            lambda d: d["accounts"][0].update(qos=["normal"]),
            "users[1].associations[0].defaultQos is scavenger, and what it inherits from account science has only normal; add scavenger to qos",
        ),
        (lambda d: d["qos"][0].update(preempt=["nosuch"]), "qos[0].preempt is nosuch, and there is no QoS of that name;"),
        (
            lambda d: d["qos"][0].update(flags=["DenyLimit"]),
            "qos[0].flags has 'DenyLimit', which is no flag of a QoS; DenyOnLimit may be meant.",
        ),
        (
            lambda d: d["qos"][0].update(preemptMode="kill"),
            "qos[0].preemptMode is 'kill'; it must be one of cluster, cancel, requeue, suspend.",
        ),
        (lambda d: d["qos"][0].update(description='the "best"'), "qos[0].description must be a text of one line without quotes,"),
        (
            lambda d: d["qos"][0].update(description="mine [corral]"),
            "qos[0].description ends with [corral], which is how this collection marks",
        ),
        (lambda d: d["qos"][0].update(graceTime="soon"), "qos[0].graceTime is 'soon'; it must be seconds, or a time such as"),
        (
            lambda d: d["accounts"][1]["limits"].update(GrpSubmitJobs=5),
            "accounts[1].limits has 'GrpSubmitJobs', which is no limit that can be set here; GrpSubmit may be meant.",
        ),
        (
            lambda d: d["accounts"][1]["limits"].update(MaxJobs="many"),
            "accounts[1].limits.MaxJobs is 'many'; it must be a whole number from 0 on.",
        ),
        (
            lambda d: d["accounts"][1]["limits"].update(GrpTRES="cpu=5"),
            "accounts[1].limits.GrpTRES is 'cpu=5'; it must be TRES with numbers, such as",
        ),
        (
            lambda d: d["accounts"][1]["limits"].update(GrpTRES={"gres/tpu": 5}),
            "accounts[1].limits.GrpTRES has 'gres/tpu', which slurmdbd does not count; it counts billing, cpu,",
        ),
        (
            lambda d: d["accounts"][1].update(limits=[]),
            "accounts[1].limits is not a mapping; write it as {MaxJobs: 10, GrpTRES: {cpu: 64}}.",
        ),
        (
            lambda d: d["accounts"][1].update(TRESBillingWeights="CPU=1"),
            "accounts[1] has 'TRESBillingWeights': TRES weights are a partition's (TRESBillingWeights) and the scheduler's (PriorityWeightTRES), so they",
        ),
        (
            lambda d: d["accounts"][1]["limits"].update(GrpTRES={"gres/gpu": 65}),
            "accounts[1].limits.GrpTRES is 65 of gres/gpu and GrpTRES of account science 64, so Slurm would never let it be reached; lower the one or raise",
        ),
        (
            lambda d: d["accounts"][1]["limits"].update(GrpJobs=100),
            "accounts[1].limits.MaxJobs is 200 and GrpJobs of account physics 100, so Slurm would never let it be reached;",
        ),
        (
            lambda d: d["users"][0]["associations"][1]["limits"].update(MaxTRES={"cpu": 4096}),
            "users[0].associations[1].limits.MaxTRES is 4096 of cpu and GrpTRES of account science 2048, so Slurm",
        ),
        (
            lambda d: d["users"][1]["associations"][0]["limits"].update(MaxJobs=501),
            "users[1].associations[0].limits.MaxJobs is 501 and MaxSubmit of user bob 500, so Slurm would never let it be reached;",
        ),
        (
            lambda d: d["qos"][0]["limits"].update(GrpTRES={"gres/gpu": 1}),
            "qos[0].limits.MaxTRESPerUser is 2 of gres/gpu and GrpTRES of QoS high 1, so Slurm would never let it be reached;",
        ),
    ],
)
def test_what_may_not_be(change: Change, sentence: str) -> None:
    document = copy.deepcopy(example())
    change(document)
    found = problems(document)
    assert any(sentence in one for one in found), found


def test_a_document_is_a_mapping() -> None:
    assert problems([]) == ["The document is not a mapping with qos, accounts, users, reservations; write it as docs/tenants.md shows."]


def test_what_prune_takes_can_not_be_referred_to() -> None:
    document = example()
    document["qos"].pop()
    del document["qos"][0]["preempt"]
    assert lines(document)
    assert any(
        "accounts[0].qos is scavenger, which is to be removed, because the document does not name it;" in one
        for one in problems(document, prune=True)
    )


def test_all_problems_are_told_and_many_are_counted() -> None:
    document = example()
    for account in document["accounts"]:
        account["fairshare"] = -1
    with pytest.raises(tenancy.Problems, match=r"accounts\[0\].*\n.*accounts\[1\].*\n.*accounts\[2\].*\nNothing was changed\."):
        lines(document)
    document["users"] = [{"name": f"U{number}", "associations": [{"account": "physics"}]} for number in range(20)]
    with pytest.raises(tenancy.Problems, match=r"There are 13 more like these\.\nNothing was changed\."):
        lines(document)


def test_limits_that_others_have_set_are_theirs() -> None:
    text = recorded().replace("chemistry|||science|corral|40||||||mem=1.50G", "chemistry|||science|corral|40||||||gres/gpu=99")
    assert text != recorded()
    live = accounting.parse(text)
    desired = tenancy.Desired(accounts={"chemistry": tenancy.WantedAccount("account chemistry", {}, description="air")})
    assert [line.text for line in tenancy_plan.make(desired, live).lines] == ['modify account where name=chemistry set Description="air"']


def test_an_unchanged_tenancy_of_thousands_is_nothing_to_do() -> None:
    users = [f"u{number}" for number in range(5000)]
    document = {"users": [{"name": name, "associations": [{"account": "physics"}, {"account": "chemistry"}]} for name in users]}
    text = recorded().replace("== corral users\n", "== corral users\n" + "".join(f"{name}|None|physics\n" for name in users))
    rows = "".join(f"{account}|{name}|||corral|1{'|' * 18}\n" for name in users for account in ("physics", "chemistry"))
    live = accounting.parse(text.replace("== corral accounts\n", f"{rows}== corral accounts\n"))
    assert lines(document, live=live) == []
