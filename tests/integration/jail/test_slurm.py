# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that users do with Slurm works in the jail, and they do not notice it."""

from __future__ import annotations

import re

import pytest

from ..conftest import Cluster, eventually
from .conftest import NODE_DISK, Person, Script

pytestmark = pytest.mark.lab


def test_srun_runs_in_the_jail_on_both_nodes(person: Person) -> None:
    said = person.run("srun -N2 -l sh -c 'echo $SLURMD_NODENAME $(id -un) $CORRAL_JAIL $CORRAL_JAIL_MODE; test -f /etc/corral-jail' | sort")
    assert said.splitlines() == [
        f"0: one-0 {person.name} default@localhost/corral/jail:trixie rw",
        f"1: two-0 {person.name} default@localhost/corral/jail:trixie rw",
    ]


def test_many_tasks_of_a_step(person: Person) -> None:
    assert person.run("srun -N2 -n4 -O sh -c 'echo $SLURM_PROCID' | sort -n | xargs") == "0 1 2 3"


def test_files_of_a_job_are_the_jails(person: Person) -> None:
    """--output, --error, --input and the working directory exist in the jail only."""
    said = person.run(
        "mkdir -p only/here && cd only/here && echo question >in.txt\n"
        "printf '#!/bin/sh\\ncat; pwd; echo problem >&2\\n' >job.sh\n"
        "sbatch -Q --wait -i in.txt -o out.txt -e err.txt job.sh; cat out.txt err.txt\n"
        "srun -o srun.txt -i in.txt cat; cat srun.txt; cd; rm -r only"
    )
    assert said.splitlines() == ["question", f"{person.home}/only/here", "problem", "question"]


def test_a_working_directory_that_is_missing_is_told(person: Person) -> None:
    assert "No such file or directory" in person.run(f"srun -D {person.home}/nowhere pwd 2>&1", check=False)


def test_arrays_and_steps_of_a_batch_script(script: Script) -> None:
    said = script(
        "printf '#!/bin/sh\\nsrun -n1 echo step $SLURM_ARRAY_TASK_ID\\n' >array.sh\n"
        "sbatch -Q --wait --array=1-3 -o array-%a.txt array.sh; cat array-?.txt; rm array*"
    )
    assert said.splitlines() == ["step 1", "step 2", "step 3"]


def test_heterogeneous_jobs(person: Person) -> None:
    said = person.run("srun -w one-0 -n1 sh -c 'echo a $SLURMD_NODENAME' : -w two-0 -n1 sh -c 'echo b $SLURMD_NODENAME' | sort")
    assert said.splitlines() == ["a one-0", "b two-0"]


def test_salloc_gives_an_interactive_step(person: Person) -> None:
    said = person.run(
        "script -qec 'salloc -Q -w two-0' /dev/null <<<'echo I am on $SLURMD_NODENAME; test -f /etc/corral-jail && tty; exit'"
    )
    assert "I am on two-0" in said
    assert re.search(r"/dev/pts/\d+", said)


def test_a_terminal(person: Person) -> None:
    assert re.search(r"/dev/pts/\d+", person.run("script -qec 'srun --pty tty' /dev/null"))


def test_sattach(script: Script) -> None:
    said = script(
        "printf '#!/bin/sh\\nsrun sh -c \"until test -e seen; do echo attached to it; sleep 0.3; done\"\\n' >s.sh; rm -f seen\n"
        "id=$(sbatch --parsable -o /dev/null s.sh)\n"
        "for i in $(seq 60); do timeout 10 sattach $id.0 2>/dev/null | grep -m1 'attached to it' && break; sleep 0.3; done\n"
        "touch seen; rm s.sh"
    )
    assert "attached to it" in said


def test_mpi_over_two_nodes(script: Script, mpi: str) -> None:
    if mpi != "pmix":
        pytest.skip("Open MPI needs PMIx, which this Slurm was built without")
    said = script(
        "cat >hello.c <<'EOF'\n"
        "#include <mpi.h>\n#include <stdio.h>\n"
        "int main(int c, char **v) { int r, n, s, one = 1; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);\n"
        'MPI_Allreduce(&one, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); printf("rank %d of %d sums %d\\n", r, n, s); return MPI_Finalize(); }\n'
        "EOF\nmpicc -o hello hello.c && srun -N2 -n2 ./hello | sort; rm hello hello.c"
    )
    assert said.splitlines()[-2:] == ["rank 0 of 2 sums 2", "rank 1 of 2 sums 2"]


# What libpmi2 says in a program of MPICH or MVAPICH: each task puts a value, waits for the others, and gets that of the next one.
PMI2 = """
import os
said = os.fdopen(int(os.environ["PMI_FD"]), "r+b", buffering=0)
def read(count):
    got = b""
    while len(got) < count:
        got += said.read(count - len(got)) or exit("slurmstepd hung up")
    return got.decode()
def ask(text):
    said.write(b"%6d%s" % (len(text), text.encode()))
    return dict(pair.split("=", 1) for pair in read(int(read(6))).split(";") if pair)
said.write(b"cmd=init pmi_version=2 pmi_subversion=0\\n")
while read(1) != "\\n":
    pass
me = ask(f"cmd=fullinit;pmijobid={os.environ['PMI_JOBID']};pmirank={os.environ['PMI_RANK']};threaded=FALSE;")
rank, size = int(me["rank"]), int(me["size"])
ask(f"cmd=kvs-put;key=of-{rank};value=from-{os.environ['SLURMD_NODENAME']};")
ask("cmd=kvs-fence;")
print(rank, size, ask(f"cmd=kvs-get;key=of-{(rank + 1) % size};")["value"])
ask("cmd=finalize;")
"""


def test_pmi2_over_two_nodes(person: Person) -> None:
    said = person.run(f"cat >p.py <<'EOF'{PMI2}EOF\nsrun --mpi=pmi2 -N2 -n2 python3 p.py | sort; rm p.py")
    assert said.splitlines() == ["0 2 from-two-0", "1 2 from-one-0"]


def test_task_prolog_of_the_jail(person: Person) -> None:
    said = person.run(
        "printf '#!/bin/sh\\necho print from the prolog\\necho export SET=here\\n' >p.sh; chmod +x p.sh; "
        "srun --task-prolog=$HOME/p.sh sh -c 'echo $SET'; rm p.sh"
    )
    assert said.splitlines() == ["from the prolog", "here"]


def test_task_epilog_of_the_jail(person: Person) -> None:
    """slurmstepd runs it as the user, and its output goes nowhere. It may and sees what its task does."""
    said = person.run(
        "printf '#!/bin/sh\\ngrep CapBnd /proc/self/status >~/$1e.txt; readlink /proc/self/ns/mnt >>~/$1e.txt; id -un >>~/$1e.txt\\n' >e.sh; chmod +x e.sh\n"
        "srun --task-epilog=$HOME/e.sh ./e.sh task\n"
        f"for i in $(seq 50); do grep -qx {person.name} e.txt 2>/dev/null && break; sleep 0.2; done; cat taske.txt e.txt; rm e.sh e.txt taske.txt"
    )
    assert said.endswith(person.name) and said.splitlines()[:3] == said.splitlines()[3:], said


def test_the_users_environment_is_that_of_a_login(person: Person) -> None:
    """slurmd asks for it by a login shell, as root and in the pod: the user's login files run in the jail all the same, and as a task does."""
    look = "ls -d /etc/corral-jail /usr/sbin/slurmd 2>/dev/null; grep CapBnd /proc/self/status"
    said = person.run(
        f"cp .profile .profile.saved; echo '{{ {look}; }} >~/seen.txt; export OF_PROFILE=here' >>.profile\n"
        f"sbatch -Q --wait --get-user-env -o g.txt --wrap '{look}; echo $OF_PROFILE $HOME $(id -un)' || true; mv .profile.saved .profile\n"
        "cat seen.txt g.txt; rm seen.txt g.txt"
    )
    *seen, last = said.splitlines()
    assert last == f"here {person.home} {person.name}"
    assert seen[0] == "/etc/corral-jail" and seen[: len(seen) // 2] == seen[len(seen) // 2 :], said


def test_sbcast_reaches_the_jail_or_says_that_it_does_not(script: Script) -> None:
    """slurmd writes it in the pod, where /home and the submounts are the jail's, and /tmp is nobody's."""
    said = script(
        "printf '#!/bin/sh\\necho payload >p.txt; sbcast -f p.txt ~/copied.txt; sbcast -f p.txt /scratch/copied.txt; "
        "srun -N2 cat ~/copied.txt /scratch/copied.txt\\n"
        "sbcast -f p.txt /tmp/copied.txt || echo refused\\n' >b.sh\n"
        "sbatch -Q --wait -N2 -o b.txt b.sh; cat b.txt; rm b.txt b.sh p.txt copied.txt; srun -N2 rm /scratch/copied.txt"
    )
    assert said.splitlines()[:4] == ["payload"] * 4
    assert "Permission denied" in said
    assert said.splitlines()[-1] == "refused"
    assert script("srun --bcast -N2 /usr/bin/true && echo ran; rm slurm_bcast_*") == "ran"


def test_sbcast_into_a_named_jail(script: Script) -> None:
    """slurmd knows nothing of --jail: it writes the default jail's home, and the named jail's by its path in the pod."""
    said = script(
        "printf '#!/bin/sh\\necho payload >~/p.txt; sbcast -f ~/p.txt ~/copied.txt; cat ~/copied.txt; sbcast -f ~/p.txt /mnt/jails/old$HOME/copied.txt; "
        "cat ~/copied.txt; rm ~/p.txt ~/copied.txt\\n' >b.sh\n"
        "sbatch -Q --wait -N2 --jail=old -D /tmp -o /disk/b.txt b.sh; cat /disk/b.txt copied.txt; rm /disk/b.txt b.sh copied.txt"
    )
    assert said.splitlines() == ["cat: /home/alice/copied.txt: No such file or directory", "payload", "payload"]


def test_tmp_and_shared_memory_are_the_jobs_own(cluster: Cluster, script: Script) -> None:
    said = script(
        "cat >t.sh <<'EOF'\n#!/bin/bash\n"
        "echo batch >/tmp/mine; echo batch >/dev/shm/mine; srun cat /tmp/mine /dev/shm/mine; "
        "ls -A -Ispmix* /tmp /dev/shm | xargs; df -P /dev/shm | tail -1 | cut -d' ' -f1\n"
        "EOF\nsbatch -Q --wait -w one-0 -o t.txt t.sh; cat t.txt; srun -w one-0 sh -c 'ls -A -Ispmix* /tmp /dev/shm | xargs; stat -c %a /tmp /dev/shm'; rm t.*"
    )
    assert said.splitlines() == ["batch", "batch", "/dev/shm: mine /tmp: mine", "tmpfs", "/dev/shm: /tmp:", "1777", "1777"]
    worker = ("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "sh", "-c")
    eventually(
        lambda: cluster.kubectl(*worker, "ls -A /var/spool/slurmd/corral/tmp /dev/shm/corral | grep -c '^[0-9]' || true").strip() == "0",
        "own directories gone",
    )


def test_submounts_are_where_they_are_wanted(script: Script) -> None:
    assert script("srun -w two-0 sh -c 'echo x >/fast/x; stat -f -c %T /fast; touch /scratch/two; ls /scratch'").splitlines() == [
        "tmpfs",
        "two",
    ]
    assert script("srun -w one-0 sh -c 'ls -A /fast /scratch'").splitlines() == ["/fast:", "", "/scratch:"]
    assert script("echo everywhere >/disk/f; srun -N2 cat /disk/f; rm /disk/f; ls -d /fast /scratch").splitlines() == ["everywhere"] * 2 + [
        "/fast",
        "/scratch",
    ]
    assert NODE_DISK.exists()


def test_submounts_run_no_set_uid_program(script: Script) -> None:
    said = script("sudo cp /usr/bin/id /disk/id; sudo chmod 4755 /disk/id; srun /disk/id -u; /disk/id -u; sudo rm /disk/id")
    assert said.splitlines() == ["10001", "10001"]


def test_another_jail_by_name_and_by_partition(script: Script) -> None:
    script("sudo touch /i-am-default")
    assert script("srun --jail=old sh -c 'ls /i-am-default 2>&1; echo $CORRAL_JAIL'", check=False).splitlines() == [
        "ls: cannot access '/i-am-default': No such file or directory",
        "old@localhost/corral/jail:trixie",
    ]
    assert script("srun -p past sh -c 'echo $CORRAL_JAIL'") == "old@localhost/corral/jail:trixie"
    assert script("srun -p past --jail=default sh -c 'echo $CORRAL_JAIL; ls /i-am-default'").splitlines()[1] == "/i-am-default"
    said = script("srun --jail=new true 2>&1", check=False)
    assert "there is no jail 'new': choose one of default, old" in said
    script("sudo rm /i-am-default")


def test_the_same_users_are_in_every_jail(script: Script) -> None:
    assert script("srun --jail=old sh -c 'id -un; cd ~ && pwd'", user="bob").splitlines()[0] == "bob"


def test_read_only(person: Person) -> None:
    said = person.run(
        "srun --jail-ro sh -c 'touch ~/x; touch /disk/x; touch /tmp/x /dev/shm/x && echo $CORRAL_JAIL_MODE' 2>&1", check=False
    )
    assert said.count("Read-only file system") == 2
    assert "ro" in said.splitlines(), "srun brings a step's two streams in no order of their own"


def test_an_overlay_is_the_jobs_own(script: Script) -> None:
    said = script(
        "cat >o.sh <<'EOF'\n#!/bin/bash\n"
        "echo mine >~/overlaid; sudo rm -r /var/log; echo volume >/disk/from-overlay; "
        "srun -N1 -w one-0 cat ~/overlaid; srun -N1 -w two-0 sh -c 'ls ~/overlaid' 2>&1; ls -d /var/log; echo $CORRAL_JAIL_MODE\n"
        "EOF\nsbatch -Q --wait --jail-overlay -w one-0,two-0 -o /disk/o.txt o.sh || true; "
        "cat /disk/o.txt; ls ~/overlaid 2>&1 || true; ls -d /var/log; cat /disk/from-overlay; rm /disk/o.txt /disk/from-overlay o.sh",
        check=False,
    )
    assert said.splitlines()[0] == "mine"
    assert said.count("No such file or directory") == 3, said
    assert "overlay" in said
    assert said.splitlines()[-2:] == ["/var/log", "volume"]


def test_options_that_do_not_go_together(script: Script) -> None:
    assert "exclude each other" in script("srun --jail-ro --jail-overlay true 2>&1", check=False)


def test_leaving_the_jail_is_for_those_who_may_and_is_logged(cluster: Cluster, script: Script) -> None:
    def audited() -> list[str]:
        log = cluster.kubectl("logs", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd")
        return re.findall(r"corral_jail: AUDIT uid=(\d+) job=\d+ step=\d+ runs outside of the jail", log)

    before = len(audited())
    assert "--no-jail is not for you" in script("srun --no-jail true 2>&1", check=False)
    # The plugin in the user's hands says no. Slurm has the option in the job's environment too, past that plugin: it lets out who may, so it is spelled
    # as Slurm spells it, and the node refuses who may not.
    forged, look = "_SLURM_SPANK_OPTION_corral_jail_no_jail=1", "test -f /etc/corral-jail && echo in || echo out"
    step = f"{forged} srun -w one-0 sh -c '{look}'"
    assert script(step, user="carol") == "out"
    batch = f"sbatch -Q --wait -w one-0 -o f.txt --export=ALL,{forged} --wrap '{look}' || cat f.txt; rm f.txt"
    for way in (step, batch):
        said = script(way, check=False)
        # slurmstepd's line begins with its name, and with Slurm 26.05 with the time; the plugin in the user's hands would say "srun:".
        assert re.search(r"(?m)^(slurmstepd\S*:|\[[-\dT:.]+\]) error: corral_jail: --no-jail is not for you", said), said
        assert not {"in", "out"} & set(said.splitlines()), said
    said = script(
        "srun -w one-0 --no-jail sh -c 'test -f /etc/corral-jail || echo outside; echo $CORRAL_JAIL_MODE; "
        "touch /tmp/mine && stat -c %a /tmp; grep CapBnd /proc/self/status'",
        user="carol",
    )
    assert said.splitlines()[:3] == ["outside", "none", "1777"]
    assert not int(said.split()[-1], 16) & 1 << 21, "CAP_SYS_ADMIN"
    assert audited()[before:] == ["10003", "10003"]


def test_root_of_the_jail_is_nobody_to_slurm(cluster: Cluster, script: Script) -> None:
    """As root, or as Slurm's own account, they would be told by each daemon what they want, and slurmd would write their files in its pod."""
    as_root, as_slurm = "sudo env PATH=$PATH", "sudo env PATH=$PATH setpriv --reuid 64030 --regid 64030 --clear-groups"
    assert script(f"{as_root} sinfo -h -o %P").splitlines() == ["main*", "past"], "what anybody may ask they may ask, too"
    for who in (as_root, as_slurm):
        said = script(f"{who} scontrol update partitionname=main state=up 2>&1 && echo done", check=False)
        assert "done" not in said and ("denied" in said or "Invalid user" in said), said
        # A job of their own, because slurmd writes with the rights of the job's user.
        for place in ("/run/wall", "/home/alice/wall"):
            said = script(f"cd /tmp; {who} salloc -Q -w one-0 sbcast -f /etc/passwd {place} 2>&1 && echo done", check=False)
            assert "done" not in said and "Permission denied" in said, said
    assert script("salloc -Q -w one-0 sbcast -f /etc/passwd /home/alice/wall && echo done; rm wall") == "done", (
        "a user may, where they may write"
    )
    assert script(f"cd /tmp; {as_root} srun id -u") == "65534"
    assert "jail" not in script("ls /run/munge").split(), "not the daemons' own"
    in_pod = cluster.kubectl("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "sh", "-c", "ls /run; scontrol ping")
    assert "wall" not in in_pod and "is UP" in in_pod, "the pod's own daemons have their own"


def test_message_queues_are_there(script: Script) -> None:
    """The job's own, as its other IPC: POSIX message queues of one step are seen by the job's next one, and by no other job."""
    said = script(
        "cat >q.py <<'EOF'\nimport ctypes, os, sys\nrt = ctypes.CDLL(None, use_errno=True)\n"
        "q = rt.mq_open(b'/corral-test', os.O_CREAT | os.O_RDWR, 0o600, None)\n"
        "assert q >= 0, os.strerror(ctypes.get_errno())\n"
        "if sys.argv[1] == 'put':\n    assert rt.mq_send(q, b'a letter', 8, 0) == 0\n"
        "else:\n    room = ctypes.create_string_buffer(8192)\n    got = rt.mq_receive(q, room, 8192, None)\n    print(room.raw[:got].decode())\n"
        "EOF\n"
        "cat >q.sh <<'EOF'\n#!/bin/sh\nsrun python3 q.py put; ls /dev/mqueue; stat -f -c %T /dev/mqueue; srun python3 q.py get\n"
        "EOF\n"
        "sbatch -Q --wait -w one-0 -o q.txt q.sh; cat q.txt; rm q.*; srun -w one-0 ls /dev/mqueue"
    )
    assert said.splitlines() == ["corral-test", "mqueue", "a letter"]


def test_system_v_memory_is_the_jobs_own_and_gone_with_it(cluster: Cluster, script: Script) -> None:
    said = script(
        "cat >v.sh <<'EOF'\n#!/bin/sh\nsrun ipcmk -Q -M 4096 -S 1 >/dev/null; srun ipcs -qms | grep -c ^0x\n"
        "ssh one-0 ipcs -qms 2>/dev/null | grep -c ^0x\nEOF\n"
        "sbatch -Q --wait -w one-0 -o v.txt v.sh; cat v.txt; rm v.*; srun -w one-0 ipcs -qms | grep -c ^0x",
        check=False,
    )
    assert said.splitlines() == ["3", "3", "0"], "its steps', its sessions', another job's"
    kept = ("exec", "-n", cluster.namespace, "jail-one-0", "-c", "slurmd", "--", "sh", "-c", "ls /run/corral-jail | grep -c ^ipc- || true")
    eventually(lambda: cluster.kubectl(*kept).strip() == "0", "no namespace of a job that has ended")


def test_accounts_made_on_two_nodes_at_once_are_all_there(script: Script) -> None:
    """useradd locks /etc/.pwd.lock with fcntl: the volume must pass such locks between nodes (docs/jail.md)."""
    said = script(
        "cat >u.sh <<'EOF'\n#!/bin/bash\n"
        "for i in $(seq 10); do sudo useradd -M twin-$SLURM_PROCID-$i || echo refused; done\n"
        "EOF\nchmod +x u.sh; srun -N2 ./u.sh; rm u.sh\n"
        "for file in passwd group shadow gshadow; do sudo grep -c '^twin-' /etc/$file; done; grep '^twin-' /etc/passwd | cut -d: -f3 | sort -u | wc -l\n"
        "sudo pwck -qr | grep twin- | grep -v directory || true; ls /etc | grep -E 'lock$|passwd\\.[0-9]' | xargs\n"
        "for n in 0 1; do for i in $(seq 10); do sudo userdel twin-$n-$i; done; done; grep -c '^twin-' /etc/passwd || true"
    )
    assert said.splitlines() == ["20", "20", "20", "20", "20", "", "0"]
