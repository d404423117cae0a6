# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's network as the lab needs it: its own address, forwarding, a few iptables rules; and taking all of it away again."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from .state import LabError

POD_RANGE = "10.241.0.0/16"
SERVICE_RANGE = "10.242.0.0/16"
API_SERVICE_ADDRESS = "10.242.0.1"
CHAIN = "CORRAL-LAB"
# The netfilter queue of packets to be decided on by NetworkPolicies, and the mark of those that are not allowed.
QUEUE, REFUSED = 10241, 0x1000000
# The kubelet writes the last six at its start, as on every Kubernetes node (pkg/kubelet/cm setupKernelTunables).
KERNEL_VALUES = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
PROC_SYS = Path("/proc/sys")


def node_range(index: int) -> str:
    """The pods' addresses of node `index` (from 1)."""
    return f"10.241.{index}.0/24"


def machine_address() -> str:
    """The machine's own IPv4 address: the source of its default route, else its first one that is not loopback. Raises LabError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        # Connecting a datagram socket sends nothing; it only asks the kernel which address it would use.
        probe.connect(("198.51.100.1", 9))
        address = str(probe.getsockname()[0])
        if not ipaddress.ip_address(address).is_loopback:
            return address
    for interface in _ip_json("-4", "addr", "show", "scope", "global"):
        for entry in interface.get("addr_info", []):
            if ipaddress.ip_address(entry["local"]) not in ipaddress.ip_network(POD_RANGE):
                return str(entry["local"])
    raise LabError(
        "This machine has only its loopback address, which pods cannot reach; "
        "give it another: ip link add lab0 type dummy && ip addr add 10.240.0.1/32 dev lab0 && ip link set lab0 up."
    )


def _ip_json(*arguments: str) -> list[dict[str, list[dict[str, str]]]]:
    done = subprocess.run(["ip", "-json", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}")
    result: list[dict[str, list[dict[str, str]]]] = json.loads(done.stdout or "[]")
    return result


def check_ranges_free() -> None:
    """Raises LabError when the machine already routes to addresses that the lab's pods or services would get."""
    done = subprocess.run(["ip", "-json", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=False)
    for route in json.loads(done.stdout or "[]"):
        destination = str(route.get("dst", "default"))
        if destination == "default":
            continue
        network = ipaddress.ip_network(destination, strict=False)
        for own in (POD_RANGE, SERVICE_RANGE):
            if network.prefixlen and network.overlaps(ipaddress.ip_network(own)):
                raise LabError(
                    f"This machine already has a route to {destination}, which overlaps the lab's {own}; take that route away and try again."
                )


def iptables_programs() -> list[str]:
    return [program for program in ("iptables", "ip6tables") if shutil.which(program)]


def _save(program: str) -> dict[str, list[str]]:
    """table → lines (`:CHAIN policy`, `-A …`) as the program's -save tells them."""
    done = subprocess.run([f"{program}-save"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{program}-save failed: {done.stderr.strip()}")
    return parse_save(done.stdout)


def parse_save(text: str) -> dict[str, list[str]]:
    """The output of iptables-save as table → its lines."""
    tables: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            current = tables.setdefault(line[1:], [])
        elif line.startswith((":", "-A")):
            current.append(line)
    return tables


def tables_present() -> list[str]:
    """ "iptables nat" and so on, for every table that exists now."""
    return [f"{program} {table}" for program in iptables_programs() for table in _save(program)]


def check_no_other_kube_proxy() -> None:
    """Raises LabError when rules of a kube-proxy that is not ours are there: two of them would overwrite each other."""
    nat = _save("iptables").get("nat", [])
    chains = {line[1:].split()[0] for line in nat if line.startswith(":")}
    if "KUBE-SERVICES" in chains and CHAIN not in chains:
        raise LabError(
            "Another Kubernetes' kube-proxy has its rules on this machine (chain KUBE-SERVICES); the lab would fight with it. "
            "Stop it, run `kube-proxy --cleanup`, and try again."
        )


def removal_script(table: str, lines: Sequence[str]) -> str:
    """Input for iptables-restore --noflush that takes the lab's and kube-proxy's chains, and all rules that lead to them, out of a table."""

    def ours(chain: str) -> bool:
        return chain == CHAIN or chain.startswith((f"{CHAIN}-", "KUBE-"))

    chains = [line[1:].split()[0] for line in lines if line.startswith(":")]
    own = [chain for chain in chains if ours(chain)]
    jumps = []
    for line in lines:
        words = line.split()
        if (
            words[0] == "-A"
            and not ours(words[1])
            and any(ours(target) for flag, target in itertools.pairwise(words) if flag in ("-j", "-g"))
        ):
            jumps.append("-D" + line[2:])
    if not own and not jumps:
        return ""
    # A chain named with a colon is emptied first, so that they can go in any order.
    return "\n".join([f"*{table}", *(f":{chain} - [0:0]" for chain in own), *jumps, *(f"-X {chain}" for chain in own), "COMMIT", ""])


def remove_rules(made_tables: Sequence[str]) -> None:
    """Take every rule and chain of the lab away, and the tables that came to be with them and are empty again."""
    for program in iptables_programs():
        for table, lines in _save(program).items():
            script = removal_script(table, lines)
            if script:
                done = subprocess.run(
                    [f"{program}-restore", "--noflush", "-w", "10"], input=script, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    raise LabError(f"The lab's rules could not be taken out of {program}'s table {table}: {done.stderr.strip()}")
        for table, lines in _save(program).items():
            if f"{program} {table}" in made_tables and not any(line.startswith("-A") or line.split()[1] == "-" for line in lines):
                _delete_table(program, table)


def delete_table_request(family: int, table: str) -> bytes:
    """A netlink batch that deletes one nftables table, as nft(8) would send it (linux/netfilter/nf_tables.h, nfnetlink.h)."""
    begin, end, delete_table, subsystem = 0x10, 0x11, 2, 10
    request, acknowledge = 1, 4

    def message(kind: int, flags: int, sequence: int, message_family: int, resource: int, payload: bytes = b"") -> bytes:
        body = struct.pack("=BBH", message_family, 0, socket.htons(resource)) + payload
        return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body

    name = table.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(name), 1) + name + b"\0" * (-len(name) % 4)
    return (
        message(begin, request, 1, 0, subsystem)
        + message(subsystem << 8 | delete_table, request | acknowledge, 2, family, 0, attribute)
        + message(end, request, 3, 0, subsystem)
    )


def _delete_table(program: str, table: str) -> None:
    """iptables' newer form cannot delete the nftables tables that it makes; the older form has none, and then nothing happens here."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as channel:
        channel.settimeout(2)
        channel.bind((0, 0))
        channel.send(delete_table_request(10 if program == "ip6tables" else 2, table))
        channel.recv(4096)


def wanted_rules() -> list[tuple[str, str, str, list[str]]]:
    """(table, built-in chain that jumps to ours, our chain, its rules). Pods keep their addresses among themselves: Slurm connects back to
    the address that it saw. Only what leaves their range is masqueraded. What begins a connection of a pod is queued for lab/kube/policies,
    before kube-proxy's filter rules, and rejected where it comes back marked; what the machine sends is not asked about, as on any node. The
    rules that accept matter where another program made FORWARD drop."""
    comment = "-m comment --comment corral-lab"
    queue = f"{comment} -j NFQUEUE --queue-num {QUEUE}"
    ask = ["-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN", f"-s {POD_RANGE} {queue}", f"-d {POD_RANGE} {queue}"]
    refuse = f"-m mark --mark {REFUSED:#x}/{REFUSED:#x} {comment} -j REJECT"
    wanted = [
        ("nat", "POSTROUTING", CHAIN, [f"-s {POD_RANGE} ! -d {POD_RANGE} {comment} -j MASQUERADE"]),
        ("mangle", "FORWARD", CHAIN, ask),
        ("mangle", "INPUT", CHAIN, ask),
        ("filter", "FORWARD", CHAIN, [refuse, f"-s {POD_RANGE} {comment} -j ACCEPT", f"-d {POD_RANGE} {comment} -j ACCEPT"]),
        ("filter", "INPUT", f"{CHAIN}-INPUT", [refuse]),
    ]
    return [(table, builtin, chain, [f"-A {chain} {rule}" for rule in rules]) for table, builtin, chain, rules in wanted]


def rules_missing() -> str | None:
    """Why the lab's own rules are not all there, or None."""
    saved = _save("iptables")
    for table, builtin, chain, rules in wanted_rules():
        lines = saved.get(table, [])
        if not any(line.startswith(f"-A {builtin} ") and line.endswith(f"-j {chain}") for line in lines):
            return f"iptables table {table}: {builtin} does not lead to {chain}"
        if sum(line.startswith(f"-A {chain} ") for line in lines) != len(rules):
            return f"iptables table {table}: chain {chain} is not as made"
    return None


def add_rules() -> None:
    """Make the lab's own chains, whatever is there of them."""
    for table, builtin, chain, rules in wanted_rules():
        script = "\n".join([f"*{table}", f":{chain} - [0:0]", *rules, "COMMIT", ""])
        done = subprocess.run(["iptables-restore", "--noflush", "-w", "10"], input=script, capture_output=True, text=True, check=False)
        jump = ["-m", "comment", "--comment", "corral-lab", "-j", chain]
        if done.returncode == 0 and _iptables(table, "-C", builtin, *jump).returncode:
            done = _iptables(table, "-I", builtin, *jump)
        if done.returncode:
            raise LabError(f"The lab's iptables rules could not be made in table {table}: {done.stderr.strip()}")


def _iptables(table: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["iptables", "-w", "10", "-t", table, *arguments], capture_output=True, text=True, check=False)


def read_kernel_values() -> dict[str, str]:
    values = {}
    for name in KERNEL_VALUES:
        with contextlib.suppress(OSError):
            values[name] = (PROC_SYS / name).read_text().strip()
    return values


def put_back_kernel_values(values: dict[str, str], names: Sequence[str] = KERNEL_VALUES) -> None:
    """Write what was there before, where it differs now."""
    for name in names:
        path = PROC_SYS / name
        with contextlib.suppress(OSError):
            if name in values and path.read_text().strip() != values[name]:
                path.write_text(values[name] + "\n")


def forwarding() -> bool:
    return (PROC_SYS / "net/ipv4/ip_forward").read_text().strip() == "1"


def forward() -> None:
    if not forwarding():
        (PROC_SYS / "net/ipv4/ip_forward").write_text("1\n")


def pod_interfaces() -> list[str]:
    """Host ends of pods' cables: interfaces that carry a gateway address of the pods' range."""
    pods = ipaddress.ip_network(POD_RANGE)
    found = []
    for interface in _ip_json("-4", "addr", "show"):
        addresses = [ipaddress.ip_address(entry["local"]) for entry in interface.get("addr_info", [])]
        if any(address in pods for address in addresses):
            found.append(str(interface["ifname"]))
    return found


def remove_pod_interfaces() -> None:
    """The kernel removes a cable when a pod's network namespace ends, a moment later; what is left after that moment goes by hand."""
    deadline = time.monotonic() + 2
    while pod_interfaces() and time.monotonic() < deadline:
        time.sleep(0.05)
    for name in pod_interfaces():
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def cni_config(name: str, data: Path, index: int) -> str:
    """A node's CNI configuration: a routed cable (ptp) a pod, no bridge, no masquerading, no hostPort mapping."""
    document = {
        "cniVersion": "0.4.0",
        "name": name,
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(data),
                    "ranges": [[{"subnet": node_range(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    return json.dumps(document, indent=1) + "\n"
