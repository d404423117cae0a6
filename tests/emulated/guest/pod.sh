#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
# A worker's container as a runtime makes it, in its order: namespaces, cgroup, profile, filter, capabilities; then the image's own entry.
set -eu
inside() {
	umount /sys/fs/cgroup /sys/kernel/security
	mount -t cgroup2 -o ro cgroup /sys/fs/cgroup
	export SLURM_NODE_NAME=n-0 POD_NAME=vm-n-0 POD_IP=192.0.2.1 CORRAL_CLUSTER=vm CORRAL_SSH=WithJob CORRAL_JAILS=/mnt/jail
	export SLURM_CONF_SERVER=vm-controller.ns.svc.cluster.local:6817
	exec python3 /guest/confine.py setpriv "--bounding-set=$(cat /guest/capabilities)" --inh-caps=-all /usr/local/lib/corral/slurmd.sh
}
case ${1:-} in
inside) inside ;;
in-cgroup)
	echo 0 >/sys/fs/cgroup/pod/cgroup.procs
	exec unshare --cgroup bash "$0" inside
	;;
*) exec unshare --pid --fork --mount --propagation private --mount-proc bash "$0" in-cgroup ;;
esac
