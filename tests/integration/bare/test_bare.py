# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jail on a classic Slurm cluster, as docs/bare.md sets it up: munged, slurmctld and slurmd on machines, and nothing of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from .hosts import JAIL, NODES, OLD_JAIL, PLAIN, Cluster, Machine, eventually

WHERE = "hostname; id -u; if test -e /etc/corral-jail; then echo jail; else echo machine; fi; grep VARIANT /etc/os-release || true"


@pytest.fixture(autouse=True)
def at_rest(bare: Cluster) -> None:
    eventually(lambda: bare.states() == ["idle"] and not bare.head.sh("squeue -h"), "all nodes idle and no job left before the test")


@pytest.mark.parametrize(("user", "uid"), [("ada", "10001"), (None, "0")])
def test_srun_runs_in_the_jail(bare: Cluster, user: str | None, uid: str) -> None:
    assert bare.head.sh(f"srun -Q -w n1 sh -c '{WHERE}'", user=user).splitlines() == ["n1", uid, "jail", "VARIANT=jail"]


def test_without_the_plugin_a_job_runs_on_the_machine(bare: Cluster) -> None:
    """What the other tests would see if the plugin did nothing."""
    plain = bare.machines[PLAIN]
    assert plain.sh(f"srun -Q -p plain sh -c '{WHERE}'", user="ada").splitlines() == ["plain", "10001", "machine"]


@pytest.mark.parametrize(("user", "uid"), [("ada", "10001"), (None, "0")])
def test_a_batch_job_and_its_files_live_in_the_jail(bare: Cluster, user: str | None, uid: str) -> None:
    """The working directory and the directory of the output are the jail's alone. Steps of the batch script are started from in there."""
    name = user or "root"
    script = f'#!/bin/sh\\n{WHERE}; pwd; srun sh -c "echo step; cat /etc/corral-jail" >{name}.steps\\n'
    bare.head.sh(f"printf '{script}' | sbatch -Q -w n2 --chdir=/srv/project --output=/srv/project/{name}.out", user=user)
    eventually(lambda: not bare.head.sh("squeue -h"), "the job has run")
    project = f"{JAIL}/srv/project"
    assert bare.head.read(f"{project}/{name}.out").splitlines() == ["n2", uid, "jail", "VARIANT=jail", "/srv/project"]
    assert bare.head.read(f"{project}/{name}.steps").splitlines()[0] == "step"
    assert bare.head.sh(f"stat -c %u {project}/{name}.out") == uid
    assert not bare.machines["n2"].sh("ls /srv")


def test_all_nodes_see_one_jail(bare: Cluster) -> None:
    bare.head.sh("srun -Q -N2 --chdir=/srv/project sh -c 'hostname >of.$(hostname)'", user="ada")
    for node in NODES:
        assert bare.head.sh(f"srun -Q -w {node} --chdir=/srv/project cat of.n1 of.n2", user="ada").splitlines() == ["n1", "n2"]


def test_people_in_the_jail_start_jobs_from_there(bare: Cluster) -> None:
    """As a login session does, once PAM has put it there."""
    command = ["jail-exec", f"jail={JAIL}", "spool=none", "--", "setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"]
    inside = bare.head.run(f"/opt/corral/bin/{command[0]}", *command[1:], "sh", "-c", "cd /srv/project; srun -Q -w n1 pwd; sinfo -h -o %P")
    assert inside.stdout.splitlines() == ["/srv/project", "main*", "plain"]


def test_tmp_is_the_jobs_own_and_goes_with_it(bare: Cluster) -> None:
    node = bare.machines["n1"]
    steps = "srun touch /tmp/mine /dev/shm/mine; srun ls /tmp /dev/shm"
    assert bare.head.sh(f"salloc -Q -w n1 sh -c '{steps}'", user="ada").split().count("mine") == 2
    assert "mine" not in bare.head.sh("srun -Q -w n1 ls /tmp /dev/shm", user="ada")
    assert "mine" not in node.sh("ls /tmp")
    eventually(lambda: node.sh("ls /var/spool/slurmd/corral/tmp /dev/shm/corral").count("\n") == 2, "nothing is left of jobs")


# What this process may do, what a set-uid program of root's may that it starts, and where both are.
LOOK = """\
#!/bin/sh
{ grep -E '^(Uid|Cap)' /proc/self/status; /opt/root-grep -E '^(Uid|Cap)' /proc/self/status; readlink /proc/self/ns/mnt; } >/var/tmp/${0##*/}
"""
SYS_ADMIN = 1 << 21


@pytest.mark.parametrize(("user", "option"), [("ada", ""), (None, ""), ("bob", "--no-jail")])
def test_what_runs_around_a_task_is_confined_as_the_task_is(bare: Cluster, user: str | None, option: str) -> None:
    """Slurm forks the task's epilog from slurmstepd, and calls no plugin before its exec."""
    node = bare.machines["n1"]
    root = "" if option == "--no-jail" else JAIL
    scripts = {name: f"/opt/look-{name}" for name in ("task", "prolog", "epilog")}
    for path in scripts.values():
        node.write(f"{root}{path}", LOOK, 0o755)
    node.sh(f"install -m 4755 /usr/bin/grep {root}/opt/root-grep; rm -f {root}/var/tmp/look-*")
    around = f"--task-prolog={scripts['prolog']} --task-epilog={scripts['epilog']}"
    bare.head.sh(f"srun -Q -w n1 {option} {around} {scripts['task']}", user=user)
    seen = {name: node.read(f"{root}/var/tmp/look-{name}").splitlines() for name in scripts}
    assert seen["epilog"] == seen["prolog"] == seen["task"]
    as_root = dict(line.split(":\t") for line in seen["epilog"][6:12])
    assert as_root["Uid"].split()[1] == "0" and int(as_root["CapEff"], 16)
    assert not int(as_root["CapEff"], 16) & SYS_ADMIN and not int(as_root["CapBnd"], 16) & SYS_ADMIN


@pytest.mark.parametrize("option", ["--get-user-env", "--export=NONE", "--export=GIVEN=too"])
def test_the_users_login_files_are_read_in_the_jail(bare: Cluster, option: str) -> None:
    """slurmd has a login shell tell a batch job's environment, and starts it as root."""
    look = "ls -d /etc/corral-jail /usr/sbin/slurmd 2>/dev/null; grep CapBnd /proc/self/status"
    bare.head.write(f"{JAIL}/home/ada/.profile", f"{{ {look}; }} >~/seen; export OF_PROFILE=here\n")
    submit = f"sbatch -Q --wait -w n1 -D /home/ada -o out {option} --wrap '{look}; echo $OF_PROFILE$GIVEN'"
    try:
        bare.head.sh(submit, user="ada")
        task = bare.head.read(f"{JAIL}/home/ada/out").splitlines()
        assert task[-1] == "here" + option.partition("GIVEN=")[2]
        assert bare.head.read(f"{JAIL}/home/ada/seen").splitlines() == task[:-1] and task[0] == "/etc/corral-jail"
    finally:
        bare.head.sh(f"rm -f {JAIL}/home/ada/.profile {JAIL}/home/ada/seen {JAIL}/home/ada/out")


def test_a_named_jail(bare: Cluster) -> None:
    assert bare.head.sh("srun -Q -w n1 --jail=old sh -c 'cat /etc/corral-jail; echo $CORRAL_JAIL'", user="ada").splitlines() == [
        '{"version": 1, "image": "old:1"}',
        "old@old:1",
    ]
    refused = bare.head.run("srun", "-Q", "-w", "n1", "--jail=new", "hostname", user="ada", check=False)
    assert refused.returncode != 0 and "new" in refused.stderr and "n1\n" not in refused.stdout


def test_an_administrator_looks_inside(bare: Cluster) -> None:
    node = bare.machines["n2"]
    said = node.sh(f"/opt/corral/bin/jail-exec jail={JAIL} -- sh -c 'grep VARIANT /etc/os-release; id -u; ls /proc/1/root 2>&1 || true'")
    assert said.splitlines()[:2] == ["VARIANT=jail", "0"] and "Permission denied" in said
    assert node.run("/opt/corral/bin/jail-exec", f"jail={JAIL}", "--", "sh", "-c", "exit 7", check=False).returncode == 7


@pytest.fixture
def without_marker(bare: Cluster) -> Iterator[Callable[[], object]]:
    """The jail's marker is away until the test, or its end, brings it back."""

    def mend() -> None:
        bare.head.sh(f"test -e {JAIL}/etc/corral-jail || mv {JAIL}/etc/corral-jail.away {JAIL}/etc/corral-jail")

    bare.head.sh(f"mv {JAIL}/etc/corral-jail {JAIL}/etc/corral-jail.away")
    yield mend
    mend()
    bare.head.sh("scancel -u ada,root; scontrol update nodename=n1,n2 state=resume", check=False)


def sentences(node: Machine) -> int:
    return node.read("/var/spool/slurmd.log").count(f"corral_jail: {JAIL} has no marker file etc/corral-jail")


@pytest.mark.usefixtures("without_marker")
def test_without_a_jail_no_step_runs_anywhere(bare: Cluster) -> None:
    before = sentences(bare.machines["n1"])
    refused = bare.head.run("srun", "-Q", "-w", "n1", "--jail=default", "sh", "-c", "echo ran; touch /tmp/ran", check=False)
    assert refused.returncode != 0 and "srun: error: task 0 launch failed: " in refused.stderr and "ran" not in refused.stdout
    assert bare.machines["n1"].run("test", "-e", "/tmp/ran", check=False).returncode == 1
    assert sentences(bare.machines["n1"]) == before + 1
    eventually(lambda: bare.states() == ["idle"], "the node stays in service")
    assert "old:1" in bare.head.sh("srun -Q -w n1 --jail=old cat /etc/corral-jail"), "the other jail is not affected"


def test_without_a_jail_a_batch_job_waits_and_its_node_is_drained(bare: Cluster, without_marker: Callable[[], object]) -> None:
    job = bare.head.sh("sbatch --parsable -w n2 --chdir=/srv/project --output=waited.out --wrap hostname", user="ada")
    eventually(lambda: "batch job complete failure" in bare.head.sh("sinfo -h -R -n n2 -o %E"), "n2 drained")
    eventually(lambda: "PENDING" in bare.head.sh(f"squeue -h -j {job} -o %T"), "the job is queued again")
    without_marker()
    # A job that was requeued has to wait for two minutes by itself: slurmd refuses a credential of the second in which the last one was revoked.
    bare.head.sh(f"scontrol update nodename=n2 state=resume; scontrol update jobid={job} starttime=now+10")
    # slurmctld looks but once a minute.
    log = "grep -v 'debug\\|error: Node' /var/spool/slurmctld/slurmctld.log | tail -n 30"
    look = f"scontrol show job {job}; scontrol show node n2 --oneliner; {log}"
    eventually(lambda: "JobState=COMPLETED" in bare.head.sh(f"scontrol show job {job}"), "the job has run", 180, lambda: bare.head.sh(look))
    assert bare.head.read(f"{JAIL}/srv/project/waited.out") == "n2\n"


def test_the_health_check_takes_a_node_out_and_back(bare: Cluster, without_marker: Callable[[], object]) -> None:
    node = bare.machines["n1"]
    node.sh("/usr/local/lib/corral/health.sh")
    assert f"corral: jail: {JAIL} has no marker file" in bare.head.sh("sinfo -h -R -n n1 -o %E")
    assert bare.head.sh("sinfo -h -n n1 -o %t").startswith("drain")
    without_marker()
    node.sh("/usr/local/lib/corral/health.sh")
    eventually(lambda: bare.head.sh("sinfo -h -n n1 -o %t") == "idle", "n1 in service again")


def test_the_second_jail_is_another_directory(bare: Cluster) -> None:
    """Else the test of its name would prove nothing."""
    assert bare.head.sh(f"stat -c %d:%i {JAIL}/etc {OLD_JAIL}/etc").splitlines()[0] != bare.head.sh(f"stat -c %d:%i {OLD_JAIL}/etc")


def test_a_user_whom_nobody_knows_is_refused_with_a_sentence(bare: Cluster) -> None:
    command = ["setpriv", "--reuid=10999", "--regid=10999", "--clear-groups", "--", "srun", "-Q", "-w", "n1", "sh", "-c", "echo ran"]
    refused = bare.head.run(*command, check=False)
    assert refused.returncode != 0 and "ran" not in refused.stdout
    assert "Invalid user id" in refused.stderr or "credential" in refused.stderr, refused.stderr
    eventually(lambda: bare.states() == ["idle"], "the node stays in service")


@contextmanager
def running(bare: Cluster) -> Iterator[Callable[[], str]]:
    """A step on n1 that waits; what is given ends it and returns what it printed then: its jail's marker, and what is in its /tmp."""
    bare.head.sh(f"rm -f {JAIL}/srv/project/go {JAIL}/srv/project/up")
    step = "touch /tmp/mine up; until test -e go; do sleep 0.2; done; cat /etc/corral-jail; ls /tmp"
    submit = f"sbatch --parsable -w n1 -D /srv/project -o held.out --wrap 'srun sh -c \"{step}\"'"
    job = bare.head.sh(submit, user="ada")
    eventually(lambda: bare.head.run("test", "-e", f"{JAIL}/srv/project/up", check=False).returncode == 0, "the step runs")

    def end() -> str:
        bare.head.sh(f"touch {JAIL}/srv/project/go")
        eventually(lambda: "JobState=COMPLETED" in bare.head.sh(f"scontrol show job {job}"), "the job has ended well")
        return bare.head.read(f"{JAIL}/srv/project/held.out")

    try:
        yield end
    finally:
        bare.head.sh("scancel -u ada", check=False)


def test_what_slurmstepd_starts_gets_no_way_out(bare: Cluster) -> None:
    """It keeps what it works with, and its children lose it when they become a program."""
    node = bare.machines["n1"]
    with running(bare):
        said = node.sh("for step in $(pgrep -x slurmstepd); do grep -E 'Cap(Eff|Bnd)' /proc/$step/status; done").split()
        effective, bounding = ({int(word, 16) & SYS_ADMIN for word in said[start::4]} for start in (1, 3))
        assert effective == {SYS_ADMIN} and bounding == {0}, said


def slurmd_of(node: Machine) -> str:
    return node.sh("pgrep -x slurmd")


def test_slurmd_starts_anew_under_a_step(bare: Cluster) -> None:
    node = bare.machines["n1"]
    with running(bare) as end:
        before = slurmd_of(node)
        node.sh(f"kill {before}; while pgrep -x slurmd >/dev/null; do sleep 0.1; done; slurmd -N n1 -d /opt/corral/sbin/slurmstepd")
        assert slurmd_of(node) != before
        assert (
            bare.head.sh("srun -Q --overcommit -w n1 cat /etc/corral-jail", user="bob") == bare.head.read(f"{JAIL}/etc/corral-jail").strip()
        )
        assert end().splitlines()[1:] == ["mine"]


def test_a_jail_that_is_replaced_keeps_its_running_steps(bare: Cluster) -> None:
    """Another volume is mounted in its place: who is inside stays, who comes goes to the new one."""
    node, marker = bare.machines["n1"], bare.head.read(f"{JAIL}/etc/corral-jail")
    with running(bare) as end:
        node.sh(f"mount --bind {OLD_JAIL} {JAIL}")
        try:
            assert "old:1" in bare.head.sh("srun -Q -w n1 cat /etc/corral-jail", user="bob")
            assert end() == f"{marker.rstrip()}\nmine\n"
        finally:
            node.sh(f"umount {JAIL}")
    assert bare.head.sh("srun -Q -w n1 cat /etc/corral-jail", user="bob") == marker.strip()


def test_steps_leave_nothing_with_slurmd(bare: Cluster) -> None:
    """No mount, no descriptor, no file of the spool."""
    node = bare.machines["n1"]
    slurmd = f"/proc/{slurmd_of(node)}"
    bare.head.sh("srun -Q -w n1 --jail=old true", user="ada")

    def seen() -> str:
        return node.sh(f"wc -l <{slurmd}/mountinfo; find /var/spool/slurmd | sort")

    def descriptors() -> int:
        return int(node.sh(f"ls {slurmd}/fd | wc -l"))

    def left() -> str:
        spool = "/var/spool/slurmd"
        return node.sh(
            f"pgrep -ax slurmstepd || true; find {spool} -path '{spool}/job*' -o -path '{spool}/corral/tmp/*' -o -path '{spool}/corral/job/*'"
        )

    eventually(lambda: not left(), "nothing of steps is left", seen=left)
    before, opened = seen(), descriptors()
    for _dummy in range(3):
        bare.head.sh("srun -Q -w n1 --jail=old -n4 --overcommit true; sbatch -Q -w n1 --wait -o /dev/null --wrap 'srun true'", user="ada")
    bare.head.run("srun", "-Q", "-w", "n1", "/no/such/program", user="ada", check=False)
    eventually(lambda: not left(), "nothing of steps is left", seen=left)
    eventually(lambda: seen() == before, f"nothing is left, as before: {before}", seen=seen)
    assert descriptors() < opened + 4, "slurmd opens and closes some of its own; those ten steps would have left ten"
