#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# node_profiles.sh keep|check: the files of /profiles in the node's folder /node, and only these. PROFILES is present or absent.
set -eu

# True where the node has all profiles; else it prints what is missing.
as_wanted() {
	for file in /profiles/*.json; do
		target=/node/${file##*/}
		if [ "$PROFILES" = absent ]; then
			[ ! -e "$target" ] || { echo "${file##*/} is still there"; return 1; }
		else
			cmp -s "$file" "$target" || { echo "${file##*/} is not there yet, or another's"; return 1; }
		fi
	done
}

# A file comes by a rename: a container that is started meanwhile reads the old one or the new one.
make_so() {
	for file in /profiles/*.json; do
		target=/node/${file##*/}
		if [ "$PROFILES" = absent ]; then
			rm -f "$target"
		elif ! cmp -s "$file" "$target"; then
			cp "$file" "$target.new"
			chmod 0644 "$target.new"
			mv "$target.new" "$target"
			echo "node_profiles.sh: wrote ${file##*/}"
		fi
	done
}

case "${1:-}" in
check)
	as_wanted
	;;
keep)
	trap 'exit 0' TERM INT
	# Again and again: whoever cleans the node may take them away.
	while :; do
		make_so
		sleep 30 &
		wait $!
	done
	;;
*)
	echo "usage: node_profiles.sh keep|check" >&2
	exit 2
	;;
esac
