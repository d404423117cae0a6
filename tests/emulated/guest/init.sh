#!/bin/sh
# shellcheck shell=dash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
# The kernel's first program: finds the machine's disk and goes on from there.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
	/bin/busybox insmod "/modules/$module.ko"
done </modules/order
until [ -e /dev/vda ] && [ -e /dev/vdb ]; do
	/bin/busybox sleep 0.1
done
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox cp -r /guest /new/guest
/bin/busybox umount /proc
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /bin/bash /guest/machine.sh
