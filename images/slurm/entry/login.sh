#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# sshd, whose users land in the jail.
#   CORRAL_LOGIN_ENTRY  Chroot (default): ChrootDirectory. The jail's mounts are made first and need SYS_ADMIN, which nothing has any more
#                       once sshd runs. Pivot: the PAM module makes each session a mount namespace with the jail as its root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

jail=${CORRAL_JAIL:-/mnt/jail}
keys=/etc/corral/host-keys

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
	sed -i "s|pam_corral_jail\\.so\$|& jail=$jail spool=none tmp=/tmp|" /etc/pam.d/sshd
	;;
*) die "CORRAL_LOGIN_ENTRY is $CORRAL_LOGIN_ENTRY: it is Chroot or Pivot" ;;
esac

# sshd refuses keys that others can read; a Secret's files are links.
install -d -m 0700 /etc/ssh/host-keys
for key in "$keys"/ssh_host_*_key; do
	[ -r "$key" ] || die "no ssh_host_*_key in $keys: mount the Secret of the host keys there"
	install -m 0600 "$key" /etc/ssh/host-keys/
done
for key in /etc/ssh/host-keys/*; do
	printf 'HostKey %s\n' "$key"
done >/etc/ssh/sshd_config.d/10-host-keys.conf
printf 'ChrootDirectory %s\n' "$root" >/etc/ssh/sshd_config.d/20-root.conf

install -d -m 0755 /run/sshd
wait_for_munge
exec setpriv "${bounds[@]}" --inh-caps=-all /usr/sbin/sshd -D -e "$@"
