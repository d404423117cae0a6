# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane: etcd, API server, controller manager, scheduler, and those that serve all nodes of the machine: kube-proxy, CoreDNS and
what enforces NetworkPolicies."""

from __future__ import annotations

import json
from pathlib import Path

from .health import Api, http_answer
from .network import POD_RANGE, QUEUE, REFUSED, SERVICE_RANGE
from .processes import Part
from .state import Paths, write_file

ETCD_PORT, ETCD_PEER_PORT, ETCD_HEALTH_PORT = 16379, 16380, 16381
API_PORT = 16443
CONTROLLER_MANAGER_PORT, SCHEDULER_PORT = 16257, 16259
PROXY_HEALTH_PORT, PROXY_METRICS_PORT = 16256, 16249
POLICIES_HEALTH_PORT = 16258
DNS_HEALTH_PORT, DNS_READY_PORT, DNS_PORT = 16080, 16081, 53
CLIENTS = ("controller-manager", "scheduler", "kube-proxy", "coredns")


def server(address: str) -> str:
    return f"https://{address}:{API_PORT}"


def audit_policy() -> str:
    """Who did what to which object, once a request and without contents (so no Secret's), for tests that count writes."""
    document = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
    return json.dumps(document, indent=1) + "\n"


def scheduler_config(paths: Paths) -> str:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(paths.config / "scheduler.kubeconfig"), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
    }
    return json.dumps(document, indent=1) + "\n"


def proxy_config(paths: Paths, address: str) -> str:
    """kube-proxy's settings. One serves all nodes, since they share the machine's network. It leaves the kernel's settings alone."""
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(paths.config / "kube-proxy.kubeconfig"), "qps": 500, "burst": 1000},
        "mode": "iptables",
        "hostnameOverride": "node1",
        "bindAddress": address,
        "clusterCIDR": POD_RANGE,
        "detectLocalMode": "ClusterCIDR",
        "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": f"127.0.0.1:{PROXY_METRICS_PORT}",
        # NodePorts on 127.0.0.1 would need route_localnet; conntrack's limits are not the lab's to change.
        "iptables": {"localhostNodePorts": False, "syncPeriod": "30s", "minSyncPeriod": "0s"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }
    return json.dumps(document, indent=1) + "\n"


def corefile(paths: Paths, address: str, resolv_conf: str) -> str:
    """CoreDNS's settings. Names of the cluster are answered from memory and never cached, so that a new pod's record is seen at once;
    their time to live, of denials as well, is a second."""
    # A machine without the outside world says so at once.
    forward = (
        "    forward . /etc/resolv.conf {\n        failfast_all_unhealthy_upstreams\n    }\n"
        if any(line.split()[:1] == ["nameserver"] for line in resolv_conf.splitlines())
        else ""
    )
    cached = forward + "    cache {\n        success 2000 30 0\n        denial 2000 2 0\n    }\n" if forward else ""
    health = f"    health 127.0.0.1:{DNS_HEALTH_PORT} {{\n        lameduck 0s\n    }}\n    ready 127.0.0.1:{DNS_READY_PORT}\n"
    return f"""cluster.local in-addr.arpa ip6.arpa {{
    bind {address}
    errors
{health}    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {paths.config}/coredns.kubeconfig
        pods insecure
        ttl 1
        fallthrough in-addr.arpa ip6.arpa
    }}
{forward}}}
. {{
    bind {address}
    errors
{cached}}}
"""


def write_configs(paths: Paths, address: str) -> None:
    write_file(paths.config / "audit-policy.json", audit_policy())
    write_file(paths.config / "scheduler.json", scheduler_config(paths))
    write_file(paths.config / "kube-proxy.json", proxy_config(paths, address))
    machine = Path("/etc/resolv.conf")
    write_file(paths.config / "Corefile", corefile(paths, address, machine.read_text() if machine.exists() else ""))
    # Pods that take the node's resolver get the lab's DNS, without the machine's search domains.
    write_file(paths.config / "resolv.conf", f"nameserver {address}\n")


def etcd_part(paths: Paths) -> Part:
    client, peer, health = (f"https://127.0.0.1:{ETCD_PORT}", f"https://127.0.0.1:{ETCD_PEER_PORT}", f"http://127.0.0.1:{ETCD_HEALTH_PORT}")
    certificate, key = paths.pki / "etcd.crt", paths.pki / "etcd.key"
    command = (
        f"{paths.bin}/etcd",
        "--name=lab",
        f"--data-dir={paths.root}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--listen-metrics-urls={health}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        f"--trusted-ca-file={certificate}",
        "--client-cert-auth",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
        f"--peer-trusted-ca-file={certificate}",
        "--peer-client-cert-auth",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=30m",
        "--log-level=warn",
    )
    ports = (("127.0.0.1", ETCD_PORT), ("127.0.0.1", ETCD_PEER_PORT), ("127.0.0.1", ETCD_HEALTH_PORT))
    return Part("etcd", command, lambda: http_answer(f"{health}/health"), ports)


def api_server_part(paths: Paths, address: str, api: Api) -> Part:
    pki = paths.pki
    command = (
        f"{paths.bin}/kube-apiserver",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={API_PORT}",
        f"--cert-dir={paths.root}/apiserver",
        f"--etcd-servers=https://127.0.0.1:{ETCD_PORT}",
        f"--etcd-cafile={pki}/etcd.crt",
        f"--etcd-certfile={pki}/etcd.crt",
        f"--etcd-keyfile={pki}/etcd.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        # The nodes' names are known to nobody's resolver.
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={paths.config}/audit-policy.json",
        f"--audit-log-path={paths.log}/audit.log",
        "--audit-log-maxsize=20",
        "--audit-log-maxbackup=9",
        "--profiling=false",
    )
    return Part("kube-apiserver", command, api.ready, ((address, API_PORT),))


def controller_manager_part(paths: Paths) -> Part:
    pki, kubeconfig = paths.pki, paths.config / "controller-manager.kubeconfig"
    command = (
        f"{paths.bin}/kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={CONTROLLER_MANAGER_PORT}",
        f"--cert-dir={paths.root}/controller-manager",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--flex-volume-plugin-dir={paths.root}/volume-plugins",
    )
    health = f"https://127.0.0.1:{CONTROLLER_MANAGER_PORT}/healthz"
    return Part("kube-controller-manager", command, lambda: http_answer(health), (("127.0.0.1", CONTROLLER_MANAGER_PORT),))


def scheduler_part(paths: Paths) -> Part:
    kubeconfig = paths.config / "scheduler.kubeconfig"
    command = (
        f"{paths.bin}/kube-scheduler",
        f"--config={paths.config}/scheduler.json",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={SCHEDULER_PORT}",
        f"--cert-dir={paths.root}/scheduler",
    )
    return Part(
        "kube-scheduler", command, lambda: http_answer(f"https://127.0.0.1:{SCHEDULER_PORT}/healthz"), (("127.0.0.1", SCHEDULER_PORT),)
    )


def proxy_part(paths: Paths) -> Part:
    command = (f"{paths.bin}/kube-proxy", f"--config={paths.config}/kube-proxy.json")
    ports = (("127.0.0.1", PROXY_HEALTH_PORT), ("127.0.0.1", PROXY_METRICS_PORT))
    return Part("kube-proxy", command, lambda: http_answer(f"http://127.0.0.1:{PROXY_HEALTH_PORT}/healthz"), ports)


def dns_part(paths: Paths, address: str) -> Part:
    command = (f"{paths.bin}/coredns", "-conf", f"{paths.config}/Corefile")
    ports = ((address, DNS_PORT), ("127.0.0.1", DNS_HEALTH_PORT), ("127.0.0.1", DNS_READY_PORT))
    return Part("coredns", command, lambda: http_answer(f"http://127.0.0.1:{DNS_READY_PORT}/ready"), ports)


def policies_part(paths: Paths) -> Part:
    """One serves all nodes: it is asked about every packet that begins a connection of a pod (network.wanted_rules)."""
    command = (
        f"{paths.bin}/network-policies",
        f"-kubeconfig={paths.kubeconfig}",
        f"-queue={QUEUE}",
        f"-mark={REFUSED}",
        f"-health=127.0.0.1:{POLICIES_HEALTH_PORT}",
    )
    ports = (("127.0.0.1", POLICIES_HEALTH_PORT),)
    return Part("network-policies", command, lambda: http_answer(f"http://127.0.0.1:{POLICIES_HEALTH_PORT}/"), ports)


def grant_dns(api: Api) -> None:
    """The rights of the lab's CoreDNS, whose kubeconfig names a user of the lab's own."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    name = "corral-lab:coredns"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    api.apply(f"{rbac}/clusterroles/{name}", role)
    api.apply(f"{rbac}/clusterrolebindings/{name}", binding)
