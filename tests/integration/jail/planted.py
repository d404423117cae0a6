# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people plant, link and move in the jail, and whom that reaches: a user, a user with sudo, who is root of the jail, and another cluster's user.

Each tries to plant all of it. What could not be planted was refused; of the rest it is looked who took it. What was planted is taken away from the
machine's side, for programs of the jail may not run meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..conftest import Cluster, eventually
from .conftest import Script, submit
from .test_failure import in_service
from .test_network import Places

WORKER = ("jail-one-0", "slurmd")
USER, SUDO, OTHER = "a user", "a user with `sudo`", "another cluster's user"
ROLES = (USER, SUDO, OTHER)
# Whom it may reach.
USERS, JAILS_ROOT = "users' programs", "root's programs in the jail"
# Row → by whom → whom it reached; None: it could not be planted.
Reach = dict[str, dict[str, frozenset[str] | None]]


def python(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


def inside(cluster: Cluster, pod: str, container: str, script: str) -> str:
    """What a script prints that runs in a container."""
    return cluster.kubectl("exec", "-n", cluster.namespace, pod, "-c", container, "--", "bash", "-c", script)


def login(cluster: Cluster) -> tuple[str, str]:
    return cluster.kubectl("get", "pods", "-n", cluster.namespace, "-l", "app.kubernetes.io/component=login", "-o", "name").strip(), "sshd"


@contextmanager
def a_session(script: Script, user: str = "alice", worker: str = "") -> Iterator[None]:
    """Somebody's session on the login node, and from there on a worker if told, for as long as the context lasts."""
    script("rm -f up down", user=user)
    waits = "touch up; until test -e down; do sleep 0.2; done"
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(script, f"ssh {worker} '{waits}'" if worker else waits, user)
        try:
            script("for i in $(seq 300); do test -e up && exit; sleep 0.2; done; exit 1", user=user)
            yield
        finally:
            script("touch down", user=user)
            session.result()
            script("rm -f up down", user=user)


@dataclass(frozen=True)
class Plant:
    """``made``: commands that plant it; {own} is the home of who does, {home} that of who is to suffer, {kept} a file of the pod's that is this plant's.
    ``places``: what they make or, by put_aside, replace. ``everybodys``: a plain user can, for it is the user's own.
    """

    what: str
    made: str
    places: tuple[str, ...]
    everybodys: bool = False


# Of commands that plant.
SHELL = """
put_aside() { for name; do if [ -e "$name" ] || [ -L "$name" ]; then mv -T "$name" "$name.saved"; fi; done; }
exchange() { python3 -c 'import ctypes, sys; one, two = (name.encode() for name in sys.argv[1:])
sys.exit(ctypes.CDLL(None).syscall(316, -100, one, -100, two, 2) != 0)' "$@"; }
"""
# Files of a pod that its root alone reads and writes.
KEPT = "/run/wall-kept"


@dataclass(frozen=True)
class Role:
    """``run``: a script with all the rights that they have, or can come by."""

    name: str
    own: str
    home: str
    run: Callable[[str], str]

    def kept(self, index: int) -> str:
        return f"{ROLES.index(self.name)}-{index}"

    def fill(self, text: str, index: int = 0) -> str:
        return text.replace("{own}", self.own).replace("{home}", self.home).replace("{kept}", f"{KEPT}/{self.kept(index)}")

    def plant(self, plants: Sequence[Plant]) -> dict[str, bool]:
        """What → whether it is planted."""
        lines = [
            f"bash -euc {shlex.quote(SHELL + self.fill(plant.made, index))} >/dev/null 2>&1 && echo {index} planted"
            for index, plant in enumerate(plants)
        ]
        said = self.run("\n".join([*lines, ":"])).splitlines()
        return {plant.what: f"{index} planted" in said for index, plant in enumerate(plants)}


# With a key that is one of this cluster's users', or is not.
AS_ALICE = "ssh -i /run/wall-key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR alice@{} {}"


def other_cluster(places: Places, who: str = "neighbour") -> Callable[[str], str]:
    """As root of a pod: in the jail, as if that pod had it, and by the login node, which is open to everybody."""
    namespace, pod, container = places.who[who]
    host = places.where["sshd"][0]

    def run(text: str) -> str:
        ways = [f"chroot /mnt/jail bash -c {shlex.quote(text)}", AS_ALICE.format(host, shlex.quote(f"sudo bash -c {shlex.quote(text)}"))]
        command = "; ".join(f"{way} 2>/dev/null </dev/null" for way in ways)
        return places.cluster.kubectl("exec", "-n", namespace, pod, "-c", container, "--", "bash", "-c", f"{command}; true")

    return run


@contextmanager
def with_a_key(places: Places, key: Path, who: str = "neighbour") -> Iterator[None]:
    """In the other cluster's pod."""
    namespace, pod, container = places.who[who]
    there = ("exec", "-n", namespace, pod, "-c", container, "--", "bash", "-c")
    places.cluster.kubectl(*there, f"umask 077; cat >/run/wall-key <<'END'\n{key.read_text()}END")
    try:
        yield
    finally:
        places.cluster.kubectl(*there, "rm -f /run/wall-key")


# Row → by whom → whether it is planted.
Planted = dict[str, dict[str, bool]]


@dataclass
class World:
    """All that is needed to plant and to look. ``key``: opens nobody's account until somebody has it among their keys."""

    cluster: Cluster
    script: Script
    root: Path
    mpi: str
    places: Places
    key: Path

    @property
    def roles(self) -> dict[str, Role]:
        def user(text: str) -> str:
            return self.script(f"bash -c {shlex.quote(text)}", user="bob", check=False)

        def root(text: str) -> str:
            return self.script(f"sudo bash -c {shlex.quote(text)}", check=False)

        # carol is who suffers from root of the jail: alice has to go on.
        found = (
            Role(USER, "/home/bob", "/home/bob", user),
            Role(SUDO, "/home/alice", "/home/carol", root),
            Role(OTHER, "/home/alice", "/home/alice", other_cluster(self.places)),
        )
        return {role.name: role for role in found}

    def inside(self, place: tuple[str, str], script: str) -> str:
        return inside(self.cluster, *place, script)

    def host(self, path: str) -> Path:
        """A path of the jail, as the machine has it."""
        return self.root / path.lstrip("/")

    @contextmanager
    def planted(self, plants: Sequence[Plant]) -> Iterator[Planted]:
        """Another cluster's user tries first, then a user, for whom root's would be in the way."""
        done: dict[str, dict[str, bool]] = {}
        try:
            for name in (OTHER, USER, SUDO):
                done[name] = self.roles[name].plant(plants)
            yield {plant.what: {name: done[name][plant.what] for name in ROLES} for plant in plants}
        finally:
            for name in (SUDO, USER):
                for plant in plants:
                    for place in plant.places:
                        self.take_away(self.host(self.roles[name].fill(place)), done.get(name, {}).get(plant.what, False))

    @staticmethod
    def take_away(place: Path, planted: bool) -> None:
        """And have there what was before. Who waits for a pipe goes on then."""
        saved = place.with_name(f"{place.name}.saved")
        pipe = os.open(place, os.O_RDWR) if not place.is_symlink() and place.is_fifo() else None
        if planted or os.path.lexists(saved):
            if not place.is_symlink() and place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        if os.path.lexists(saved):
            saved.rename(place)
        if pipe is not None:
            os.close(pipe)


def reached(planted: Planted, who: Callable[[str, str], Iterable[str]]) -> Reach:
    """``who(what, role)``: whom it reached."""
    return {what: {role: frozenset(who(what, role)) if done else None for role, done in by.items()} for what, by in planted.items()}


def together(one: Reach, other: Reach) -> Reach:
    """All of the first, and whom the second reached besides."""
    both: Reach = {}
    for what, by in one.items():
        also = other.get(what, {})
        both[what] = {role: None if who is None else who | (also.get(role) or frozenset()) for role, who in by.items()}
    return both


def refusals(found: Reach) -> set[tuple[str, str]]:
    return {(what, role) for what, by in found.items() for role, who in by.items() if who is None}


def refused_to(plants: Iterable[Plant]) -> set[tuple[str, str]]:
    """All to another cluster's user; to a user, but for what is the user's own."""
    return {(plant.what, role) for plant in plants for role in (USER, OTHER) if role == OTHER or not plant.everybodys}


def too_far(found: Reach) -> list[tuple[str, str, str]]:
    """What reached anybody but users' programs, and root's in the jail."""
    harmless = {USERS, JAILS_ROOT}
    return [
        (what, role, who) for what, by in found.items() for role, whom in by.items() for who in sorted((whom or frozenset()) - harmless)
    ]


# Libraries.

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Whoever loads it says so, and with which capabilities.
EVIL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((constructor)) static void ran(void)
{
    Dl_info me;
    char line[256];
    unsigned long long may = 0;
    FILE *status = fopen("/proc/self/status", "re");
    FILE *log = fopen("/planted", "ae");
    while (status && fgets(line, sizeof(line), status))
        sscanf(line, "CapEff: %llx", &may);
    if (log && dladdr(ran, &me))
        fprintf(log, "%s %llx\\n", me.dli_fname, may);
    if (log)
        fclose(log);
}
"""
SYS_ADMIN = 1 << 21
LEADS_OUT = "a program with a capability that leads out"


@dataclass(frozen=True)
class Library(Plant):
    """``path``: where it lies. ``command``: of a user, which loads it."""

    path: str = ""
    command: str = ""


def library(what: str, path: str, command: str, more: str = ":", replaced: tuple[str, ...] = (), everybodys: bool = False) -> Library:
    made = f"mkdir -p $(dirname {path}); put_aside {path}; cp /disk/evil.so {path}; {more}"
    return Library(what, made, (path, *replaced), everybodys, path, command)


HWLOC = "import ctypes; l = ctypes.CDLL('libhwloc.so.15'); t = ctypes.c_void_p(); l.hwloc_topology_init(ctypes.byref(t)); l.hwloc_topology_load(t)"
# A job's, set for it by its user: slurmstepd is started without.
ENVIRONMENT = "LD_PRELOAD={own}/evil-environment.so,LD_LIBRARY_PATH={own}/evil"
LIBRARIES_PLANTED = (
    library(
        "a module of the name services, by `/etc/nsswitch.conf`",
        f"{LIBRARIES}/libnss_evil.so.2",
        "getent passwd no-such-user",
        "sed 's/^passwd:.*/passwd: evil files/' /etc/nsswitch.conf >/etc/nsswitch.conf.new; put_aside /etc/nsswitch.conf; "
        "mv /etc/nsswitch.conf.new /etc/nsswitch.conf",
        ("/etc/nsswitch.conf",),
    ),
    library("a plugin of hwloc", f"{LIBRARIES}/hwloc/hwloc_evil.so", python(HWLOC)),
    library("a component of PMIx", f"{LIBRARIES}/pmix2/lib/pmix/pmix_mca_pcompress_evil.so", "mpirun -n 1 true"),
    library(
        "any library, by `/etc/ld.so.preload`",
        "/srv/evil-preload.so",
        "true",
        "put_aside /etc/ld.so.preload; echo /srv/evil-preload.so >/etc/ld.so.preload",
        ("/etc/ld.so.preload",),
    ),
    library(
        "any library, by a job's `LD_PRELOAD`", "{own}/evil-environment.so", "LD_PRELOAD={own}/evil-environment.so sleep 0", everybodys=True
    ),
    library(
        "a library that Slurm loads by its name, by a job's `LD_LIBRARY_PATH`",
        "{own}/evil/libhwloc.so.15",
        "LD_LIBRARY_PATH={own}/evil python3 -c \"import ctypes; ctypes.CDLL('libhwloc.so.15')\"",
        replaced=("{own}/evil",),
        everybodys=True,
    ),
)
PEOPLE = {USER: "bob", SUDO: "alice"}
MAPS = "for p in $(pgrep -u 0 -x '{}'); do cat /proc/$p/maps; done"


@contextmanager
def libraries_planted(world: World) -> Iterator[Planted]:
    script = world.script
    script(f"cat >evil.c <<'END'{EVIL}END\ngcc -shared -fPIC -o /disk/evil.so evil.c; rm evil.c; sudo sh -c 'umask 0; : >/planted'")
    try:
        with world.planted(LIBRARIES_PLANTED) as done:
            yield done
    finally:
        script("rm -f /disk/evil.so; sudo rm -f /planted")


def who_has_loaded(world: World, planted: Planted, maps: dict[str, str], log: str) -> Reach:
    """/lib, where the loader looks too, is a link to /usr/lib."""
    paths = {plant.what: plant.path for plant in LIBRARIES_PLANTED}

    def who(what: str, role: str) -> Iterator[str]:
        path = world.roles[role].fill(paths[what]).replace("/usr/lib", "/lib")
        yield from (name for name, text in maps.items() if path in text.replace("/usr/lib", "/lib"))
        programs = [int(may, 16) for place, may in (line.replace("/usr/lib", "/lib").split() for line in log.splitlines()) if place == path]
        if programs:
            yield USERS
        if any(may & SYS_ADMIN for may in programs):
            yield LEADS_OUT

    return reached(planted, who)


def libraries(world: World) -> Reach:
    """Jobs over both nodes run meanwhile, of a user and of the one with sudo, with sessions of both on one of them."""
    script = world.script
    with libraries_planted(world) as done:
        jobs = {}
        for role, user in PEOPLE.items():
            words = world.roles[role].fill(ENVIRONMENT)
            wrap = f"--mem=64M -o /dev/null --export=ALL,{words} --wrap 'srun --mpi={world.mpi} sleep 120'"
            jobs[user] = script(f"sbatch --parsable -N2 {wrap}", user=user)
        try:
            steps = {f"{job}.0" for job in jobs.values()}
            eventually(lambda: steps <= set(script("squeue -h -s -o %i").split()), "the steps")
            for user, job in jobs.items():
                script(f"srun -w one-0 --overlap --jobid={job} id nobody", user=user)
            # Debian's image of Slurm 26.05 has no plugins of hwloc and no PMIx: there it is hwloc itself, which would look for them.
            plugins = world.inside(WORKER, f"ls {LIBRARIES}/hwloc 2>/dev/null || true")
            own = ["/hwloc/hwloc_" if plugins else "/libhwloc.so", *(["/pmix_mca_"] if world.mpi == "pmix" else [])]
            eventually(
                lambda: all(name in world.inside(WORKER, MAPS.format("slurmstepd")) for name in own),
                "slurmstepd loads such plugins of its own",
            )
            with a_session(script, worker="one-0"), a_session(script, "bob", "one-0"):
                maps = {
                    "slurmstepd": world.inside(WORKER, MAPS.format("slurmstepd")),
                    "sshd of a worker": world.inside(WORKER, MAPS.format("sshd|sshd-session")),
                    "sshd of a login node": world.inside(login(world.cluster), MAPS.format("sshd|sshd-session")),
                }
        finally:
            for user, job in jobs.items():
                script(f"scancel {job}", user=user)
        for who, text in maps.items():
            assert ("libslurmfull" if who == "slurmstepd" else "libnss_corral") in text, f"the test did not read {who}"
        for role, user in PEOPLE.items():
            for plant in LIBRARIES_PLANTED:
                # It may fail over what it loads; whether it has loaded it, /planted tells.
                if done[plant.what][role]:
                    script(f"{world.roles[role].fill(plant.command)} || true", user=user)
        # Who loaded it for a moment only, too.
        return who_has_loaded(world, done, maps, script("cat /planted"))


def libraries_at_login(world: World) -> Reach:
    with libraries_planted(world) as done, a_session(world.script), a_session(world.script, "bob"):
        maps = {"sshd of a login node": world.inside(login(world.cluster), MAPS.format("sshd|sshd-session"))}
        return who_has_loaded(world, done, maps, world.script("cat /planted"))


# Links.


def link(place: str, everybodys: bool = False) -> Plant:
    made = f"mkdir -p $(dirname {place}); put_aside {place}; ln -s /proc/1/root{{kept}} {place}"
    return Plant(f"a link to a file of the pod in the place of `{place.replace('{home}', '~')}`", made, (place,), everybodys)


LINKS = (
    *map(link, ("/var/log/wtmp", "/var/log/lastlog", "/var/log/btmp", "/var/lib/wtmpdb/wtmp.db")),
    *map(link, ("/etc/localtime", "/etc/motd", "/etc/environment", "/etc/nsswitch.conf", "/etc/ld.so.preload")),
)
KEYS = link("{home}/.ssh/authorized_keys", everybodys=True)
LINKS_OF_KEYS = (KEYS, link("{home}/.ssh/corral.pub", everybodys=True))
# A name that root of the pod alone knows, and who is asked for it.
NAMES = {"passwd": "eve:x:10666:10666::/:/bin/sh", "group": "eves:x:10666:"}
LINKS_OF_NAMES = tuple(link(f"/etc/{name}") for name in NAMES)
WHOSE_DAEMONS = ("a worker's daemons", "a login node's daemons")


def keep(world: World, place: tuple[str, str], plants: Sequence[Plant], texts: Sequence[str]) -> None:
    """Files for links, that nobody has read or written since 1970."""
    files = {role.kept(index): text for role in world.roles.values() for index, text in enumerate(texts)}
    lines = [f"printf '%s\\n' {shlex.quote(text)} >{name}" for name, text in files.items()]
    assert len(plants) == len(texts)
    world.inside(place, "\n".join([f"umask 077; rm -rf {KEPT}; mkdir {KEPT}; cd {KEPT}", *lines, "touch -d @0 *"]))


def used(world: World, place: tuple[str, str]) -> set[str]:
    """Which of these files somebody has read or written. grep ends with 1 where that is none."""
    return set(world.inside(place, f"cd {KEPT}; stat -c '%X %Y %n' * | grep -v '^0 0 ' || true").split()[2::3])


def used_by_the_pods_root(world: World, plants: Sequence[Plant]) -> dict[str, bool]:
    """By the jail's path: the links lead there."""
    found = {}
    for index, plant in enumerate(plants):
        role = world.roles[SUDO]
        name, place = f"{KEPT}/{role.kept(index)}", f"/mnt/jail{role.fill(plant.places[0])}"
        said = world.inside(WORKER, f"touch -d @0 {name}; cat {place}; stat -c ' %X ' {name}; echo more >>{place}; cat {name}")
        found[plant.what] = said.strip().endswith("more") and " 0 " not in said
    return found


def opens(cluster: Cluster, key: Path, user: str) -> bool:
    """Whether that key opens an account on the login node, within the time that this takes when nothing is in the way."""
    known, cluster.key = cluster.key, key
    try:
        return cluster.ssh("true", user=user, check=False).returncode == 0
    finally:
        cluster.key = known


def on_to_a_worker(script: Script, key: Path, user: str) -> str:
    """What comes of it when that key is to open an account on a worker where its user has a job: "in", or a status. The system's configuration has the name."""
    options = "-o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    put = f"(umask 077; cat >wall-key <<'END'\n{key.read_text()}END\n)"
    return script(f"{put}\ntimeout 10 ssh -q {options} -i wall-key {user}@one-0 echo in || echo $?; rm wall-key").splitlines()[-1]


def a_step_of(script: Script, job: str) -> None:
    eventually(lambda: f"{job}.0" in script(f"squeue -h -s -j {job} -o %i").split(), "the step")


@contextmanager
def jobs(script: Script, *users: str) -> Iterator[dict[str, str]]:
    """A job of each on the worker, which is ended with the context."""
    found = {}
    try:
        for user in users:
            found[user] = submit(script, "-w one-0 --mem=64M -o /dev/null", user=user, command="sleep 600")
        yield found
    finally:
        for user, job in found.items():
            script(f"scancel {job}", user=user)


SUFFERS = {USER: "bob", SUDO: "carol"}


Pods = dict[str, tuple[str, str]]


def links(world: World, worker: bool = True) -> tuple[Reach, dict[str, bool]]:
    """And what the pod's own root does by them. ``worker``: there too, else at the login node alone."""
    pods = dict(zip(WHOSE_DAEMONS, (WORKER, login(world.cluster)), strict=True))
    if not worker:
        del pods[WHOSE_DAEMONS[0]]
    found: Reach = {}
    control: dict[str, bool] = {}
    for look in links_of_sessions, links_of_keys, links_of_names:
        more, seen = look(world, pods)
        found, control = found | more, control | seen
    for place in pods.values():
        world.inside(place, f"rm -rf {KEPT}")
    return found, control


@contextmanager
def linked(world: World, plants: Sequence[Plant], pods: Pods, texts: Sequence[str]) -> Iterator[tuple[Planted, Reach, dict[str, bool]]]:
    """The second is of those who used a file by its link, and the third what the pod's own root does by it: both are filled at the end."""
    for place in pods.values():
        keep(world, place, plants, texts)
    index = {plant.what: number for number, plant in enumerate(plants)}
    found: Reach = {}
    control: dict[str, bool] = {}
    with world.planted(plants) as done:
        yield done, found, control
        touched = {who: used(world, place) for who, place in pods.items()}
        found |= reached(done, lambda what, role: {who for who in pods if world.roles[role].kept(index[what]) in touched[who]})
        if WORKER in pods.values():
            control |= used_by_the_pods_root(world, plants)


def links_of_sessions(world: World, pods: Pods) -> tuple[Reach, dict[str, bool]]:
    """Sessions with terminals, which is what gets a record; a step, a health check."""
    cluster, script = world.cluster, world.script
    with (
        jobs(script, *(["alice"] if WORKER in pods.values() else [])) as running,
        linked(world, LINKS, pods, ["kept"] * len(LINKS)) as said,
    ):
        if running:
            assert "in" in cluster.ssh("ssh -tt one-0 echo in", "-tt").stdout.split()
            script("ssh -tt one-0 false", check=False)
            script(f"srun -Q --overlap --jobid={running['alice']} true")
            world.inside(WORKER, "timeout 20 /usr/local/lib/corral/health.sh")
        else:
            assert "in" in cluster.ssh("echo in", "-tt").stdout.split()
    return said[1:]


def links_of_keys(world: World, pods: Pods) -> tuple[Reach, dict[str, bool]]:
    """That key is to open accounts by what the links lead to. Beside the links, it does where it is one of the users' keys."""
    cluster, script, worker = world.cluster, world.script, WORKER in pods.values()
    opened: dict[str, set[str]] = {role: set() for role in ROLES}
    public = Path(f"{world.key}.pub").read_text().strip()
    with jobs(script, *(SUFFERS.values() if worker else [])):
        does = all(opened_by_a_key_of_the_users(world, user) for user in SUFFERS.values()) if worker else False
        with linked(world, LINKS_OF_KEYS, pods, [public] * 2) as (done, found, control):
            for role, user in SUFFERS.items():
                if opens(cluster, world.key, user):
                    opened[role].add(WHOSE_DAEMONS[1])
                if worker and on_to_a_worker(script, world.key, user) == "in":
                    opened[role].add(WHOSE_DAEMONS[0])
    by_key = reached(done, lambda _what, role: opened[role])
    return together(found, by_key), {what: seen and does for what, seen in control.items()}


def opened_by_a_key_of_the_users(world: World, user: str) -> bool:
    """At login and on to a worker."""
    keys = world.host(f"/home/{user}/.ssh/authorized_keys")
    before, owner = keys.read_text(), keys.stat()
    try:
        keys.write_text(Path(f"{world.key}.pub").read_text())
        os.chown(keys, owner.st_uid, owner.st_gid)
        return opens(world.cluster, world.key, user) and on_to_a_worker(world.script, world.key, user) == "in"
    finally:
        keys.write_text(before)


def links_of_names(world: World, pods: Pods) -> tuple[Reach, dict[str, bool]]:
    texts = list(NAMES.values())
    ask = "; ".join(f"getent {name} {line.partition(':')[0]}" for name, line in NAMES.items())
    with linked(world, LINKS_OF_NAMES, pods, texts) as (done, found, control):
        said = {who: world.inside(place, f"{ask}; true") for who, place in pods.items()}
    text = dict(zip([plant.what for plant in LINKS_OF_NAMES], texts, strict=True))
    known = reached(done, lambda what, _role: {who for who in pods if text[what] in said[who]})
    return together(found, known), control


# Pipes.


def pipe(place: str, everybodys: bool = False, owner: str = "") -> Plant:
    give = f"chown --reference={owner} {place}.new; " if owner else ""
    made = f"put_aside {place}; mkfifo -m 644 {place}.new; {give}mv {place}.new {place}"
    return Plant(f"a pipe in the place of `{place.replace('{home}', '~')}`", made, (place,), everybodys)


PIPES_OF_KEYS = (pipe("{home}/.ssh/authorized_keys", everybodys=True, owner="{home}"),)
# The last one holds up every program of the jail that is begun then.
PIPES_OF_STEPS = (pipe("/etc/nsswitch.conf"), pipe("/etc/localtime"), pipe("/etc/ld.so.preload"))
PIPES_OF_PODS = (pipe("/etc/corral-jail"), pipe("/etc/group"), pipe("/etc/passwd"))
PIPES = (*PIPES_OF_KEYS, *PIPES_OF_STEPS, *PIPES_OF_PODS)
HELD_UP = "124"


def holds_up_the_pods_root(world: World, plants: Sequence[Plant]) -> dict[str, bool]:
    """By the jail's path."""
    role = world.roles[SUDO]
    places = {plant.what: f"/mnt/jail{role.fill(plant.places[0])}" for plant in plants}
    return {what: world.inside(WORKER, f"timeout 0.5 cat {place}; echo $?").split()[-1] == HELD_UP for what, place in places.items()}


def pipes_of_keys(world: World) -> tuple[Reach, dict[str, bool]]:
    """sshd's, at login and on a worker."""
    held: dict[str, set[str]] = {role: set() for role in ROLES}
    with jobs(world.script, *SUFFERS.values()), world.planted(PIPES_OF_KEYS) as done:
        for role, user in SUFFERS.items():
            began = time.monotonic()
            assert not opens(world.cluster, world.key, user)
            if time.monotonic() - began > 10:
                held[role].add(WHOSE_DAEMONS[1])
            if on_to_a_worker(world.script, world.key, user) == HELD_UP:
                held[role].add(WHOSE_DAEMONS[0])
        control = holds_up_the_pods_root(world, PIPES_OF_KEYS)
    return reached(done, lambda _what, role: held[role]), control


def pipes(world: World) -> tuple[Reach, dict[str, bool]]:
    found: Reach = {}
    control: dict[str, bool] = {}
    for look in pipes_of_keys, pipes_of_steps, pipes_of_pods:
        more, seen = look(world)
        found, control = found | more, control | seen
    eventually(lambda: in_service(world.cluster), "all nodes in service again", timeout=90)
    return found, control


def pipes_of_steps(world: World) -> tuple[Reach, dict[str, bool]]:
    """A step, a session and a health check begin meanwhile. The step is begun in the pod, where programs are the pod's own."""
    cluster, held = world.cluster, set[str]()
    pod = login(cluster)
    with ThreadPoolExecutor(2) as pool, jobs(world.script, "alice") as running:
        step = f"setpriv --reuid=10001 --regid=10001 --clear-groups srun -Q --overlap --jobid={running['alice']} /usr/bin/true"
        with world.planted(PIPES_OF_STEPS) as done:
            waiting: list[Future[object]] = [pool.submit(world.inside, WORKER, step), pool.submit(cluster.ssh, "true", user="bob")]
            # What users' programs wait for, nobody before them has waited for.
            for name, place, user in ("slurmstepd", WORKER, "-u 10001 -x true"), ("sshd of a login node", pod, "-u 10002 -x bash"):
                if not comes(world, place, f"pgrep {user} || true"):
                    held.add(name)
            if world.inside(WORKER, "timeout 20 /usr/local/lib/corral/health.sh; echo $?").split()[-1] == HELD_UP:
                held.add("the health check")
            users = not any(one.done() for one in waiting)
            control = holds_up_the_pods_root(world, PIPES_OF_STEPS)
        for one in waiting:
            one.result()

    def who(what: str, role: str) -> Iterator[str]:
        yield from held
        if users and role == SUDO and what == PIPES_OF_STEPS[-1].what:
            yield USERS

    return reached(done, who), control


def comes(world: World, place: tuple[str, str], look: str) -> bool:
    """Whether a command, which may fail until then, says something within a time in which nobody is held up."""
    until = time.monotonic() + 20
    while not world.inside(place, look):
        if time.monotonic() > until:
            return False
        time.sleep(0.3)
    return True


def pipes_of_pods(world: World) -> tuple[Reach, dict[str, bool]]:
    """Who asks for names, and whoever looks whether the jail is one."""
    looks = {
        "a worker's daemons": (WORKER, "getent passwd nobody-has-this"),
        "a login node's daemons": (login(world.cluster), "getent passwd nobody-has-this"),
        "whoever enters the jail": (WORKER, "/opt/corral/bin/jail-exec --try plugstack=/run/slurm/conf/plugstack.conf wait=0 timeout=5"),
    }
    with world.planted(PIPES_OF_PODS) as done:
        held = {
            who for who, (place, command) in looks.items() if world.inside(place, f"timeout 10 {command}; echo $?").split()[-1] == HELD_UP
        }
        control = holds_up_the_pods_root(world, PIPES_OF_PODS)
    return reached(done, lambda _what, _role: held), control


# What is done beside a step that runs, or a health check.


def exchanged(top: str, more: str, why: str = "") -> Plant:
    made = f"mkdir {top}-of-ours; : >{top}-of-ours/wall; {more}; exchange {top}-of-ours {top}"
    return Plant(f"rename `{top}` of the jail{why}, with an exchange, while a step runs", made, ())


LINKED = "for n in {0}/*; do [ $n = {1} ] || ln -s {0}-of-ours/$(basename $n) {0}-of-ours/; done"
EXCHANGES = {
    "/opt": exchanged("/opt", "mkdir /opt-of-ours/corral", ", in which `/opt/corral` is mounted"),
    "/var": exchanged(
        "/var", f"{LINKED.format('/var', '/var/spool')}; mkdir -p /var-of-ours/spool/slurmd", ", in which `/var/spool/slurmd` is"
    ),
    "/usr": exchanged("/usr", LINKED.format("/usr", "-")),
}
SPOOL = "/var/spool/slurmd"
POINT = Plant(
    f"a link to `/etc` in the place of `{SPOOL}`, for a step that begins then", f"put_aside {SPOOL}; ln -s /etc {SPOOL}", (SPOOL,)
)
RAN = "$(basename $0) $(id -u) ${SLURM_JOB_ID:-none} $(sed -n 's/^CapEff:.//p' /proc/self/status) $([ -e /usr/sbin/slurmd ] && echo pod || echo jail)"


def program(path: str, why: str, ends: str) -> Plant:
    text = f"#!/bin/sh\necho {RAN} >>/ran\n{ends}"
    made = f"put_aside {path}; echo {shlex.quote(text)} >{path}.new; chmod 755 {path}.new; mv {path}.new {path}"
    return Plant(f"a program in the place of `{path}`, {why}", made, (path,))


PROGRAMS = (
    program("/usr/bin/su", "which slurmd has run for `--get-user-env`", 'exec /usr/bin/su.saved "$@"'),
    program("/usr/bin/true", "which ends with a failure", "exit 1"),
)
PMIX = Plant("a job's `SLURM_PMIX_TMPDIR=/proc/1/root/etc/ssh`", "", (), everybodys=True)
POD = "the pod's root"


def exchanges(world: World) -> Reach:
    """A copy of /usr by links, with one thing more in it, has its name; so have others of /opt and /var, in which mounts are."""
    plants = tuple(EXCHANGES.values())
    with jobs_step(world) as (step, task):
        for process in (*step, task):
            world.inside(WORKER, f"ls /proc/{process}/root/usr/bin")
        try:
            with world.planted(plants) as done:
                look = "; ".join(f"ls /proc/$p/root{top}/wall 2>/dev/null && echo {{}} {top}" for top in EXCHANGES)
                said = world.inside(
                    WORKER, f"for p in {' '.join(step)}; do {look.replace('{}', 'pod')}; done; p={task}; {look.replace('{}', 'user')}; true"
                )
        finally:
            for top in EXCHANGES:
                if world.host(f"{top}/wall").exists():
                    exchange(world.host(top), world.host(f"{top}-of-ours"))
                shutil.rmtree(world.host(f"{top}-of-ours"), ignore_errors=True)
    eventually(lambda: in_service(world.cluster), "all nodes in service after that", timeout=90)
    tops = {plant.what: top for top, plant in EXCHANGES.items()}
    names = {"user": USERS, "pod": POD}
    return reached(done, lambda what, _role: {who for word, who in names.items() if f"{word} {tops[what]}" in said.splitlines()})


def exchange(one: Path, other: Path) -> None:
    assert ctypes.CDLL(None).syscall(316, -100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


@contextmanager
def jobs_step(world: World) -> Iterator[tuple[list[str], str]]:
    """Numbers of the slurmstepds of a job with a step, and of its task."""
    job = submit(world.script, "-w one-0 -o /dev/null", command="srun sleep 120")
    try:
        a_step_of(world.script, job)
        # pgrep ends with 1 until there is one.
        eventually(lambda: world.inside(WORKER, "pgrep -u 10001 -x sleep || true") != "", "its task")
        step = world.inside(WORKER, "pgrep -u 0 -x slurmstepd").split()
        yield step, world.inside(WORKER, "pgrep -u 10001 -x sleep").split()[0]
    finally:
        world.script(f"scancel {job}")


def point(world: World) -> Reach:
    """Steps of a job that runs go on where the health check has seen it too, and lets no new job begin."""
    script = world.script
    before = script("srun -w one-0 stat -f -c %i:%T /etc")
    with jobs(script, "alice") as running, world.planted((POINT,)) as done:
        said = script(f"srun --overlap --jobid={running['alice']} echo it ran", check=False)
    assert "launch failed" in said or "it ran" in said, said
    eventually(lambda: in_service(world.cluster), "all nodes in service again", timeout=90)
    assert script("srun -w one-0 stat -f -c %i:%T /etc") == before
    if "it ran" not in said:
        log = world.cluster.kubectl("logs", "-n", world.cluster.namespace, WORKER[0], "-c", WORKER[1], "--tail=100")
        assert f"{SPOOL} cannot be shown in the jail: the jail has no such mount point" in log
    return reached(done, lambda _what, _role: {POD} if "it ran" in said else set())


def programs(world: World) -> Reach:
    script = world.script
    script("sudo sh -c 'umask 0; : >/ran'")
    try:
        with world.planted(PROGRAMS) as done:
            script("/usr/bin/true || :")
            script("sbatch -Q --wait --mem=64M -w one-0 --get-user-env -o /dev/null --wrap true")
            time.sleep(12)  # two health checks, which are made each five seconds here
            lines = (script("cat /ran") + "\n" + world.inside(WORKER, "cat /ran 2>/dev/null; rm -f /ran")).splitlines()
            well = in_service(world.cluster)
    finally:
        script("sudo rm -f /ran")
    ran = [line.split() for line in lines if line]

    def who(what: str, _role: str) -> Iterator[str]:
        for name, uid, job, capabilities, where in ran:
            if f"/{name}`" not in what:
                continue
            if int(capabilities, 16) & SYS_ADMIN or where == "pod":
                yield POD
            elif name == "true" and (uid, job) == ("0", "none"):
                yield "the health check"
            else:
                yield JAILS_ROOT if uid == "0" else USERS
        if "/true`" in what and not well:
            yield "the health check"

    return reached(done, who)


def pmix(world: World) -> Reach:
    """PMIx works, and its directory is where the job's own files are."""
    script, found = world.script, dict[str, frozenset[str] | None]()
    command = "SLURM_PMIX_TMPDIR=/proc/1/root/etc/ssh srun --mpi=pmix sleep 120"
    for role, user in PEOPLE.items():
        job = submit(script, "-w one-0 --mem=64M -o /dev/null", user=user, command=command)
        try:
            a_step_of(script, job)
            time.sleep(1)  # PMIx makes its directory when the step is there
            who = {USERS} if "pmix" in script(f"srun -Q --overlap --jobid={job} ls -A /tmp", user=user) else set[str]()
            if world.inside(WORKER, "find /etc -uid 10001 -o -uid 10002"):
                who.add(POD)
            found[role] = frozenset(who)
        finally:
            script(f"scancel {job}", user=user)
    said = world.roles[OTHER].run(f"sbatch --parsable --wrap {shlex.quote(command)}")
    return {PMIX.what: {USER: found[USER], SUDO: found[SUDO], OTHER: frozenset() if said.strip() else None}}


DONE = (*EXCHANGES.values(), POINT, *PROGRAMS, PMIX)


def beside_steps(world: World) -> Reach:
    return exchanges(world) | point(world) | programs(world) | (pmix(world) if world.mpi == "pmix" else {})
