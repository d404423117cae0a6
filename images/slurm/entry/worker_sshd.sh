#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# sshd of a worker, in slurmd's container: pam_slurm_adopt lets in who has a job on this node and puts the session into the job's cgroup, which
# is slurmd's to see; the jail's module leads it to where the job's steps are. Started by slurmd.sh; comes back when it ends, since the
# container lives and dies with slurmd.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

node=$(</run/corral-node)

install_host_keys
use_directory
# sshd asks whether the user's shell exists, in the pod, unless there is a chroot; this one is made after PAM's session, in the jail.
printf '%s\n' 'ChrootDirectory /' 'AuthorizedKeysFile /mnt/jail%h/.ssh/authorized_keys /mnt/jail%h/.ssh/corral.pub' >/etc/ssh/sshd_config.d/20-worker.conf
sed "s/@NODE@/$node/" /usr/local/lib/corral/pam_sshd_worker >/etc/pam.d/sshd

# slurmd fetches the configuration that both PAM modules read.
until [ -r /run/slurm/conf/plugstack.conf ]; do
	sleep 0.2
done
install -d -m 0755 /run/sshd
while :; do
	# shellcheck disable=SC2046 # a word, or none
	setpriv $(no_new_privileges) --inh-caps=-all /usr/sbin/sshd -D -e &
	# For keys.sh, which has it read rotated keys.
	echo "$!" >/run/sshd.pid
	wait "$!" || echo "worker_sshd.sh: sshd ended with status $?; it is started again" >&2
	sleep 1
done
