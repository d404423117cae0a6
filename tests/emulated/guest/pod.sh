#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
# pod.sh worker|login: its container as a runtime makes it, in its order: namespaces, cgroup, profile, filter, capabilities; then the image's own entry.
set -eu
inside() {
	umount /sys/fs/cgroup /sys/kernel/security
	mount -t cgroup2 -o ro cgroup /sys/fs/cgroup
	mount --bind "/etc.$1" /etc
	export CORRAL_JAILS=/mnt/jail
	case $1 in
	worker)
		export SLURM_NODE_NAME=n-0 POD_NAME=vm-n-0 POD_IP=192.0.2.1 CORRAL_CLUSTER=vm CORRAL_SSH=WithJob
		export CORRAL_GPU_VENDOR=nvidia CORRAL_GPU_COUNT=2
		export SLURM_CONF_SERVER=vm-controller.ns.svc.cluster.local:6817
		set -- worker /usr/local/lib/corral/slurmd.sh
		;;
	login)
		CORRAL_USER_LIMITS=$(cat /guest/user-limits)
		export CORRAL_USER_LIMITS
		set -- login /usr/local/lib/corral/login.sh -p 2222
		;;
	esac
	kind=$1
	shift
	exec python3 /guest/confine.py "$kind" setpriv "--bounding-set=$(cat "/guest/capabilities.$kind")" --inh-caps=-all "$@"
}
case $1 in
inside) inside "$2" ;;
in-cgroup)
	echo 0 >"/sys/fs/cgroup/$2/cgroup.procs"
	exec unshare --cgroup bash "$0" inside "$2"
	;;
*) exec unshare --pid --fork --mount --propagation private --mount-proc bash "$0" in-cgroup "$1" ;;
esac
