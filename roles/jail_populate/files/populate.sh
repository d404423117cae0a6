#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Copies the root of the image that it runs in to a volume, once, as the jail of a cluster. Needs sh, tar and the usual small tools,
# so that nearly any image can be a jail.
#
#   CORRAL_JAIL_IMAGE        the image's name, for the marker
#   CORRAL_POPULATE_POLICY   IfEmpty (default), or Never: only look whether there is a jail
#   CORRAL_POPULATE_ONLY     a directory of the image, such as etc: no more than that is copied, and the rest of a jail is empty
#   CORRAL_VOLUME_LIMIT      the most that the volume may hold, in MiB, where its file system does not know
#
# Everything is made in .corral-populate-<id>/ and comes to be by one rename to root/: killed anywhere, the volume holds
# no jail or a whole one. Exit 0: there is a jail; 3: refused, nobody's data was touched; 1: failed, may be tried again.
set -eu
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
umask 022

volume=${CORRAL_VOLUME:-/volume}
source=${CORRAL_SOURCE:-/}
termination_log=${CORRAL_TERMINATION_LOG:-/dev/termination-log}
image=${CORRAL_JAIL_IMAGE:-unknown}
policy=${CORRAL_POPULATE_POLICY:-IfEmpty}
only=${CORRAL_POPULATE_ONLY:-}
limit=${CORRAL_VOLUME_LIMIT:-}
stale_after=${CORRAL_LOCK_STALE:-30}

root=$volume/root
lock=$volume/.corral-populate-lock
id=$(hostname 2>/dev/null || echo unknown)-$$
work=$volume/.corral-populate-$id
commands="srun sbatch salloc squeue sinfo scancel scontrol sacct sacctmgr sattach sbcast sprio sshare sstat sdiag strigger sreport scrontab"
beat=

say() {
	echo "populate: $*"
}

# stop CODE SENTENCE
stop() {
	code=$1
	shift
	echo "populate: $*" >&2
	# Kubernetes shows it as the container's termination message.
	if [ -w "$termination_log" ]; then
		echo "$*" >"$termination_log"
	fi
	exit "$code"
}

is_populated() {
	[ -f "$root/etc/corral-jail" ] && [ ! -L "$root/etc/corral-jail" ]
}

# Somebody else's data is never mixed with a jail, whatever it is.
refuse_unknown() {
	for entry in "$volume"/* "$volume"/.[!.]* "$volume"/..?*; do
		[ -e "$entry" ] || [ -L "$entry" ] || continue
		case ${entry##*/} in
		lost+found | .snapshot | .corral-populate-*) ;;
		*)
			stop 3 "the volume holds '${entry##*/}', which is neither a jail (root/ with etc/corral-jail) nor left over from making one: use an empty volume, or empty this one if nobody needs it"
			;;
		esac
	done
}

# One writer. A holder writes a beat every second or so; a lock whose beat stands still is of a dead run and is taken from it.
# Only the holder's own counter is compared, never clocks of two nodes.
take_lock() {
	waited=0
	seen=
	while ! mkdir "$lock" 2>/dev/null; do
		now=$(cat "$lock/beat" 2>/dev/null || true)
		if [ "$now" != "$seen" ]; then
			seen=$now
			waited=0
		elif [ "$waited" -ge "$stale_after" ]; then
			say "the lock of a run that is gone is taken over"
			mv "$lock" "$volume/.corral-populate-stale-$id" 2>/dev/null || true
			seen=
			waited=0
			continue
		fi
		sleep 1
		waited=$((waited + 1))
		if is_populated; then
			return 0
		fi
	done
	echo "$id" >"$lock/holder"
	(
		count=0
		while kill -0 $$ && [ "$(cat "$lock/holder" 2>/dev/null)" = "$id" ]; do
			count=$((count + 1))
			echo "$id $count" >"$lock/beat"
			sleep 1
		done
	) 2>/dev/null >&2 &
	beat=$!
}

holds_lock() {
	[ "$(cat "$lock/holder" 2>/dev/null || true)" = "$id" ]
}

finish() {
	code=$?
	trap - EXIT
	if [ -n "$beat" ]; then
		kill "$beat" 2>/dev/null || true
		wait "$beat" 2>/dev/null || true
	fi
	if [ -n "${work_made:-}" ]; then
		rm -rf "$work"
	fi
	if holds_lock; then
		rm -rf "$lock"
	fi
	exit "$code"
}

remove_leftovers() {
	for entry in "$volume"/.corral-populate-*; do
		case $entry in
		"$lock" | "$work") ;;
		*) rm -rf "$entry" ;;
		esac
	done
}

# Column of the last line that df prints for the volume, or nothing.
df_column() {
	df "$1" "$volume" 2>/dev/null | awk -v column="$2" 'END { if ($column ~ /^[0-9]+$/) print $column }'
}

# A jail that fits to the last byte is full on its first day: a tenth is asked for on top.
check_room() {
	[ -z "$only" ] || return 0
	command -v du >/dev/null && command -v awk >/dev/null && command -v find >/dev/null || return 0
	need=$(du -skx "$source" 2>/dev/null | awk '{ printf "%d", $1 * 1.1 }')
	have=$(df_column -Pk 4)
	if [ -n "$need" ] && [ -n "$have" ] && [ "$have" -lt "$need" ]; then
		stop 3 "the volume has $((have / 1024)) MiB free, the image needs $((need / 1024)) MiB: use a larger volume"
	fi
	if [ -n "$need" ] && [ -n "$limit" ] && [ "$((limit * 1024))" -lt "$need" ]; then
		stop 3 "the volume may hold $limit MiB, the image needs $((need / 1024)) MiB: raise the size of the jail's volume"
	fi
	files=$(find "$source" -xdev 2>/dev/null | wc -l)
	inodes=$(df_column -Pi 4)
	total=$(df_column -Pi 2)
	# File systems without a fixed number of inodes say 0.
	if [ "${total:-0}" -gt 0 ] && [ "${inodes:-0}" -lt "$files" ]; then
		stop 3 "the volume has $inodes free inodes, the image has $files files: use a volume with more inodes"
	fi
	say "copying $files files, $((${need:-0} * 10 / 11 / 1024)) MiB, of $image"
}

# What tar of this image can do: GNU tar keeps file capabilities and access lists, busybox' does not know them.
tar_options() {
	for option in "$@"; do
		if tar "$option" -cf /dev/null /dev/null >/dev/null 2>&1; then
			printf '%s ' "$option"
		fi
	done
}

copy() {
	keep=$(tar_options --numeric-owner --xattrs --xattrs-include=* --acls)
	one=$(tar_options --one-file-system)
	set --
	for path in "$source"/* "$source"/.[!.]* "$source"/..?*; do
		name=${path##*/}
		[ -e "$path" ] || [ -L "$path" ] || continue
		# By names instead of --exclude, which not every busybox has.
		case $name in
		proc | sys | dev | run | tmp | lost+found | .dockerenv) ;;
		*) [ "${source%/}/$name" = "$volume" ] || set -- "$@" "./$name" ;;
		esac
	done
	if [ -n "$only" ]; then
		set -- "./$only"
		mkdir -p "$work/usr"
	fi
	# The status of the first tar of the pipe, which POSIX' sh has no other way to tell; 1 is a file that changed meanwhile.
	# shellcheck disable=SC2086
	{
		code=0
		tar -C "$source" $one $keep -cf - "$@" || code=$?
		echo "$code" >"$lock/status"
	} | tar -C "$work" $keep -xpf - || stop 1 "tar could not write the jail to the volume: its message stands above in the log"
	[ "$(cat "$lock/status")" -le 1 ] || stop 1 "tar could not read the image's root: its message stands above in the log"
}

# A mount point has to be a directory under directories: workers follow no link in the jail.
make_directory() {
	path=
	old_ifs=$IFS
	IFS=/
	for part in $1; do
		path=$path${path:+/}$part
		if [ -L "$work/$path" ] && [ "$path" = "$1" ]; then
			rm -f "$work/$path"
		fi
		if [ -L "$work/$path" ] || { [ -e "$work/$path" ] && [ ! -d "$work/$path" ]; }; then
			stop 3 "/$path in the image is not a directory, and the jail wants its /$1 to be one without links on the way: build the image with a plain /$path"
		fi
		if [ ! -d "$work/$path" ]; then
			mkdir "$work/$path"
			chmod 0755 "$work/$path"
		fi
	done
	IFS=$old_ifs
}

make_file() {
	rm -rf "${work:?}/$1"
	: >"$work/$1"
}

make_mount_points() {
	for path in usr etc; do
		if [ ! -d "$work/$path" ] || [ -L "$work/$path" ]; then
			stop 3 "/$path in the image is missing or a link, and the jail wants a directory there: build the image with a plain /$path"
		fi
	done
	for path in proc sys dev run tmp var/tmp var/spool/slurmd opt/corral home root mnt; do
		make_directory "$path"
	done
	chmod 1777 "$work/tmp" "$work/var/tmp"
	chmod 0700 "$work/root"
	for path in etc/resolv.conf etc/hosts etc/hostname; do
		make_file "$path"
	done
}

# add_account FILE NAME ID LINE: Slurm's clients want to know the cluster's own accounts by name; the ids are the slurm image's.
add_account() {
	found=$(sed -n "s/^$2:[^:]*:\([0-9]*\):.*/\1/p" "$work/etc/$1" | head -n 1)
	if [ "$found" = "$3" ]; then
		return 0
	fi
	if cut -d: -f3 "$work/etc/$1" | grep -qx "$3"; then
		stop 3 "id $3 in the image's /etc/$1 is taken, and the cluster's account '$2' has it: free that id in the image"
	fi
	if [ -n "$found" ]; then
		sed "s/^$2:\([^:]*\):$found:/$2:\1:$3:/" "$work/etc/$1" >"$work/etc/$1.corral"
		cat "$work/etc/$1.corral" >"$work/etc/$1"
		rm -f "$work/etc/$1.corral"
	else
		printf '%s\n' "$4" >>"$work/etc/$1"
	fi
}

add_accounts() {
	for path in etc/passwd etc/group; do
		if [ ! -f "$work/$path" ] || [ -L "$work/$path" ]; then
			stop 3 "/$path in the image is not a plain file: users are kept there, build the image with one"
		fi
	done
	add_account group slurm 64030 'slurm:x:64030:'
	add_account group munge 64031 'munge:x:64031:'
	add_account passwd slurm 64030 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin'
	add_account passwd munge 64031 'munge:x:64031:64031::/nonexistent:/usr/sbin/nologin'
}

dress() {
	add_accounts
	make_directory etc/profile.d
	make_directory usr/local/bin
	# Slurm's configuration as slurmd and sackd keep it in each pod. What the image had stays at hand under another name.
	if [ -d "$work/etc/slurm" ] && [ ! -L "$work/etc/slurm" ] && ! rmdir "$work/etc/slurm" 2>/dev/null; then
		rm -rf "$work/etc/slurm.image"
		mv "$work/etc/slurm" "$work/etc/slurm.image"
	fi
	rm -f "$work/etc/slurm"
	ln -s /run/slurm/conf "$work/etc/slurm"
	for name in $commands; do
		if [ ! -e "$work/usr/local/bin/$name" ] && [ ! -L "$work/usr/local/bin/$name" ]; then
			ln -s "/opt/corral/bin/$name" "$work/usr/local/bin/$name"
		fi
	done
	cat >"$work/etc/profile.d/corral.sh" <<-'EOF'
		# Slurm's clients, shown in every node of the cluster.
		case ":$PATH:" in
		*:/opt/corral/bin:*) ;;
		*) PATH=$PATH:/opt/corral/bin ;;
		esac
		export PATH
	EOF
	rm -f "$work/etc/corral/populate.sh"
	# Keys that were made when the image was built would be everybody's.
	rm -f "$work"/etc/ssh/ssh_host_*
	chown 0:0 "$work"
	chmod 0755 "$work"
}

publish() {
	sync
	# An image's name has no quotes; should one have, it is not worth a broken marker.
	printf '{"version": 1, "image": "%s"}\n' "$(printf %s "$image" | tr -cd 'A-Za-z0-9._:/@+-')" >"$work/etc/corral-jail"
	chown 0:0 "$work/etc/corral-jail"
	chmod 0644 "$work/etc/corral-jail"
	sync
	holds_lock || stop 1 "another run took the lock while this one was copying: it goes on, this one ends"
	if ! mv -T "$work" "$root" 2>/dev/null; then
		[ ! -e "$root" ] || stop 1 "root/ appeared on the volume meanwhile: look who else populates it"
		mv "$work" "$root"
	fi
	sync
}

main() {
	[ -d "$volume" ] || stop 1 "$volume is missing: mount the jail's volume there"
	[ "$(id -u)" = 0 ] || stop 1 "this runs as uid $(id -u): copying a root needs runAsUser 0"
	if is_populated; then
		say "there is a jail on the volume already: $(cat "$root/etc/corral-jail")"
		return 0
	fi
	refuse_unknown
	if [ "$policy" = Never ]; then
		stop 3 "the volume holds no jail and jail.populate.policy is Never: bring your own root/ with etc/corral-jail, or set IfEmpty"
	fi
	take_lock
	trap finish EXIT
	trap 'exit 143' TERM INT
	if is_populated; then
		say "another run made the jail meanwhile"
		return 0
	fi
	refuse_unknown
	remove_leftovers
	check_room
	work_made=yes
	mkdir "$work"
	copy
	make_mount_points
	dress
	publish
	work_made=
	say "the jail is ready: $(cat "$root/etc/corral-jail")"
}

main
