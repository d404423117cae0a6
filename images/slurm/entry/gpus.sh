#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Gives the pod's GPUs the names that gres.conf has for them: /dev/corral-gpu/0 … COUNT-1, links in the order of the driver's numbers. A pod
# that has four of a Kubernetes node's eight sees /dev/nvidia2, 3, 5 and 7, which no file that all nodes share could list. Run by slurmd.sh.
#   CORRAL_GPU_VENDOR  nvidia, amd; simulated: all links lead to /dev/null
#   CORRAL_GPU_COUNT   how many Slurm expects
set -euo pipefail
shopt -s nullglob
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

dev=/dev
shown=/opt/corral/gpu

# What a GPU's runtime lays into the container, file by file, laid also where every jail sees it: /opt/corral is the pod's own there. No
# other library is a mount of its own here.
show_driver() {
	local path target
	mkdir -p "$shown/lib" "$shown/bin"
	awk '{print $5}' /proc/self/mountinfo | while read -r path; do
		case $path in
		"$shown"/*) continue ;;
		/usr/lib*/*.so*) target=$shown/lib/${path##*/} ;;
		/usr/bin/nvidia-*) target=$shown/bin/${path##*/} ;;
		*) continue ;;
		esac
		[ ! -e "$target" ] || continue
		: >"$target"
		mount --bind "$path" "$target"
	done
	ldconfig -n "$shown/lib"
	if [ -e "$shown/lib/libcuda.so.1" ]; then
		ln -sfn libcuda.so.1 "$shown/lib/libcuda.so"
	fi
}

count=$CORRAL_GPU_COUNT
devices=()
case $CORRAL_GPU_VENDOR in
nvidia) devices=("$dev"/nvidia[0-9]*) ;;
amd) devices=("$dev"/dri/renderD[0-9]*) ;;
simulated)
	for ((number = 0; number < count; number++)); do
		devices+=("$dev/null")
	done
	;;
*) die "CORRAL_GPU_VENDOR is $CORRAL_GPU_VENDOR: it is nvidia, amd or simulated" ;;
esac
[ ${#devices[@]} = "$count" ] ||
	die "the pod has ${#devices[@]} GPUs of $CORRAL_GPU_VENDOR, and Slurm expects $count: check the device plugin and the RuntimeClass of its Kubernetes node"

show_driver
rm -rf "$dev/corral-gpu"
mkdir "$dev/corral-gpu"
number=0
printf '%s\n' "${devices[@]#"$dev"/}" | sort -V | while read -r device; do
	ln -s "../$device" "$dev/corral-gpu/$number"
	number=$((number + 1))
done
