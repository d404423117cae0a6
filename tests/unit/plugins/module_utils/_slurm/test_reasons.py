# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import reasons


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("corral: jail: the marker is missing", "jail"),
        ("corral: admin: fan", "admin"),
        ("corral: scale-in: 4 to 2", "owned"),
        ("corral: rollout: its pod is replaced by one of the new template when no job is left", "rollout"),
        ("corral: pod: it ended, and the next one has not registered yet", "pod"),
        ("corral:no", "person"),
        ("NO NETWORK ADDRESS FOUND", "no-address"),
        ("NO NETWORK ADDRESS FOUND : Not responding", "no-address"),
        ("Kill task failed", "unkillable"),
        ("batch job complete failure", "batch-failure"),
        ("Prolog error", "prolog"),
        ("Epilog error", "epilog"),
        ("Low RealMemory (reported:24105 < 90.00% of configured:999000)", "memory"),
        ("Low socket*core*thread count, Low CPUs", "cpus"),
        ("Low TmpDisk (100 < 200)", "disk"),
        ("SlurmdSpoolDir is full", "spool-full"),
        ("gres/gpu count reported lower than configured (1 < 2)", "gres"),
        ("Node unexpectedly rebooted", "rebooted"),
        ("Duplicate jobid", "duplicate"),
        ("ResumeTimeout reached", "resume-timeout"),
        ("Reboot ASAP", "reboot"),
        ("Not responding", "silent"),
        ("kernel panic, ask ada", "person"),
        ("", "person"),
    ],
)
def test_every_common_reason_has_a_class(reason: str, key: str) -> None:
    assert reasons.classify(reason).key == key


@pytest.mark.parametrize("kind", [*reasons.OURS, reasons.OWNED, *reasons.SLURM, reasons.PERSON], ids=lambda kind: kind.key)
def test_every_class_says_what_to_do_next(kind: reasons.Kind) -> None:
    places = {name: name for name in ("node", "set", "pod", "namespace", "cluster", "text")}
    assert "{" not in kind.next.format(**places) + kind.explanation.format(**places)
    assert len(kind.next.split()) > 5
    assert not kind.next.endswith(".")


@pytest.mark.parametrize(
    ("reason", "own"),
    [
        ("Not responding", True),
        ("NO NETWORK ADDRESS FOUND : Not responding", True),
        ("Kill task failed", True),
        ("bad fan", False),
        ("bad fan : Not responding", False),
        ("corral: admin: Not responding", False),
        ("corral: pod: it ended, and the next one has not registered yet", True),
        ("", False),
    ],
)
def test_what_slurm_said_by_itself(reason: str, own: bool) -> None:
    assert reasons.slurms_own(reason) is own


@pytest.mark.parametrize(
    ("reason", "passing"),
    [
        ("corral: jail: the marker is missing", True),
        ("corral: start: init script gpus ended with status 1", True),
        ("corral: pod: it ended, and the next one has not registered yet : Not responding", True),
        ("NO NETWORK ADDRESS FOUND", True),
        ("Low RealMemory (reported:24105 < 90.00% of configured:999000)", True),
        ("Low socket*core*thread count, Low CPUs", True),
        ("Low CPUs, Low RealMemory (reported:1 < 100.00% of configured:2) : Not responding", True),
        ("Low TmpDisk", True),
        ("gres/gpu count reported lower than configured (1 < 2)", True),
        ("gpu:h100 count too low (1 < 2), Low CPUs", True),
        ("Low RealMemory, ask ada", False),
        ("Low CPUs, Low spirits", False),
        ("the fan, Low CPUs", False),
        ("Kill task failed", False),
        ("batch job complete failure", False),
        ("corral: admin: fan", False),
        ("corral: admin: Low CPUs", False),
        ("corral: scale-in: 4 to 2", False),
        ("bad fan", False),
        ("", False),
    ],
)
def test_which_drains_end_by_themselves(reason: str, passing: bool) -> None:
    assert reasons.passing(reason) is passing


def test_a_reason_names_its_owner_once() -> None:
    written = reasons.write("admin", " fan 2 is loud ")
    assert written == "corral: admin: fan 2 is loud"
    assert reasons.write("admin", written) == written
    assert (reasons.owner(written), reasons.text(written)) == ("admin", "fan 2 is loud")
    assert reasons.owner("corral: jail: x") == "jail"
    assert reasons.owner("see corral: jail: x") == ""


def test_what_slurmctld_put_behind_a_reason_does_not_make_it_another() -> None:
    assert reasons.says("corral: admin: fan : Not responding", "corral: admin: fan")
    assert not reasons.says("corral: admin: fans", "corral: admin: fan")


@pytest.mark.parametrize(
    ("reason", "drained", "standing"),
    [
        ("fan : Not responding", False, "Not responding"),
        ("fan : Not responding", True, "fan : Not responding"),
        ("NO NETWORK ADDRESS FOUND : Not responding", False, "Not responding"),
        ("corral: pod: it ended : Not responding", False, "Not responding"),
        ("ResumeTimeout reached : Not responding", False, "ResumeTimeout reached : Not responding"),
        ("fan : by ada", False, "fan : by ada"),
        ("fan", False, "fan"),
        ("", False, ""),
    ],
)
def test_what_keeps_a_node_out(reason: str, drained: bool, standing: str) -> None:
    assert reasons.standing(reason, drained) == standing


@pytest.mark.parametrize(
    ("owner", "text", "words"),
    [
        ("admin", "", "give one in 'reason'"),
        ("admin", "corral: admin:", "give one in 'reason'"),
        ("Ad min", "x", "owner 'Ad min'"),
        ("admin", "a\nb", "line break"),
    ],
)
def test_a_bad_reason_is_refused(owner: str, text: str, words: str) -> None:
    with pytest.raises(CorralError, match=words):
        reasons.write(owner, text)
