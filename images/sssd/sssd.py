#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""sssd in the foreground, and its log as plain messages.

  run     the sidecar: sssd with the Secret's sssd.conf; a Secret that is changed later is taken over without a restart of the pod
  check   does that file lead to a directory that responds? Ends with 0, or with 1 and one sentence
  probe   does the sssd of this container respond? Does not query the directory

sssd wants a configuration of root's own that no other user reads, and a Secret's files are links that all may read: it gets a copy in memory.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

SECRET = pathlib.Path("/etc/corral/sssd/sssd.conf")
AUTHORITIES = pathlib.Path("/etc/corral/ldap-ca")
CONFIG = pathlib.Path("/etc/sssd")
STATE = pathlib.Path("/var/lib/sss")
PIDFILE = pathlib.Path("/run/sssd.pid")
TERMINATION_LOG = pathlib.Path("/dev/termination-log")
SOCKETS = ("nss", "ssh")
# sssd's levels 0 to 9 as bits, each with all before it.
BITS = (0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x1000, 0x2000, 0x4000)
# At this level sssd logs which server works.
NEEDED_LEVEL = 4
# At this one how a search ended.
CHECK_LEVEL = 6
CHECK_SECONDS = 60
# What a cluster wants unless the file sets it: no system ids from outside, and a directory that is back is found soon (sssd doubles
# its pauses up to an hour).
DEFAULTS = {"min_id": "1000", "offline_timeout": "20", "offline_timeout_max": "60", "offline_timeout_random_offset": "10"}

Sections = dict[str, dict[str, str]]


class SssdError(Exception):
    """sssd cannot do its work; one sentence with the next step."""


def say(text: str) -> None:
    """A line of the container's log."""
    print(f"sssd: {text}", file=sys.stderr, flush=True)


def parse(text: str) -> Sections:
    """The sections of an sssd.conf. Raises SssdError with the line that is none."""
    sections: Sections = {}
    current: dict[str, str] | None = None
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        head = re.fullmatch(r"\[([^\]]+)\]\s*", line)
        if head:
            current, key = sections.setdefault(head.group(1), {}), ""
        elif current is None:
            raise SssdError(f"line {number} of sssd.conf stands before the first [section]: correct it in the Secret")
        elif line[0] in " \t" and key:
            current[key] += f" {line.strip()}"
        elif "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            current[key] = value
        else:
            raise SssdError(f"line {number} of sssd.conf is neither a [section] nor key = value: correct it in the Secret")
    return sections


def domains(sections: Sections) -> dict[str, dict[str, str]]:
    """The domains that are in use, with their settings. Raises SssdError for what cannot work here."""
    names = [name.strip() for name in sections.get("sssd", {}).get("domains", "").split(",") if name.strip()]
    names += [
        name.removeprefix("domain/")
        for name, keys in sections.items()
        if name.startswith("domain/") and keys.get("enabled", "").lower() == "true" and name.removeprefix("domain/") not in names
    ]
    if not names:
        raise SssdError("sssd.conf names no domain: add 'domains = NAME' to its section [sssd], and a section [domain/NAME]")
    found = {}
    for name in names:
        if f"domain/{name}" not in sections:
            raise SssdError(f"sssd.conf has no section [domain/{name}] for the domain {name} of [sssd]: add it")
        found[name] = keys = sections[f"domain/{name}"]
        if keys.get("id_provider") != "ldap":
            raise SssdError(
                f"[domain/{name}] has id_provider = {keys.get('id_provider', '(nothing)')}: this image has LDAP, write id_provider = ldap"
            )
        if keys.get("access_provider", "permit") != "permit":
            # Fails closed: nothing would query it, since sessions come by key and jobs by uid.
            raise SssdError(
                f"[domain/{name}] has access_provider = {keys['access_provider']}, which has no effect on ssh keys and jobs: choose who may be a user "
                "by ldap_user_search_base with a filter, and remove access_provider"
            )
    return found


def additions(found: dict[str, dict[str, str]]) -> str:
    """What is added to the Secret's file: the services are ours, and a domain queries the directory for nothing that is unused here."""
    lines = ["[sssd]", f"services = {', '.join(SOCKETS)}"]
    for name, keys in found.items():
        lines += [f"[domain/{name}]", "sudo_provider = none", "autofs_provider = none"]
        lines += [f"{key} = {value}" for key, value in DEFAULTS.items() if key not in keys]
    return "\n".join(lines) + "\n"


class Report:
    """What sssd's log has, as messages when something changes; the rest of the log as far as it is wanted. Secrets never."""

    # Text of sssd's log → why a domain is offline. {0} is the first group, {uri} the domain's ldap_uri.
    CAUSES = (
        (r"ldap_install_tls failed: \[[^\]]*\] \[(.*)\]",
         "the certificate of {uri} is not accepted ({0}): ldap_uri has to name its host, and spec.sssd.caConfigMap the authority that signed it"),
        (r"START TLS result: (?!Success)(.*)", "{uri} refuses TLS ({0}): correct the server, or ldap_uri"),
        (r"Unable to establish connection .*: Authentication Failed",
         "{uri} refuses ldap_default_bind_dn with ldap_default_authtok: correct the name or the password in the Secret"),
        (r"Cannot parse authtok", "ldap_default_bind_dn is given without a password: add ldap_default_authtok to the Secret"),
        (r"Failed to resolve server '([^']*)': (.*)", "the host {0} of ldap_uri is not found ({1}): correct the name, or the DNS"),
        (r"connect failed \[\d+\]\[(.*)\]", "{uri} cannot be reached ({0}): see whether the server runs and a network policy lets the pods out"),
        (r"sssd_async_connect_timeout|[Tt]imed out",
         "{uri} does not respond: check that the server runs and that network policies let the pods connect"),
        (r"Unable to load module \[([^\]]*)\]", "this image has no provider '{0}': write ldap"),
    )  # fmt: skip
    LINE = re.compile(
        r"(?:\([^()]*\): )?\[(?P<process>[a-z_]+)(?:\[(?P<domain>[^\]]*)\])?\] \[(?P<function>\w+)\] \((?P<level>0x[0-9a-f]+)\): (?P<text>.*)"
    )

    def __init__(self, found: dict[str, dict[str, str]], level: int, out: Callable[[str], None] = say) -> None:
        self.found, self.out = found, out
        self.mask = sum(BITS[: level + 1])
        self.hidden = [value for keys in found.values() for key, value in keys.items() if "authtok" in key and "type" not in key and value]
        # Domain → "" when it is online, else why not. Those that were not queried yet are missing.
        self.states: dict[str, str] = {}
        self.complaints: list[str] = []
        # What it called an error, with the time.
        self.errors: collections.deque[tuple[float, str]] = collections.deque(maxlen=20)
        self._cause: dict[str, str] = {}
        self._shown = False

    def line(self, raw: str) -> None:
        """Take in one line of the log."""
        match = self.LINE.match(raw)
        if not match:
            # The rest of a message of several lines.
            if self._shown and raw.strip():
                self.out(self._clean(raw))
            return
        level, text = int(match["level"], 16), re.sub(r"^\[RID#\d+\] ", "", match["text"])
        # It prints the whole configuration.
        self._shown = bool(level & self.mask) and level < 0x8000 and match["function"] != "confdb_populate"
        if self._shown:
            self.out(self._clean(raw))
        if match["function"] == "sss_ini_call_validators":
            self.complaints.append(self._clean(re.sub(r"^\[rule/\w+\]: ", "", text)))
            self.out(f"sssd.conf: {self.complaints[-1]}")
        if level & 0x30 and level < 0x8000:
            self.errors.append((time.monotonic(), self._clean(text)))
        if match["domain"]:
            self._of_domain(match["domain"], text)

    def reason(self) -> str:
        """The first error of the last seconds: those after it are its consequences."""
        return next((text for when, text in self.errors if when > time.monotonic() - 5), "its log has no reason")

    def _of_domain(self, domain: str, text: str) -> None:
        for pattern, sentence in self.CAUSES:
            hit = re.search(pattern, text)
            if hit:
                uri = self.found.get(domain, {}).get("ldap_uri", "the server")
                self._cause[domain] = sentence.format(*(self._clean(group or "") for group in hit.groups()), uri=uri)
        if re.search(r"Marking port \d+ of server .* as 'working'", text):
            if self.states.get(domain) != "":
                self.out(f"domain {domain} is online")
            self.states[domain] = ""
            self._cause.pop(domain, None)
        elif "oing offline" in text or "Could not initialize backend" in text:
            why = self._cause.get(domain, f"the log has: {self.errors[-1][1] if self.errors else text}")
            if self.states.get(domain) != why:
                self.out(f"domain {domain} is offline: {why}. Users that are known already stay known, others are not found.")
            self.states[domain] = why
        elif "Search result: No such object" in text:
            base = self.found.get(domain, {}).get("ldap_search_base", "the server's own")
            self.complaints.append(f"the directory of domain {domain} has no entry at its search base ({base}): correct ldap_search_base")

    def _clean(self, text: str) -> str:
        for secret in self.hidden:
            text = text.replace(secret, "***")
        return text


def authorities() -> str:
    """The certificates of the ConfigMap, one after the other; "" where none is mounted."""
    if not AUTHORITIES.is_dir():
        return ""
    return "".join(
        f"{path.read_text().strip()}\n" for path in sorted(AUTHORITIES.iterdir()) if path.is_file() and not path.name.startswith(".")
    )


class Server:
    """sssd as configured: its files, its process, its log."""

    def __init__(self, level: int, least: int = NEEDED_LEVEL) -> None:
        self.level, self.least = level, least
        self.process: subprocess.Popen[str] | None = None
        self.report = Report({}, level)
        self.taken = ""

    def wanted(self) -> tuple[str, dict[str, dict[str, str]], str]:
        """The Secret's text, its domains, the authorities. Raises SssdError where sssd could not work with it."""
        try:
            text = SECRET.read_text()
        except OSError as error:
            raise SssdError(
                f"{SECRET.name} cannot be read ({error.strerror}): the Secret of spec.sssd.configSecret needs a key {SECRET.name}"
            ) from error
        except ValueError as error:
            raise SssdError(f"{SECRET.name} is not UTF-8 text: correct it in the Secret") from error
        certificates = authorities()
        if AUTHORITIES.is_dir() and any(AUTHORITIES.iterdir()) and "-----BEGIN CERTIFICATE-----" not in certificates:
            raise SssdError(
                "the ConfigMap of spec.sssd.caConfigMap holds no certificate in PEM form: give it one, which begins with -----BEGIN CERTIFICATE-----"
            )
        return text, domains(parse(text)), certificates

    def fingerprint(self) -> str:
        """Of what is mounted: another one means that the Secret or the ConfigMap has changed."""
        with contextlib.suppress(OSError, ValueError):
            return hashlib.sha256(f"{SECRET.read_text()}\0{authorities()}".encode()).hexdigest()
        return ""

    def start(self) -> None:
        """Write the files and run sssd. Raises SssdError."""
        self.taken = self.fingerprint()
        text, found, certificates = self.wanted()
        for path in (
            CONFIG / "conf.d",
            *(STATE / name for name in ("db", "mc", "pipes", "pipes/private", "pubconf", "pubconf/krb5.include.d")),
        ):
            path.mkdir(parents=True, exist_ok=True)
        for path, mode in (
            (STATE, 0o755),
            (STATE / "mc", 0o755),
            (STATE / "pipes", 0o755),
            (STATE / "pipes/private", 0o700),
            (STATE / "db", 0o700),
        ):
            path.chmod(mode)
        # Of a container before this one, whose process numbers come again.
        PIDFILE.unlink(missing_ok=True)
        for path, content in (
            (CONFIG / "sssd.conf", text),
            (CONFIG / "conf.d/corral.conf", additions(found)),
            (CONFIG / "ca.crt", certificates),
        ):
            path.touch(mode=0o600)
            path.write_text(content)
        environment = dict(os.environ)
        if certificates:
            environment["LDAPTLS_CACERT"] = str(CONFIG / "ca.crt")
        self.report = Report(found, self.level)
        self.process = subprocess.Popen(
            ["sssd", "-i", "--logger=stderr", "-d", str(max(self.least, self.level))], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        threading.Thread(target=self._read, args=(self.process, self.report), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], report: Report) -> None:
        assert process.stderr
        for line in process.stderr:
            report.line(line.rstrip("\n"))

    def stop(self) -> None:
        """End sssd."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.process.kill()
            self.process.wait()

    def ended(self) -> str | None:
        """Why sssd ended, or None while it runs."""
        if self.process is None or self.process.poll() is None:
            return None
        time.sleep(0.2)  # its last lines
        return f"sssd ended with status {self.process.returncode}: {self.report.reason()}; correct sssd.conf in the Secret"

    def renew(self) -> bool:
        """Take over a Secret or ConfigMap that has changed; an unusable one is reported once, and sssd keeps its configuration.

        True when sssd was started anew.
        """
        now = self.fingerprint()
        if now == self.taken:
            return False
        self.taken = now
        try:
            self.wanted()
        except SssdError as error:
            say(f"the changed configuration is not applied: {error}")
            return False
        say("the Secret or the ConfigMap has changed: sssd restarts with it")
        self.stop()
        self.start()
        return True


def ask() -> None:
    """Have sssd look up a user that is in no directory, so that it connects."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["getent", "-s", "sss", "passwd", f"corral-{time.monotonic_ns()}"], stdout=subprocess.DEVNULL, timeout=20, check=False
        )


def greet() -> None:
    """Ask as soon as sssd can respond, so that the log reports a wrong password now, and not when the first user comes."""
    until = time.monotonic() + 30
    while any(silent()) and time.monotonic() < until:
        time.sleep(0.5)
    ask()


def run(level: int) -> int:
    """The sidecar: ends only with sssd, or by a signal."""
    server = Server(level)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.start()
        threading.Thread(target=greet, daemon=True).start()
        while True:
            for _ in range(10):
                time.sleep(1)
                why = server.ended()
                if why:
                    raise SssdError(why)
            if server.renew():
                threading.Thread(target=greet, daemon=True).start()
    finally:
        server.stop()


def check() -> int:
    """Whether the directory responds."""
    server = Server(0, CHECK_LEVEL)
    try:
        server.start()
        until = time.monotonic() + CHECK_SECONDS
        while time.monotonic() < until:
            time.sleep(1)
            why = server.ended()
            if why:
                raise SssdError(why)
            if not responds(STATE / "pipes/nss"):
                continue
            ask()
            time.sleep(1)  # its log
            states = server.report.states
            for problem in (*server.report.complaints, *(f"domain {name} is offline: {why}" for name, why in states.items() if why)):
                raise SssdError(problem)
            if set(states) >= set(server.report.found):
                say("every domain responds")
                return 0
        raise SssdError(
            f"sssd did not reach {' and '.join(sorted(set(server.report.found) - set(server.report.states)))} within {CHECK_SECONDS} s"
        )
    finally:
        server.stop()


def responds(path: pathlib.Path) -> bool:
    """Whether a responder returns the version of its protocol."""
    # Length, command (SSS_GET_VERSION), status, reserved; then the version that is spoken here.
    with contextlib.suppress(OSError, struct.error), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(path))
        client.sendall(struct.pack("=5I", 20, 1, 0, 0, 1))
        return struct.unpack("=5I", client.recv(20, socket.MSG_WAITALL))[:3] == (20, 1, 0)
    return False


def silent() -> Iterator[str]:
    """Responders that do not respond."""
    return (name for name in SOCKETS if not responds(STATE / "pipes" / name))


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["run", "check", "probe"])
    parser.add_argument("--debug-level", type=int, choices=range(10), default=int(os.environ.get("CORRAL_SSSD_DEBUG_LEVEL") or 0))
    given = parser.parse_args(arguments)
    if given.what == "probe":
        missing = ", ".join(silent())
        if missing:
            print(f"sssd does not respond on {STATE}/pipes: {missing}")
        return 1 if missing else 0
    os.umask(0o022)
    try:
        return run(given.debug_level) if given.what == "run" else check()
    except SssdError as error:
        say(str(error))
        with contextlib.suppress(OSError):
            TERMINATION_LOG.write_text(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
