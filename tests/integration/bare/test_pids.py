# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs with a PID namespace of their own on each node (pid=job): what Slurm does to a job's processes it goes on doing, and none outlives the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hosts import CONTROLLER, JAIL, NODES, PLUGIN, Cluster, Machine, cluster, eventually

LINES = "PrologFlags=Contain\n"


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    with cluster(dict.fromkeys((CONTROLLER, *NODES), f"{PLUGIN} pid=job"), LINES) as made:
        made.head.sh(f"install -d -o 10001 -g 10001 {JAIL}/srv/project")
        yield made


@pytest.fixture(autouse=True)
def at_rest(bare: Cluster) -> Iterator[None]:
    yield
    bare.head.sh("scancel -u ada; scancel -u bob", check=False)
    eventually(lambda: bare.states() == ["idle"] and not bare.head.sh("squeue -h"), "all nodes idle and no job left")
    eventually(
        lambda: not bare.machines["n1"].sh("pgrep -l corral-init; ls /run/corral-jail | grep ^pid-", check=False), "nothing is left of jobs"
    )


def runs(node: Machine, command: str) -> bool:
    return any(line.removeprefix("/usr/bin/") == command for line in node.sh("ps -eo args").splitlines())


def test_a_job_sees_itself_alone(bare: Cluster) -> None:
    """Root, too. The steps of a job see each other."""
    bare.head.sh("sbatch -Q -w n1 -D /tmp --wrap 'exec sleep 1111'", user="bob")
    eventually(lambda: runs(bare.machines["n1"], "sleep 1111"), "the other job runs")
    for user, seen in ("ada", ["sh"]), (None, ["corral-init", "sh"]):
        assert bare.head.sh("srun -Q -w n1 sh -c 'cat /proc/[0-9]*/comm; true'", user=user).split() == seen
        script = "srun -Q sh -c 'sleep 600 <&- >&- 2>&- &'; srun -Q sh -c 'cat /proc/[0-9]*/comm'"
        assert "sleep" in bare.head.sh(f'salloc -Q -w n1 sh -c "{script}"', user=user).split()


def test_an_administrators_command_in_a_job_is_in_its_namespaces(bare: Cluster) -> None:
    look = "readlink /proc/self/ns/pid /proc/self/ns/ipc"
    job = bare.head.sh(f"sbatch --parsable -w n1 -D /tmp --wrap '{look} >/srv/project/all; exec sleep 1234'", user="ada")
    eventually(lambda: runs(bare.machines["n1"], "sleep 1234"), "the job runs")
    enter = ("/opt/corral/bin/jail-exec", "--job", job, f"jail={JAIL}", "pid=job", "--")
    said = bare.machines["n1"].run(*enter, "sh", "-c", f"{look}; cat /proc/[0-9]*/comm; exit 3", check=False)
    assert said.returncode == 3 and said.stdout.split()[:2] == bare.head.read(f"{JAIL}/srv/project/all").split(), said
    assert "sleep" in said.stdout.split() and "slurmd" not in said.stdout.split()


def test_who_left_the_session_of_a_step_ends_with_the_job(bare: Cluster) -> None:
    """proctrack/linuxproc knows descendants alone."""
    node = bare.machines["n1"]
    job = bare.head.sh(
        "sbatch --parsable -w n1 -D /tmp --wrap 'srun sh -c \"setsid -f sleep 4321 <&- >&- 2>&-\"; exec sleep 2222'", user="ada"
    )
    eventually(lambda: runs(node, "sleep 4321") and runs(node, "sleep 2222"), "it is left behind")
    bare.head.sh(f"scancel {job}")
    eventually(lambda: not runs(node, "sleep 4321"), "it has ended", timeout=20)


@pytest.mark.parametrize("options", ["", "--pty", "-n 4 -O", "--no-jail"])
def test_steps_run_and_their_status_comes_back(bare: Cluster, options: str) -> None:
    user = "bob" if options == "--no-jail" else "ada"
    done = bare.head.run(
        "script", "-qec", f"srun -Q -w n1 {options} sh -c 'test -e /proc/self/status; exit 7'", "/dev/null", user=user, check=False
    )
    assert done.returncode == 7, done.stdout


SCRIPT = """\
#!/bin/bash
trap 'echo usr1 >>seen' USR1
echo begun >seen
srun -Q sleep 3333 &
while :; do wait; done
"""


def test_jobs_are_signalled_and_cancelled(bare: Cluster) -> None:
    project = f"{JAIL}/srv/signalled"
    node = bare.machines["n1"]
    bare.head.write(f"{project}/job.sh", SCRIPT)
    bare.head.sh(f"chown -R 10001 {project}; sbatch -w n1 --uid=10001 --gid=10001 -D /srv/signalled -o out {project}/job.sh")
    eventually(
        lambda: "begun" in bare.head.sh(f"cat {project}/seen", check=False) and runs(node, "sleep 3333"),
        "both run",
        seen=lambda: bare.head.sh(f"cat {project}/*; squeue; tail /var/spool/slurmctld/slurmctld.log", check=False),
    )
    bare.head.sh("scancel -b -s USR1 -u ada")
    eventually(lambda: "usr1" in bare.head.read(f"{project}/seen"), "the script got the signal")
    bare.head.sh("scancel -u ada")
    eventually(lambda: not runs(node, "sleep 3333"), "all of it has ended")


def test_the_epilog_of_a_task_is_in_it_too(bare: Cluster) -> None:
    bare.head.write(f"{JAIL}/opt/look-pids", "#!/bin/sh\nreadlink /proc/self/ns/pid >>/tmp/pids\n", 0o755)
    around = "--task-prolog=/opt/look-pids --task-epilog=/opt/look-pids"
    said = bare.head.sh(
        f"salloc -Q -w n1 sh -c 'srun -Q {around} /opt/look-pids; srun -Q cat /tmp/pids; srun -Q readlink /proc/self/ns/pid'", user="ada"
    )
    assert len(said.split()) == 4 and len(set(said.split())) == 1


def test_a_step_without_its_first_process_is_ended_and_the_next_gets_another(bare: Cluster) -> None:
    """As when the kernel ends it for want of memory."""
    job = bare.head.sh("sbatch --parsable -w n1 -D /tmp --no-requeue --wrap 'sleep 5555'", user="ada")
    node = bare.machines["n1"]
    eventually(lambda: runs(node, "sleep 5555"), "it runs")
    node.sh("pkill -9 -x corral-init")
    eventually(lambda: job not in bare.head.sh("squeue -h -o %A"), "the job has ended")
    assert bare.head.sh("srun -Q -w n1 hostname", user="ada") == "n1"


SSHD = """\
printf 'ChrootDirectory /\\nPort 2222\\nAuthorizedKeysFile /etc/ssh/ada.pub\\nStrictModes no\\n' >/etc/ssh/sshd_config.d/20-worker.conf
sed 's/@NODE@/n1/' /usr/local/lib/corral/pam_sshd_worker >/etc/pam.d/sshd
mkdir -p /run/sshd
ssh-keygen -q -N '' -t ed25519 -f /etc/ssh/ssh_host_ed25519_key
/usr/sbin/sshd -E /var/log/sshd.log
"""


def test_who_comes_to_the_job_by_ssh_is_in_it_too(bare: Cluster) -> None:
    node = bare.machines["n1"]
    bare.head.sh("ssh-keygen -q -N '' -t ed25519 -f /run/key; chmod 644 /run/key.pub; chown 10001 /run/key")
    node.write("/etc/ssh/ada.pub", bare.head.read("/run/key.pub"))
    node.sh(SSHD)
    ssh = "ssh -q -i /run/key -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null ada@192.0.2.1"
    job = bare.head.sh("sbatch --parsable -w n1 -D /tmp --wrap 'readlink /proc/self/ns/pid >/srv/project/ns; exec sleep 7777'", user="ada")
    eventually(lambda: runs(node, "sleep 7777"), "the job runs")
    said = bare.head.run("sh", "-c", f"{ssh} 'readlink /proc/self/ns/pid; cat /proc/[0-9]*/comm; exit 3'", user="ada", check=False)
    seen = said.stdout.split()
    assert said.returncode == 3 and seen[0] == bare.head.sh(f"cat {JAIL}/srv/project/ns"), (said, node.sh("cat /var/log/sshd.log"))
    assert "sleep" in seen and not {"slurmd", "sshd", "sshd-session"} & set(seen)
    bare.head.sh(f"{ssh} 'setsid -f sleep 6666 <&- >&- 2>&-'; {ssh} -tt 'test -t 0'", user="ada")
    assert runs(node, "sleep 6666")
    bare.head.sh(f"scancel {job}")
    eventually(lambda: not runs(node, "sleep 6666"), "what the session left has ended", timeout=20)
