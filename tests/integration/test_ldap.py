# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of a real directory (slapd, over TLS) on a cluster of their own: they come by ssh with keys of the directory, run jobs, own files."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from .certificates import authority, sign
from .conftest import REPOSITORY, VOLUMES, Cluster, eventually
from .kubectl import Kubectl
from .watch import OF_PODS, OF_STEPS, Watch, unexplained

pytestmark = pytest.mark.lab
NAME = "ldap"
NAMESPACE = f"test-{NAME}"
HOST = f"slapd.{NAMESPACE}.svc.cluster.local"
NODES = "cpu-[0-1]"

CONFIG = f"""\
[sssd]
domains = lab

[domain/lab]
id_provider = ldap
ldap_uri = ldaps://{HOST}:6636
ldap_search_base = dc=example,dc=org
ldap_default_bind_dn = cn=reader,dc=example,dc=org
ldap_default_authtok = a-secret-of-the-test
"""
TREE = """\
dn: dc=example,dc=org
objectClass: domain
dc: example

dn: cn=reader,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: a-secret-of-the-test

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: cn=optics,ou=groups,dc=example,dc=org
objectClass: posixGroup
cn: optics
gidNumber: 30000

dn: cn=lasers,ou=groups,dc=example,dc=org
objectClass: posixGroup
cn: lasers
gidNumber: 30001
memberUid: lea
memberUid: max
"""


def person(name: str, uid: int, key: str = "") -> str:
    lines = [
        f"dn: uid={name},ou=people,dc=example,dc=org",
        *(f"objectClass: {kind}" for kind in ("inetOrgPerson", "posixAccount", "ldapPublicKey")),
        *(f"{attribute}: {name}" for attribute in ("uid", "cn", "sn")),
        f"uidNumber: {uid}",
        "gidNumber: 30000",
        f"homeDirectory: /home/{name}",
        "loginShell: /bin/bash",
        *([f"sshPublicKey: {key}"] if key else []),
    ]
    return "\n".join(lines) + "\n"


class Directory:
    """slapd in a pod of the cluster's namespace."""

    def __init__(self, kubectl: Kubectl, work: Path) -> None:
        self.kubectl, self.work = kubectl, work

    def make(self) -> None:
        """Certificates, the pod, a tree; and what a cluster's administrator makes: the Secret, the ConfigMap."""
        certificate = authority(self.work)
        signed = sign(self.work, HOST)
        self.kubectl("create", "namespace", NAMESPACE)
        self.apply(
            [
                self.secret("slapd-tls", signed),
                {"apiVersion": "v1", "kind": "ConfigMap", **self.named("ldap-ca"), "data": {"ca.crt": certificate.read_text()}},
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    **self.named("slapd"),
                    "spec": {"selector": {"app": "slapd"}, "clusterIP": "None", "ports": [{"port": 6636}]},
                },
                # The tree outlives the pod's container, which a test stops.
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "slapd", "namespace": NAMESPACE, "labels": {"app": "slapd"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "slapd",
                                "image": "localhost/corral/slapd:trixie",
                                "imagePullPolicy": "IfNotPresent",
                                "readinessProbe": {"tcpSocket": {"port": 6636}, "periodSeconds": 1},
                                "volumeMounts": [
                                    {"name": "tls", "mountPath": "/etc/slapd-tls"},
                                    {"name": "tree", "mountPath": "/var/lib/ldap"},
                                    {"name": "run", "mountPath": "/run/slapd"},
                                ],
                            }
                        ],
                        "volumes": [
                            {"name": "tls", "secret": {"secretName": "slapd-tls"}},
                            {"name": "tree", "emptyDir": {}},
                            {"name": "run", "emptyDir": {}},
                        ],
                        "terminationGracePeriodSeconds": 1,
                    },
                },
            ]
        )
        self.configure("ldap", CONFIG)
        self.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/slapd", "--timeout=120s")
        self.add(TREE)

    def apply(self, items: list[dict[str, object]]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    @staticmethod
    def named(name: str) -> dict[str, object]:
        return {"metadata": {"name": name, "namespace": NAMESPACE}}

    def secret(self, name: str, data: dict[str, str]) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Secret", **self.named(name), "stringData": data}

    def configure(self, name: str, config: str) -> None:
        self.apply([self.secret(name, {"sssd.conf": config})])

    def add(self, entries: str) -> None:
        self.kubectl(
            "exec", "-i", "-n", NAMESPACE, "slapd", "--",
            "ldapadd", "-x", "-H", "ldap://127.0.0.1:3389", "-D", "cn=admin,dc=example,dc=org", "-w", "admin", stdin=entries,
        )  # fmt: skip

    def connected(self, on: bool) -> None:
        """Stop slapd or start it."""
        command = "rm -f /run/slapd/off" if on else "touch /run/slapd/off; kill $(cat /run/slapd/slapd.pid)"
        self.kubectl("exec", "-n", NAMESPACE, "slapd", "--", "sh", "-c", command)


def load_images() -> None:
    """What only this test and clusters with LDAP need."""
    built = subprocess.run([REPOSITORY / "images" / "build", "sssd", "slapd"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    subprocess.run([REPOSITORY / "lab" / "lab", "load", *built], check=True)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster], tmp_path_factory: pytest.TempPathFactory, ssh_key: Path) -> Iterator[Cluster]:
    load_images()
    made = make_cluster(NAME, 30043)
    directory = Directory(made.kubectl, tmp_path_factory.mktemp("slapd"))
    directory.make()
    public = Path(f"{ssh_key}.pub").read_text().strip()
    directory.add(person("lea", 20001, public))
    directory.add(person("max", 20002, public))
    made.spec["nodeSets"] = made.spec["nodeSets"][:1]
    made.spec["sssd"] = {"image": "localhost/corral/sssd:trixie", "configSecret": "ldap", "caConfigMap": "ldap-ca"}
    run = made.site()
    assert run.rc == 0, run.output
    yield made
    run = made.destroy("-e", f"confirm={NAME}", "-e", "delete_namespace=true")
    assert run.rc == 0, run.output


@pytest.fixture(scope="module")
def directory(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    return Directory(cluster.kubectl, tmp_path_factory.mktemp("directory"))


def pods() -> list[tuple[str, str]]:
    """Pods with sssd in them, and their main containers."""
    login = f"{NAME}-login-0"
    return [(f"{NAME}-controller-0", "slurmctld"), (login, "sshd"), (f"{NAME}-cpu-0", "slurmd"), (f"{NAME}-cpu-1", "slurmd")]


def inside(cluster: Cluster, pod: str, container: str, *command: str, check: bool = True) -> str:
    return cluster.kubectl("exec", "-n", NAMESPACE, pod, "-c", container, "--", *command, check=check)


def as_user(cluster: Cluster, text: str, user: str = "lea", check: bool = True) -> str:
    done = cluster.ssh('bash -ec "$(cat)" 2>&1 </dev/null', user=user, stdin=f"{text}\n", check=False)
    assert done.returncode == 0 or not check, f"status {done.returncode} of:\n{text}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def test_the_first_login_with_a_key_of_the_directory_finds_a_home(cluster: Cluster) -> None:
    # Two at once: one makes it.
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda _: as_user(cluster, "pwd; stat -c '%U:%G %a' .; ls -A"), range(2)))
    for text in said:
        lines = text.splitlines()
        assert lines[:2] == ["/home/lea", "lea:optics 700"], text
        assert ".bashrc" in lines
    assert "Could not chdir" not in "".join(said)
    log = cluster.kubectl("logs", "-n", NAMESPACE, f"{NAME}-login-0", "-c", "sshd")
    assert log.count("first_login: made /home/lea for lea") == 1, log


def test_another_key_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    known, cluster.key = cluster.key, other
    try:
        assert cluster.ssh("true", user="lea", check=False).returncode == 255
    finally:
        cluster.key = known


def test_a_key_of_the_home_works_beside(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    public = Path(f"{other}.pub").read_text().strip()
    as_user(cluster, f"mkdir -p -m 700 .ssh; echo '{public}' >>.ssh/authorized_keys")
    known, cluster.key = cluster.key, other
    try:
        assert cluster.ssh("id -un", user="lea").stdout.strip() == "lea"
    finally:
        cluster.key = known


@contextmanager
def watched() -> Iterator[None]:
    """Processes with rights touch nothing of the jail that is not explained."""
    with Watch(VOLUMES / f"{NAME}-jail" / "root") as watch:
        yield
    assert unexplained(watch.touched, (*OF_STEPS, *OF_PODS)) == []


def test_who_has_rights_touches_nothing_of_the_jail_for_a_directorys_user(cluster: Cluster, directory: Directory) -> None:
    """At a first login with a key of the directory, in a step, and on a worker."""
    directory.add(person("kim", 20005, Path(f"{cluster.key}.pub").read_text().strip()))
    with watched():
        said = as_user(
            cluster,
            "pwd; srun -Q id -un; job=$(sbatch --parsable -w cpu-0 -o /dev/null --wrap 'sleep 60'); "
            "until [ $(squeue -h -j $job -o %T) = RUNNING ]; do sleep 0.5; done; ssh cpu-0 id -un; scancel $job",
            user="kim",
        )
    assert [line for line in said.splitlines() if "Warning" not in line] == ["/home/kim", "kim", "kim"], said


def test_jobs_run_as_the_user_with_all_groups(cluster: Cluster) -> None:
    wanted = "uid=20001(lea) gid=30000(optics) groups=30000(optics),30001(lasers)"
    assert as_user(cluster, "id") == wanted
    assert as_user(cluster, "srun -N2 -Q id").splitlines() == [wanted] * 2
    said = as_user(
        cluster,
        "sbatch -Q --wait -o out.txt --wrap 'id; srun -Q touch mine; chgrp lasers mine; ls -l mine; squeue -h -o %u -j $SLURM_JOB_ID'; cat out.txt",
    ).splitlines()
    assert said[0] == wanted
    assert " lea lasers " in said[1]
    assert said[2] == "lea"


def test_a_job_opens_its_node_to_its_user(cluster: Cluster) -> None:
    said = as_user(
        cluster,
        "ssh cpu-0 true || echo refused; job=$(sbatch --parsable -w cpu-0 -o /dev/null --wrap 'sleep 60'); "
        "until [ $(squeue -h -j $job -o %T) = RUNNING ]; do sleep 0.5; done; ssh cpu-0 id -Gn; scancel $job",
    ).splitlines()
    assert said[-2:] == ["refused", "optics lasers"], said


def test_a_jail_without_its_own_client_still_has_slurms(cluster: Cluster) -> None:
    """Slurm's commands have the C library's module in their bundle, so they need none of the jail's."""
    library = "/usr/lib/x86_64-linux-gnu/libnss_sss.so.2"
    alice = "sudo mv {} {}"
    as_user(cluster, alice.format(library, f"{library}.away"), user="alice")
    try:
        assert "lea" not in as_user(cluster, "getent passwd 20001", check=False)
        assert as_user(cluster, "sbatch --parsable -o /dev/null --wrap 'sleep 5' >job; squeue -h -o %u -u lea; scancel $(cat job)") == "lea"
    finally:
        as_user(cluster, alice.format(f"{library}.away", library), user="alice")


def test_owners_have_names_for_users_of_the_document_too(cluster: Cluster) -> None:
    as_user(cluster, "mkdir -p -m 755 /tmp/x; chmod 755 ~; touch ~/seen")
    assert as_user(cluster, "stat -c %U:%G /home/lea/seen; id -un; sudo -u lea id -un", user="alice").splitlines() == [
        "lea:optics",
        "alice",
        "lea",
    ]


def test_only_public_sockets_are_seen_in_the_jail(cluster: Cluster) -> None:
    look = "sudo ls /var/lib/sss /var/lib/sss/pipes /var/lib/sss/mc /var/lib/sss/pipes/private /etc/sssd 2>&1"
    for where in ("", "srun -Q "):
        said = as_user(cluster, f"{where}sh -c '{look}'", user="alice", check=False)
        assert "nss" in said
        assert "sbus" not in said
        assert "sssd.conf" not in said
        assert "ldb" not in said
    assert "a-secret-of-the-test" not in as_user(
        cluster, "sudo grep -rs a-secret-of-the-test /var/lib/sss /etc 2>&1", user="alice", check=False
    )
    denied = as_user(cluster, "sudo rm /var/lib/sss/pipes/nss || sudo touch /var/lib/sss/mc/x", user="alice", check=False)
    assert denied.count("Read-only file system") == 2


# The account that asks sssd for keys is one that root in the jail can become; its helper lives for some milliseconds of each login. Whoever is that account
# stops it, and looks into it; given a process, into that.
HELPER = """
import ctypes, os, signal, subprocess, sys, time
ACCOUNT = 64032
kernel = ctypes.CDLL(None)
def helper():
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm") as name:
                if name.read().startswith("sss_ssh_author"):
                    return int(process)
        except OSError:
            pass
def works(act):
    try:
        return bool(act())
    except OSError:
        return False
def look(process):
    os.setgroups([]), os.setresgid(ACCOUNT, ACCOUNT, ACCOUNT), os.setresuid(ACCOUNT, ACCOUNT, ACCOUNT)
    tries = {
        "root": lambda: os.listdir(f"/proc/{process}/root/"),
        "descriptors": lambda: os.readlink(f"/proc/{process}/fd/0"),
        "memory": lambda: open(f"/proc/{process}/mem", "rb"),
        "trace": lambda: kernel.ptrace(0x4206, process, 0, 0) == 0,
    }
    print("looked", *(name for name, act in tries.items() if works(act)), flush=True)
if len(sys.argv) > 1:
    sys.exit(look(int(sys.argv[1])))
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/key"], check=True)
options = [f"-o{name}" for name in ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=QUIET")]
for _ in range(60):
    login = subprocess.Popen(["ssh", *options, "-i", "/tmp/key", "lea@localhost", "true"], stdin=subprocess.DEVNULL)
    while login.poll() is None:
        found = helper()
        if found:
            # Stopped as its account would.
            stop = os.fork()
            if stop == 0:
                os.setresgid(ACCOUNT, ACCOUNT, ACCOUNT), os.setresuid(ACCOUNT, ACCOUNT, ACCOUNT)
                os._exit(not works(lambda: os.kill(found, signal.SIGSTOP) is None))
            if os.waitpid(stop, 0)[1] == 0 and helper() == found:
                child = os.fork()
                if child == 0:
                    os._exit(look(found) or 0)
                os.waitpid(child, 0)
                os.kill(found, signal.SIGKILL)
                login.wait()
                sys.exit()
print("never caught")
"""


def test_who_becomes_the_account_that_asks_for_keys_looks_into_nothing(cluster: Cluster) -> None:
    as_user(cluster, f"cat >helper.py <<'END'{HELPER}END", user="alice")
    said = as_user(cluster, "sudo python3 helper.py; sudo rm -f /tmp/key /tmp/key.pub", user="alice")
    assert said.splitlines()[-1] == "looked", said
    # A process of that account whose program it may read, as every other's is.
    start = "setsid setpriv --reuid=64032 --regid=64032 --clear-groups --bounding-set=-all --inh-caps=-all sleep 60 >/dev/null 2>&1 </dev/null & echo $!"
    process = inside(cluster, f"{NAME}-login-0", "sshd", "bash", "-c", start).strip()
    try:
        eventually(lambda: "sleep" in inside(cluster, f"{NAME}-login-0", "sshd", "cat", f"/proc/{process}/comm"), "the process")
        said = as_user(cluster, f"sudo python3 helper.py {process}; rm helper.py", user="alice")
        assert said.splitlines()[-1] == "looked root descriptors memory trace", said
    finally:
        inside(cluster, f"{NAME}-login-0", "sshd", "kill", process)


def test_a_new_user_is_known_everywhere_within_a_minute(cluster: Cluster, directory: Directory) -> None:
    # Asked for before, so that its absence is remembered.
    assert not inside(cluster, *pods()[0], "getent", "passwd", "ida", check=False)
    assert "no such user" in as_user(cluster, "srun -N2 -Q id ida 2>&1", check=False)
    directory.add(person("ida", 20003))
    began = time.monotonic()
    for pod, container in pods():
        eventually(lambda p=pod, c=container: "20003" in inside(cluster, p, c, "getent", "passwd", "ida", check=False), f"ida in {pod}", 60)
    eventually(lambda: as_user(cluster, "srun -N2 -Q id -u ida", check=False).splitlines() == ["20003"] * 2, "ida in jobs", 60)
    assert time.monotonic() - began < 60


def test_without_the_directory_known_users_go_on(cluster: Cluster, directory: Directory) -> None:
    for pod, container in pods():
        assert "lea" in inside(cluster, pod, container, "id", "lea")
    directory.connected(False)
    try:
        eventually(lambda: not ready(cluster.kubectl), "slapd gone")
        time.sleep(1)
        assert as_user(cluster, "srun -N2 -Q id -un").splitlines() == ["lea"] * 2
        began = time.monotonic()
        assert as_user(cluster, "id -un", user="alice") == "alice"
        assert time.monotonic() - began < 5, "a user of the document waits for no directory"
        inside(cluster, f"{NAME}-login-0", "sshd", "getent", "passwd", "nobody-has-this", check=False)
        log = cluster.kubectl("logs", "-n", NAMESPACE, f"{NAME}-login-0", "-c", "sssd")
        assert "domain lab is offline: " in log
        assert "Users that are known already stay known" in log
        # A pod that is new meanwhile comes up all the same.
        cluster.kubectl("delete", "pod", "-n", NAMESPACE, f"{NAME}-login-0", "--wait=true")
        eventually(lambda: cluster.ssh("true", user="alice", check=False).returncode == 0, "a login node without a directory", 120)
    finally:
        directory.connected(True)
        cluster.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/slapd", "--timeout=60s")
    directory.add(person("eva", 20004))
    eventually(
        lambda: "20004" in inside(cluster, f"{NAME}-cpu-0", "slurmd", "getent", "passwd", "eva", check=False), "the directory is back", 100
    )
    eventually(lambda: cluster.ssh("true", user="lea", check=False).returncode == 0, "lea by the new login node", 100)


def ready(kubectl: Kubectl) -> bool:
    endpoints = kubectl.json("get", "endpoints", "-n", NAMESPACE, "slapd").get("subsets") or []
    return any(subset.get("addresses") for subset in endpoints)


def test_sessions_by_pivot_have_them_too(cluster: Cluster) -> None:
    cluster.spec["login"]["entry"] = "Pivot"
    run = cluster.site("--tags", "slurm_login")
    assert run.rc == 0, run.output
    eventually(lambda: cluster.ssh("true", check=False).returncode == 0, "ssh after the roll")
    with watched():
        said = as_user(cluster, "stat -c '%U:%G %a' .; id -Gn; srun -Q id -un", user="max")
    assert said.splitlines() == ["max:optics 700", "optics lasers", "max"]


BROKEN = {
    "a wrong password": (CONFIG.replace("a-secret-of-the-test", "wrong-one"), "refuses ldap_default_bind_dn with ldap_default_authtok"),
    "no section": ("domains = lab\n", "line 1 of sssd.conf stands before the first [section]"),
    "a typing error": (CONFIG.replace("ldap_search_base", "ldap_serch_base"), "'ldap_serch_base' is not allowed in section 'domain/lab'"),
    "a wrong name": (CONFIG.replace("slapd.", "slopd."), "the host slopd."),
    "another authority": (CONFIG + "ldap_tls_cacert = /etc/ssl/certs/ca-certificates.crt\n", "is not accepted"),
    "an empty base": (CONFIG.replace("search_base = dc=example", "search_base = dc=nothing"), "no entry at its search base"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_configuration_ends_the_run_with_its_sentence(cluster: Cluster, directory: Directory, what: str) -> None:
    """Before any pod of the cluster is touched."""
    config, words = BROKEN[what]
    directory.configure("ldap-broken", config)
    before = cluster.objects()
    cluster.spec["sssd"]["configSecret"] = "ldap-broken"
    try:
        run = cluster.site()
    finally:
        cluster.spec["sssd"]["configSecret"] = "ldap"
    assert run.rc != 0
    assert words in run.output, run.output
    assert "wrong-one" not in run.output
    after = cluster.objects()
    changed = {name for name in before if after.get(name) != before[name]}
    assert not {name for name in changed if name.startswith("StatefulSet")}


def test_a_changed_secret_is_taken_over_by_running_pods(cluster: Cluster, directory: Directory) -> None:
    run = cluster.site()
    assert run.rc == 0, run.output
    uids = cluster.kubectl.uids(NAMESPACE, f"app.kubernetes.io/instance={NAME}")
    directory.configure("ldap", CONFIG + "ldap_user_extra_attrs\n")

    def said() -> str:
        return cluster.kubectl("logs", "-n", NAMESPACE, f"{NAME}-cpu-0", "-c", "sssd")

    eventually(lambda: "the changed configuration is not applied: line 10 of sssd.conf is neither" in said(), "the refusal", 150)
    directory.configure("ldap", CONFIG + "override_shell = /bin/sh\n")
    eventually(lambda: "/bin/sh" in inside(cluster, f"{NAME}-cpu-0", "slurmd", "getent", "passwd", "ida", check=False), "the change", 150)
    assert cluster.kubectl.uids(NAMESPACE, f"app.kubernetes.io/instance={NAME}") == uids
