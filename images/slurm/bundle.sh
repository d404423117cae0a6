#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Makes /opt/corral: Slurm's client programs and plugins with the very loader, libc and libraries that they were linked with, so
# that they run in a jail of any distribution; and slurmstepd, which launches a task's prolog by executing itself again, in the jail.
# Run inside the image's build, with patchelf at hand.
set -eu

to=${1:-/opt/corral}
programs="srun sbatch salloc squeue sinfo scancel scontrol sacct sacctmgr sattach sbcast sprio sshare sstat sdiag strigger sreport scrontab"

plugins=$(dirname "$(dpkg -L slurm-wlm-basic-plugins | grep '/auth_munge\.so$')")
loader=$(patchelf --print-interpreter /usr/bin/srun)
# libc's own parts are found by the loader beside it; patchelf would only do harm there.
untouched='^(ld-linux.*|ld64.*|libc|libm|libpthread|libdl|librt|libresolv|libnss_.*|libutil|libanl)\.so'

mkdir -p "$to/bin" "$to/sbin" "$to/lib/slurm" "$to/lib/corral"
install -m 0755 /usr/sbin/slurmstepd "$to/sbin/"
for program in $programs; do
	install -m 0755 "/usr/bin/$program" "$to/bin/$program"
done
# Plugins only: libslurmfull, which lies among them in Debian, is a library like any other and comes with the closure.
for plugin in "$plugins"/*.so; do
	case ${plugin##*/} in
	libslurm*) ;;
	*) install -m 0644 "$plugin" "$to/lib/slurm/" ;;
	esac
done

# The closure of all of them. A library that is missing fails the build here, not a job later.
list=$(mktemp)
for object in "$to"/bin/* "$to"/sbin/* "$to"/lib/slurm/*.so "$to"/lib/corral/*.so; do
	[ -e "$object" ] || continue
	LD_LIBRARY_PATH=$plugins ldd "$object" >>"$list"
done
# Loaded by name (mpi/pmix), so no program names it.
pmix=$(ldconfig -p | awk '$1 == "libpmix.so.2" {print $NF; exit}')
if [ -n "$pmix" ]; then
	ldd "$pmix" >>"$list"
	echo "libpmix.so.2 => $pmix" >>"$list"
fi
if grep 'not found' "$list" >&2; then
	exit 1
fi
awk '$2 == "=>" {print $3}' "$list" | sort -u | while read -r library; do
	install -m 0755 "$library" "$to/lib/${library##*/}"
done
rm -f "$list"
install -m 0755 "$loader" "$to/lib/${loader##*/}"
# The same for pthread_cancel; and for users of a directory, where the jail's nsswitch.conf says sss: the jail's own may be linked with a newer libc.
for library in libgcc_s.so.1 libnss_sss.so.2; do
	install -m 0644 "$(ldconfig -p | awk -v name="$library" '$1 == name {print $NF; exit}')" "$to/lib/"
done

for object in "$to"/lib/*.so* "$to"/lib/slurm/*.so "$to"/lib/corral/*.so; do
	if ! printf '%s' "${object##*/}" | grep -Eq "$untouched"; then
		patchelf --force-rpath --set-rpath "$to/lib" "$object"
	fi
done
for program in "$to"/bin/* "$to"/sbin/*; do
	patchelf --set-interpreter "$to/lib/${loader##*/}" --force-rpath --set-rpath "$to/lib" "$program"
done

# Nothing may be taken from outside of the bundle any more.
for object in "$to"/bin/* "$to"/sbin/* "$to"/lib/slurm/*.so "$to"/lib/corral/*.so; do
	if "$to/lib/${loader##*/}" --inhibit-cache --list "$object" | grep '=>' | grep -v "=> $to/lib/" >&2; then
		echo "bundle.sh: $object needs a library from outside of $to" >&2
		exit 1
	fi
done
sed -n 's/^VERSION_ID=\|^VERSION_CODENAME=//p' /etc/os-release | tr '\n' ' ' >"$to/lib/corral/bundle-of"
dpkg-query -W -f '${Version}\n' slurm-client >>"$to/lib/corral/bundle-of"
