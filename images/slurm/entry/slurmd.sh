#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmd, as root, configless.
#   SLURM_NODE_NAME      its name in slurm.conf; else made of POD_NAME less "CORRAL_CLUSTER-"
#   SLURM_CONF_SERVER    host:port of slurmctld
#   POD_IP               the pod's address, reported to slurmctld: it resolves a node's name once and would talk to the pod before this one
#   CORRAL_SSH           WithJob: sshd beside slurmd, for those who have a job on the node; Never (default)
#   CORRAL_LDAP_HOMES    set where users come from LDAP too, by the sssd beside
#   CORRAL_GPU_VENDOR    set where the node has GPUs; see gpus.sh
#   CORRAL_INIT_SCRIPTS  scripts that are run before slurmd is; see ready.sh
#   CORRAL_NO_NEW_PRIVILEGES  true: jobs gain no rights by set-uid programs, and what slurmd runs as root neither, which has them
#   CORRAL_CLOSED        more directories of the pod's that users must not write: empty volumes of its own, and /dev/mqueue where jobs have theirs
#   CORRAL_PROCESS_TRACKING  cgroup (default): makes the container's cgroup2 usable; linuxproc: leaves it alone
set -euo pipefail

# As the container's first process slurmd would never reap the orphans of jobs: each srun of a batch script leaves two.
if [ $$ = 1 ]; then
	exec tini -- "$0" "$@"
fi
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh
# shellcheck source-path=SCRIPTDIR source=ready.sh
. /usr/local/lib/corral/ready.sh

spool=/var/spool/slurmd
name=${SLURM_NODE_NAME:-}
if [ -z "$name" ] && [ -n "${POD_NAME:-}" ]; then
	name=${POD_NAME#"${CORRAL_CLUSTER:-}-"}
fi
[ -n "$name" ] || die "neither SLURM_NODE_NAME nor POD_NAME and CORRAL_CLUSTER are set: the pod does not know which node it is"
[ -n "${SLURM_CONF_SERVER:-}" ] || die "SLURM_CONF_SERVER is not set: it names slurmctld as host:port"

# slurmd can be started anew beside its steps, which then live on.
steps_live() {
	local comm
	for comm in /proc/[0-9]*/comm; do
		[ "$(cat "$comm" 2>/dev/null)" != slurmstepd ] || return 0
	done
	return 1
}

# What a container that was killed left behind: jobs of a node that no longer runs any. Their ids come again after a requeue, and
# slurmd refuses a batch script that is there already. Each step has a socket, and each batch job a folder.
clean_spool() {
	rm -rf --one-file-system "$spool"/job[0-9]* "$spool/${name}_"[0-9]* "$spool"/corral/tmp /dev/shm/corral
}

# sbcast and srun --bcast write in the pod, as the user (slurmd has no view of the jail). So the jail's volumes are at the same paths there as
# /home is; and no directory of the pod's own is left that a user may write: what is written there would be missing in the job's, outlive the job, and
# stand in the way of others (a file in the place of /dev/shm/corral ended every step). What users left there, in a pod's earlier life, is removed.
same_paths() {
	local path
	awk '$5 ~ "^/mnt/jail/" {print substr($5, 10)}' /proc/self/mountinfo | while read -r path; do
		[ -e "$path" ] || [ -L "$path" ] || { mkdir -p "$(dirname "$path")" && ln -s "/mnt/jail$path" "$path"; }
	done
}

close_to_users() {
	local directory closed
	read -ra closed <<<"${CORRAL_CLOSED:-}"
	# The kubelet makes empty volumes writable for all. Without the plus, chown asks for an account of that name first, also in the jail's passwd.
	chown +64031:+64031 /run/munge
	[ ! -d /run/sack ] || chown +64030:+64030 /run/sack /run/slurm-key
	for directory in /tmp /var/tmp /dev/shm /run/lock /run/munge /run/sack /run/slurm-key /run/slurm /var/spool/corral-overlay "${closed[@]}"; do
		[ ! -d "$directory" ] || chmod go-w "$directory"
	done
	for directory in /tmp /var/tmp /dev/shm /var/spool/corral-overlay; do
		[ ! -d "$directory" ] || find "$directory" -mindepth 1 -maxdepth 1 ! -uid 0 -exec rm -rf --one-file-system {} +
	done
}

# What sbcast names, slurmd opens as the user, and gives it a mode and an owner as root: /dev/null would be that user's, for the whole node. Devices on a read-only
# mount are written all the same. So is each that the runtime has laid somewhere by itself (over what it hides of /proc), and plain files for all (the
# kubelet's /dev/termination-log) are closed by it. When all else that makes something in /dev has been run.
close_devices() {
	local point
	mount --bind /dev/pts/ptmx /dev/pts/ptmx
	mount -o remount,bind,ro /dev
	awk '$5 !~ "^/mnt/(jails?|submounts)(/|$)" {print $5}' /proc/self/mountinfo | while read -r point; do
		[ -d "$point" ] || [ -z "$(find "$point" -maxdepth 0 -perm -0002 2>/dev/null)" ] || mount -o remount,bind,ro "$point"
	done
}

if [ "${CORRAL_PROCESS_TRACKING:-cgroup}" != linuxproc ]; then
	own_cgroup || [ $? != 1 ] || die "$cgroups is read-only and cannot be remounted: give the container SYS_ADMIN, or set processTracking: linuxproc"
fi
attach_submounts
same_paths
close_to_users
mkdir -p "$spool" /run/slurm
echo "$name" >/run/corral-node # for health.py
chmod 0755 "$spool"
steps_live || clean_spool
wait_for_auth
SLURM_CONF_SERVER=$(conf_servers)

# slurmctld keeps the address that a node's name had first (observed with 24.11.5, NoAddrCache or not), and the registration does not
# renew it; a changed NodeAddr does. Before slurmd registers: a job that starts in between would be sent to the pod before this one.
# scontrol fetches the configuration by itself here (SLURM_CONF_SERVER).
announce() {
	local until=$((SECONDS + 120))
	until timeout 15 scontrol update "nodename=$name" "nodeaddr=$POD_IP" >/dev/null 2>&1; do
		if [ "$SECONDS" -ge "$until" ]; then
			echo "slurmd.sh: slurmctld did not take this node's address $POD_IP within two minutes; it may not reach the node" >&2
			return
		fi
		sleep 1
	done
}
[ -z "${POD_IP:-}" ] || announce

steps_live || jobs_are_lost

if [ -n "${CORRAL_GPU_VENDOR:-}" ]; then
	ready "linking its GPUs" 60 /usr/local/lib/corral/gpus.sh
fi
steps_live || /usr/local/lib/corral/job_hook.sh start || true
run_init_scripts
close_devices
[ -z "${CORRAL_GPU_VENDOR:-}${CORRAL_INIT_SCRIPTS:-}" ] || back_in_service

# Its own process to be started again when it ends: slurmd.sh becomes slurmd.
if [ "${CORRAL_SSH:-Never}" = WithJob ]; then
	(/usr/local/lib/corral/worker_sshd.sh &)
fi

# The slurmstepd of the bundle can execute itself in the jail too, where the libraries of Debian's are missing.
slurmd=(/usr/sbin/slurmd -D -N "$name" --conf-server "$SLURM_CONF_SERVER" -d /opt/corral/sbin/slurmstepd)
# Without the file, what an administrator may have set by scontrol stays.
[ ! -e "$CORRAL_NODE_EXTRA" ] || slurmd+=(--extra "$(node_extra)")

[ -z "$(no_new_privileges)" ] || slurmd=(setpriv "$(no_new_privileges)" "${slurmd[@]}")

# slurmstepd logs to slurmd's log file and nowhere else, so that is the container's own stderr, kept open by tini. What slurmd prints
# on its stderr too is let through only until the log file has it.
if [ "$(cat /proc/1/comm)" = tini ]; then
	exec "${slurmd[@]}" -L /proc/1/fd/2 "$@" \
		2> >(sed -u '/slurmd version .* started/q' >&2; exec cat >/dev/null)
fi
exec "${slurmd[@]}" "$@"
