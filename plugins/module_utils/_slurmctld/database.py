# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_database: dumps of the accounting database, and their restoration under a slurmctld that runs on.

images/mariadb/entry/database.sh does the work in a pod beside the database. What keeps half a restoration from being used is in the database itself: its
tables have a version from the first DROP to the last INSERT that no slurmdbd starts with. So whatever ends a run, another one begins where nothing is lost.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete, wait_gone
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Input, Sink, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, wait

_SCRIPT = "/usr/local/lib/corral/database.sh"
_STATE = "/var/spool/slurmctld/clustername"
_RECONFIGURE = ["/usr/local/lib/corral/controller.py", "reconfigure"]
_SHORT, _ENDING, _STARTING = 60.0, 120.0, 300.0
_WHOLE = b"-- Dump completed"
_TABLE = re.compile(rb"CREATE TABLE `(?:(convert_version)_table|(.+)_job_table)`")


@dataclass(frozen=True)
class Held:
    """What a database holds. ``closed``: a restoration has begun and not ended, so what is there is nobody's record."""

    closed: bool = False
    clusters: dict[str, int] = field(default_factory=dict)
    users: int = 0
    jobs: int = 0
    latest: int = 0

    @property
    def lost(self) -> str:
        """What a restoration would remove; "" where that is nothing."""
        if self.closed or not (self.users or self.jobs):
            return ""
        since = f", the latest of {time.strftime('%Y-%m-%d %H:%M', time.gmtime(self.latest))} UTC" if self.latest else ""
        return f"{self.jobs} jobs{since}, and {self.users} users of {', '.join(sorted(self.clusters)) or 'no cluster'}"


def held(text: str) -> Held:
    """Read the output of ``database.sh inspect``. Raises CorralError."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    try:
        jobs = [row for row in rows if row[0] == "jobs"]
        return Held(
            closed=next(row[1] for row in rows if row[0] == "closed") == "1",
            clusters={row[1]: int(row[2]) for row in rows if row[0] == "cluster"},
            users=sum(int(row[1]) for row in rows if row[0] == "users"),
            jobs=sum(int(row[1]) for row in jobs),
            latest=max((int(row[2]) for row in jobs), default=0),
        )
    except (StopIteration, IndexError, ValueError) as error:
        raise CorralError(
            f"The database's client printed {text.strip()[:200]!r}, which is no inspection; is its image that of this version?"
        ) from error


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Dump or restore; the parameters are those of the module slurm_database.

    Returns ``changed``, ``dump`` (path or name), ``sha256``, ``size`` and ``msg``. Raises CorralError.
    """
    del diff
    with connected(params) as client:
        database = _Database(client, params)
        result = database.dump(check) if params["state"] == "dumped" else database.restore(check)
        return {"changed": True, **result, "requests": client.requests}


class _Database:
    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        self._slurmctld = Slurmctld(client, params)
        self._client = client
        self._job = str(params.get("client") or f"{self._slurmctld.cluster}-backup-client")
        self._pod = ""
        self._path = Path(params["path"]) if params.get("path") else None
        self._params = params
        self._timeout = float(params["timeout"])

    def dump(self, check: bool) -> dict[str, Any]:
        where = self._path or f"the backup volume of {self._slurmctld.cluster}"
        if check:
            return {"msg": f"The accounting database would be dumped to {where}."}
        if self._path is None:
            printed = self._run("dump the database", "backup", str(self._params["keep"])).split()
            if len(printed) != 3:
                raise CorralError(
                    f"The dump to the backup volume printed {' '.join(printed)[:200]!r}; is the client's image that of this version?"
                )
            digest, size, name = printed
        else:
            digest, size, name = self._fetch(self._path)
        return {"dump": name, "sha256": digest, "size": int(size), "msg": f"The accounting database is dumped to {name} ({size} bytes)."}

    def _fetch(self, path: Path) -> tuple[str, str, str]:
        part = path.with_name(f".{path.name}.part")
        seen = _Seen()
        try:
            # It has what users name their jobs, and their scripts.
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:

                def sink(piece: bytes) -> None:
                    seen.take(piece)
                    file.write(piece)

                self._run("dump the database", "dump", sink=sink)
                seen.end(str(path))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise CorralError(f"The dump cannot be written to {path}: {error.strerror}; give another path.") from error
        finally:
            part.unlink(missing_ok=True)
        return seen.digest, str(seen.size), str(path)

    def restore(self, check: bool) -> dict[str, Any]:
        cluster = self._slurmctld.cluster
        if self._path is not None:
            _check_file(self._path, cluster)
        if check and self._started()[0] is None:
            # The client is made in a real run.
            dump = str(self._path or self._params["dump"])
            return {"dump": dump, "msg": f"The accounting database would be restored from {dump}, unless it holds records."}
        name = str(self._path or self._run("find the dump", "find", str(self._params["dump"]), cluster).strip())
        before = held(self._run("inspect the database", "inspect"))
        if before.lost and not self._params["force"]:
            raise CorralError(
                f"The database holds {before.lost}, all of which would be lost to what is in {name}; nothing was changed. Dump it first, or restore "
                "all the same with force=true."
            )
        if check:
            return {"dump": name, "msg": f"The accounting database would be restored from {name}."}
        own = self._cluster_id()
        self._run("close the database", "close")
        self._restart_slurmdbd()
        what = ("restore the database", "restore", cluster, str(own))
        if self._path is None:
            self._run(*what, name)
        else:
            with self._path.open("rb") as file:
                self._run(*what, stdin=file)
        # It may be in the pause after several failed starts.
        self._restart_slurmdbd()
        _last, missing = wait(_STARTING, self._slurmdbd, "slurmdbd starts with the restored database")
        if missing:
            raise KubeError(f"The database is restored from {name}, and slurmdbd does not start with it: {missing}.")
        told = self._reread()
        return {"dump": name, "msg": f"The accounting database is restored from {name}.{told}"}

    def _cluster_id(self) -> int:
        """Return the ClusterID that slurmctld compares with the database's when it starts; 0, for the dump's, where its pod cannot tell."""
        try:
            done = self._slurmctld.run(["cat", _STATE])
        except KubeError:
            return 0
        match = re.fullmatch(r"[^|]+\|(\d+)\s*", done.stdout)
        return int(match[1]) if done.code == 0 and match else 0

    def _restart_slurmdbd(self) -> None:
        """Delete slurmdbd's pods, and return when none writes any more. All at once: a backup takes over."""
        pods = [pod["metadata"] for pod in self._slurmctld.cluster_pods("accounting")]
        refs = [(Ref(BUILTIN["", "Pod"], self._slurmctld.namespace, str(pod["name"])), str(pod["uid"])) for pod in pods]
        for ref, uid in refs:
            delete(self._client, ref, uid=uid, propagation="Background")
        for ref, uid in refs:
            wait_gone(self._client, ref, uid, timeout=_ENDING)

    def _slurmdbd(self) -> tuple[None, str]:
        pods = self._slurmctld.cluster_pods("accounting")
        return None, next(filter(None, map(describe, pods)), "" if pods else "its pod is not there yet")

    def _reread(self) -> str:
        """Have slurmctld read the associations of the restored database, which it has in memory."""
        try:
            self._slurmctld.execute(_RECONFIGURE, "have slurmctld read the associations again")
        except KubeError as error:
            return f" slurmctld reads it when it starts again: {error}"
        return ""

    def _started(self) -> tuple[str | None, str]:
        """Return the pod of the client, if it runs, and what it lacks."""
        query = {"labelSelector": f"batch.kubernetes.io/job-name={self._job}"}
        path = BUILTIN["", "Pod"].path(self._slurmctld.namespace)
        pods = self._client.items(path, what=f"list the pods of Job {self._slurmctld.namespace}/{self._job}", query=query)
        missing = [describe(pod) for pod in pods] or [f"Job {self._job} has no pod; kubectl describe shows why"]
        running = next((str(pod["metadata"]["name"]) for pod, lacks in zip(pods, missing, strict=False) if not lacks), None)
        return running, "" if running else missing[0]

    def _run(self, what: str, *arguments: str, stdin: Input | None = None, sink: Sink | None = None) -> str:
        if not self._pod:
            pod, missing = wait(_STARTING, self._started, "the client of the database starts")
            if missing:
                raise KubeError(f"Could not {what}: its client does not start: {missing}.")
            self._pod = str(pod)
        long = arguments[0] in ("dump", "backup", "find", "restore", "inspect")
        done = run_in_pod(
            self._client,
            namespace=self._slurmctld.namespace,
            pod=self._pod,
            container="database",
            command=[_SCRIPT, *arguments],
            stdin=stdin,
            sink=sink,
            timeout=self._timeout if long else _SHORT,
        )
        if done.code != 0:
            raise KubeError(f"Could not {what}: {done.summary.rstrip('.')}.")
        return done.stdout


class _Seen:
    """What goes by of a compressed dump: its digest, its size, and its end."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._unzip = zlib.decompressobj(wbits=31)
        self._end = b""
        self.size = 0

    @property
    def digest(self) -> str:
        """The digest of all that was taken."""
        return self._sha256.hexdigest()

    def take(self, piece: bytes) -> None:
        """Take the next piece."""
        self._sha256.update(piece)
        self.size += len(piece)
        try:
            self._end = (self._end + self._unzip.decompress(piece))[-256:]
        except zlib.error as error:
            raise CorralError(f"The dump is damaged on its way ({error}); run again.") from error

    def end(self, path: str) -> None:
        """Raise CorralError unless all of a dump was taken."""
        if not self._unzip.eof or _WHOLE not in self._end:
            raise CorralError(f"The dump is not whole, so it is not kept as {path}; run again.")


def _check_file(path: Path, cluster: str) -> None:
    try:
        with gzip.open(path, "rb") as file:
            check_dump(file, str(path), cluster)
    except (OSError, EOFError, zlib.error) as error:
        raise CorralError(f"The dump {path} cannot be read: {error}; give one that corral.slurm.backup_database made.") from error


def check_dump(lines: IO[bytes] | Iterable[bytes], path: str, cluster: str) -> None:
    """Raise CorralError unless this is a whole dump of a database of slurmdbd that has records of the cluster."""
    last, versioned = b"", False
    clusters: set[str] = set()
    for line in lines:
        last = line
        match = _TABLE.match(line)
        if match:
            versioned = versioned or match[1] is not None
            clusters.update({match[2].decode(errors="replace")} if match[2] else ())
    if not last.startswith(_WHOLE):
        raise CorralError(f"The dump {path} is not whole: its last line is not 'Dump completed'; nothing was changed.")
    if not versioned:
        raise CorralError(f"{path} is no dump of an accounting database: it has no table convert_version_table; nothing was changed.")
    if cluster not in clusters:
        raise CorralError(
            f"The dump {path} has records of {', '.join(sorted(clusters)) or 'no cluster'} and none of {cluster}: it is another cluster's; nothing was changed."
        )
