#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
# A Kubernetes node with cgroup v2 and AppArmor, as far as a pod sees of it; slurmctld runs here, slurmd in the pod. Says what attempts.sh finds, and ends.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
say() {
	printf '@@ %s\n' "$1"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
ln -s /proc/self/fd /dev/fd
mount -t tmpfs -o mode=0755 run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
mount -t ext4 /dev/vdb /mnt/jail
hostname vm-controller-0
ip link set lo up
ip address add 192.0.2.1/32 dev lo
cp /guest/hosts /etc/hosts

for profile in /guest/profiles/*; do
	cat "$profile" >/sys/kernel/security/apparmor/.load
done
say profiles
cat /sys/kernel/security/apparmor/profiles
for controller in $(</sys/fs/cgroup/cgroup.controllers); do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mkdir /sys/fs/cgroup/worker /sys/fs/cgroup/login

# Two devices that a device plugin would have given the pod: the numbers are those of /dev/full and /dev/zero, which any driver has.
mknod -m 0666 /dev/nvidia0 c 1 7
mknod -m 0666 /dev/nvidia1 c 1 5

install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
install -d -o munge -g munge /run/munge
printf %040d 1 >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 0400 /etc/munge/munge.key
setpriv --reuid=munge --regid=munge --clear-groups munged
install -d -o slurm /run/slurm /var/spool/slurmctld
cp -r /guest/slurm /etc/
printf 'ada:x:10001:10001::/home/ada:/bin/bash\n' >>/mnt/jail/etc/passwd
printf 'ada:x:10001:\n' >>/mnt/jail/etc/group
printf 'ada:*:20000:0:99999:7:::\n' >>/mnt/jail/etc/shadow
install -d -o 10001 -g 10001 -m 0700 /mnt/jail/home/ada /mnt/jail/home/ada/.ssh
printf 'ada ALL=(ALL:ALL) NOPASSWD: ALL\n' >/mnt/jail/etc/sudoers.d/ada
mkdir -p /etc/corral/host-keys
ssh-keygen -q -t ed25519 -N '' -f /etc/corral/host-keys/ssh_host_ed25519_key
setpriv --reuid=10001 --regid=10001 --clear-groups ssh-keygen -q -t ed25519 -N '' -f /mnt/jail/home/ada/.ssh/id
mv /mnt/jail/home/ada/.ssh/id.pub /mnt/jail/home/ada/.ssh/authorized_keys
setpriv --reuid=slurm --regid=slurm --clear-groups slurmctld -D >/run/slurmctld.log 2>&1 &
for kind in worker login; do
	cp -a /etc "/etc.$kind"
	bash /guest/pod.sh "$kind" >"/run/$kind.log" 2>&1 &
done

for _ in $(seq 120); do
	[ "$(sinfo -h -o %t 2>/dev/null)" != idle ] || break
	sleep 0.5
done
# shellcheck source-path=SCRIPTDIR source=attempts.sh
. /guest/attempts.sh
for kind in worker login; do
	say "log-of-$kind"
	cat "/run/$kind.log"
done
say end
echo o >/proc/sysrq-trigger
sleep 10 # the power goes a moment later; init that ends first is a kernel panic
