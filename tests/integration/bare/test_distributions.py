# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jails that are another distribution than the pods: Debian's release before theirs, with an older C library; and one with musl and busybox, in which
nothing is that a program of Debian needs. Slurm's programs bring all of theirs along."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import images
from .hosts import CONTROLLER, JAIL, NODES, OLD_JAIL, PLUGIN, Cluster, cluster

pytestmark = pytest.mark.long
JAILS = {"default": (JAIL, "bookworm"), "old": (OLD_JAIL, "musl")}


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN), roots=(images.older_root(), images.musl_root())) as made:
        yield made


@pytest.fixture(params=JAILS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_they_are_others_than_the_machines(bare: Cluster) -> None:
    """Else the rest would prove nothing."""
    look = ". /etc/os-release; echo $VERSION_CODENAME"
    assert bare.head.sh(look) not in {"", *(codename for _root, codename in JAILS.values())}
    for name, (_root, codename) in JAILS.items():
        assert bare.head.sh(f"srun -Q -w n1 --jail={name} sh -c '{look}'", user="ada") == codename
    libraries = "ls /lib64/ld-linux* /lib/*/libc.so.6 /usr/lib/*/libc.so.6 2>/dev/null | wc -l"
    assert bare.head.sh(f"srun -Q -w n1 --jail=old sh -c '{libraries}'", user="ada") == "0"


def test_a_program_of_the_jails_own_library_runs_as_its_user(bare: Cluster) -> None:
    assert bare.head.sh("srun -Q -N2 --jail=old hello", user="ada").splitlines() == ["musl says ada"] * 2


def test_steps_have_their_files_and_their_terminal(bare: Cluster, name: str) -> None:
    said = bare.head.sh(f"srun -Q -w n2 --jail={name} -D /home/ada sh -c 'id -un; pwd >of-step; cat /home/ada/of-step'", user="ada")
    assert said.splitlines() == ["ada", "/home/ada"]
    terminal = bare.head.sh(f"script -qec 'srun -Q -w n1 --jail={name} --pty tty' /dev/null </dev/null", user="ada")
    # What script itself types at the end of its input may be echoed before.
    assert terminal.strip().removeprefix("^@").startswith("/dev/pts/"), terminal


def test_slurms_programs_work_in_it(bare: Cluster, name: str) -> None:
    """From a batch script in there: a step, the queue, the nodes, another job; and the word of accounting, which this cluster has none of."""
    root, _codename = JAILS[name]
    bare.head.write(
        f"{root}/home/ada/job.sh",
        "#!/bin/sh\n"
        f"srun -Q -n2 --overcommit --jail={name} id -un\n"
        "squeue -h -j $SLURM_JOB_ID -o %u; sinfo -h -o %P\n"
        f"sbatch -Q --wait --jail={name} -o of-other --wrap 'echo other' && cat of-other\n"
        "scontrol show job $SLURM_JOB_ID | grep -o UserId=ada; sacct 2>&1; sacctmgr --version\n",
    )
    submit = f"sbatch -Q --wait -w n1 --jail={name} -D /home/ada -o of-job --wrap 'sh job.sh'"
    bare.head.sh(submit, user="ada")
    *said, accounting, version = bare.head.read(f"{root}/home/ada/of-job").splitlines()
    assert said == ["ada", "ada", "ada", "main*", "plain", "other", "UserId=ada"]
    assert accounting == "Slurm accounting storage is disabled" and version.startswith("slurm")


def test_slurmstepd_runs_itself_in_it_for_the_tasks_prolog(bare: Cluster, name: str) -> None:
    root, _codename = JAILS[name]
    bare.head.write(f"{root}/home/ada/prolog.sh", "#!/bin/sh\necho export SAID=hello\n", 0o755)
    assert bare.head.sh(f"srun -Q -w n1 --jail={name} --task-prolog=/home/ada/prolog.sh sh -c 'echo $SAID'", user="ada") == "hello"


def test_an_administrator_looks_inside(bare: Cluster, name: str) -> None:
    root, codename = JAILS[name]
    said = bare.machines["n1"].sh(f"/opt/corral/bin/jail-exec jail={root} -- sh -c '. /etc/os-release; echo $VERSION_CODENAME; id -u'")
    assert said.splitlines() == [codename, "0"]
