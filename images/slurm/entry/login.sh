#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# sshd, whose users land in the jail.
#   CORRAL_LOGIN_ENTRY  Chroot (default): ChrootDirectory. The jail's mounts are made first and need SYS_ADMIN, which nothing has any more
#                       once sshd runs. Pivot: the PAM module makes each session a mount namespace with the jail as its root.
#   CORRAL_USER_LIMITS  what one user can have, in terms of cgroup v2: memory.max=BYTES cpu.max=MICROSECONDS pids.max=NUMBER; without it, no limits
#   CORRAL_INIT_SCRIPTS  scripts that are run before sshd is; see ready.sh
#   CORRAL_NO_NEW_PRIVILEGES  true: sessions gain no rights by set-uid programs
#   CORRAL_LDAP_HOMES   where users' homes are made at their first login; set where users come from LDAP too, by the sssd beside
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh
# shellcheck source-path=SCRIPTDIR source=ready.sh
. /usr/local/lib/corral/ready.sh

jail=${CORRAL_JAIL:-/mnt/jail}

attach_submounts
case ${CORRAL_LOGIN_ENTRY:-Chroot} in
Chroot)
	/opt/corral/bin/jail-exec --prepare "$jail" || exit 1
	root=$jail
	bounds=(--bounding-set=-sys_admin)
	;;
Pivot)
	# sshd asks whether the user's shell exists, in the pod, unless there is a chroot; this one is made after PAM's session, in the jail.
	root=/
	bounds=()
	sed -i "/^session/s|pam_corral_jail\\.so\$|& jail=$jail spool=none tmp=/tmp|" /etc/pam.d/sshd
	;;
*) die "CORRAL_LOGIN_ENTRY is $CORRAL_LOGIN_ENTRY: it is Chroot or Pivot" ;;
esac

install_host_keys
printf 'ChrootDirectory %s\n' "$root" >/etc/ssh/sshd_config.d/20-root.conf

# What one user can have. In a cgroup of the user's, all their sessions together; without cgroup v2, what the kernel counts for a user or a process otherwise.
limit_users() {
	local word
	if own_cgroup; then
		sed -i "/pam_limits\\.so/i session  required pam_exec.so quiet type=open_session /usr/local/lib/corral/limit_user.sh $*" /etc/pam.d/sshd
		return
	fi
	echo "login.sh: this Kubernetes node has no cgroup v2 that the container can use: memory is limited for each process and not for each user, and CPUs are not" >&2
	for word in "$@"; do
		case $word in
		memory.max=*) echo "* - data $((${word#*=} / 1024))" ;;
		pids.max=*) echo "* - nproc ${word#*=}" ;;
		esac
	done >/etc/security/limits.d/corral.conf
}
read -ra limits <<<"${CORRAL_USER_LIMITS:-}"
[ ${#limits[@]} = 0 ] || limit_users "${limits[@]}"

use_directory
# What a user lacks is made when they log in: the home, of a directory's users, and the key for the workers.
sed -i "/^session.*pam_corral_jail\\.so/i session  optional pam_exec.so quiet type=open_session /usr/local/lib/corral/first_login.sh $jail ${CORRAL_LDAP_HOMES:-}" /etc/pam.d/sshd

run_init_scripts
install -d -m 0755 /run/sshd
wait_for_auth
# shellcheck disable=SC2046 # a word, or none
exec setpriv "${bounds[@]}" $(no_new_privileges) --inh-caps=-all /usr/sbin/sshd -D -e "$@"
