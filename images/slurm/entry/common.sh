# shellcheck shell=bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# What the entry points share; sourced, never run.

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

daemons=()

# Ends the processes in $daemons, and waits for all: a signal ends the wait alone, and how they end does not count. One may be gone already.
end_daemons() {
	kill "${daemons[@]}" 2>/dev/null || true
	while [ -n "$(jobs -pr)" ]; do
		wait || true
	done
}

cgroups=/sys/fs/cgroup

# Makes the container's own cgroup tree one to make cgroups in. Runtimes mount it read-only for containers that are not privileged, and put the
# container's processes into its root, where cgroup2 allows controllers only to trees without processes. 1: it cannot be written. 2: it is of version 1,
# or the Kubernetes node's, and stays as it is.
own_cgroup() {
	local pids pid controller
	[ "$(stat -f -c %T "$cgroups")" = cgroup2fs ] || return 2
	if [ ! -w "$cgroups/cgroup.procs" ]; then
		mount -o remount,bind,rw "$cgroups" || return 1
	fi
	[ "$(cat "$cgroups/cgroup.type" 2>/dev/null || echo root)" != root ] || return 2
	mkdir -p "$cgroups/corral" || return 1
	# The whole list first: it gets shorter with each that is moved, and a reader would go on in the midst of a number.
	mapfile -t pids <"$cgroups/cgroup.procs"
	for pid in "${pids[@]}"; do
		echo "$pid" >"$cgroups/corral/cgroup.procs" 2>/dev/null || true # it may have ended
	done
	for controller in $(<"$cgroups/cgroup.controllers"); do
		echo "+$controller" >"$cgroups/cgroup.subtree_control" || echo "${0##*/}: the cgroup controller $controller cannot be used in this container" >&2
	done
}

# Where Slurm authenticates by itself (spec.slurm.auth), sack.sh has put the key there. Without the variable Slurm takes munge to fetch its configuration.
sack_key=/run/slurm-key
[ ! -d "$sack_key" ] || export SLURM_SACK_KEY=$sack_key/slurm.key SLURM_SACK_JWKS=$sack_key/slurm.jwks

# Of a process: another text where it has executed itself anew, as Slurm's daemons do on SIGHUP, under the same number.
execution() {
	cksum <"/proc/$1/auxv"
}

# Commands, and slurmstepd, ask for a credential at this path. In the jail the link leads to the socket for those in the jail, in the pod to the pod's.
link_sack_socket() {
	ln -sfnT /run/sack/sack.socket /run/slurm/sack.socket
}

wait_for_auth() {
	local tries=0
	if [ ! -d /run/sack ]; then
		wait_for_munge
		return
	fi
	# sshd of a login pod has no key.
	until [ -S /run/sack/sack.socket ] && { [ ! -d "$sack_key" ] || [ -r "$SLURM_SACK_JWKS" ]; }; do
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || die "no sackd made /run/sack/sack.socket within 60 s: check the log of the container sack"
		sleep 0.1
	done
	link_sack_socket
}

# Slurm's daemons hang for minutes in their start when munge does not respond.
wait_for_munge() {
	local tries=0
	until [ -S /run/munge/munge.socket.2 ] && munge -n -S /run/munge/munge.socket.2 >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || die "munged did not respond on /run/munge/munge.socket.2 within 60 s: check the log of the container munged"
		sleep 0.1
	done
}

# The key that signs tokens, for slurmctld and slurmdbd: they refuse a file that others may read, and a Secret's files belong to root.
install_token_key() {
	[ -e /etc/corral/jwt ] || return 0
	[ -s /etc/corral/jwt/jwt.key ] || die "/etc/corral/jwt/jwt.key is missing or empty: mount the Secret of the tokens' key there"
	install -m 0400 /etc/corral/jwt/jwt.key /run/slurm-jwt/jwt.key
}

# Where slurmctld is, with its backup where the cluster has one now: its name is the primary's with -1. Asked for at each start, so that a change of
# spec.controller.replicas restarts neither login nor worker pods.
conf_servers() {
	local host=${SLURM_CONF_SERVER%:*} port=${SLURM_CONF_SERVER##*:} backup
	backup="${host%%.*}-1.${host#*.}"
	if getent hosts "$backup" >/dev/null; then
		echo "$SLURM_CONF_SERVER,$backup:$port"
	else
		echo "$SLURM_CONF_SERVER"
	fi
}

# sshd refuses keys that others can read; a Secret's files are links.
install_host_keys() {
	local key keys=/etc/corral/host-keys
	install -d -m 0700 /etc/ssh/host-keys
	for key in "$keys"/ssh_host_*_key; do
		[ -r "$key" ] || die "no ssh_host_*_key in $keys: mount the Secret of the host keys there"
		install -m 0600 "$key" /etc/ssh/host-keys/
	done
	for key in /etc/ssh/host-keys/*; do
		printf 'HostKey %s\n' "$key"
	done >/etc/ssh/sshd_config.d/10-host-keys.conf
}

# The option of setpriv by which no descendant of a daemon gains rights by what it executes (CORRAL_NO_NEW_PRIVILEGES=true); none without it.
no_new_privileges() {
	[ "${CORRAL_NO_NEW_PRIVILEGES:-}" != true ] || echo --no-new-privs
}

# Users of a directory have their keys there too: sshd asks the sssd beside it. Without one the C library queries none: the socket's path would be one of
# the jail for a session that has entered it, and whoever is root there could respond.
use_directory() {
	if [ -z "${CORRAL_LDAP_HOMES:-}" ]; then
		sed -i 's/ sss$//' /etc/nsswitch.conf
		return
	fi
	cat >/etc/ssh/sshd_config.d/30-ldap.conf <<-END
		AuthorizedKeysCommand /usr/local/lib/corral/ldap-keys/sss_ssh_authorizedkeys %u
		AuthorizedKeysCommandUser corral-keys
	END
}

# Attaches the pod's volumes below each of its jails. Not the container's runtime does it: that follows links, which root in a jail can plant.
#   CORRAL_JAILS      roots of jails
#   CORRAL_SUBMOUNTS  SOURCE:PATH[:ro] each
#   CORRAL_SCRATCH    those sources that the kubelet makes anew, writable by all: to be like /tmp
attach_submounts() {
	local jail mount
	local -a binds=() jails=() scratch=()
	read -ra jails <<<"${CORRAL_JAILS:-/mnt/jail}"
	read -ra scratch <<<"${CORRAL_SCRATCH:-}"
	for mount in ${CORRAL_SUBMOUNTS:-}; do
		binds+=("bind=$mount")
	done
	[ ${#scratch[@]} = 0 ] || chmod 1777 "${scratch[@]}"
	[ ${#binds[@]} != 0 ] || return 0
	for jail in "${jails[@]}"; do
		/opt/corral/bin/jail-exec --attach "$jail" "${binds[@]}" || exit 1
	done
}
