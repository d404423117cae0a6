#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmdbd, as user slurm, with the configuration of a ConfigMap in /etc/slurm and the database's password in /etc/corral/database.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /usr/local/lib/corral/common.sh

[ -r /etc/slurm/slurmdbd.conf ] || die "/etc/slurm/slurmdbd.conf is missing: mount its ConfigMap there"
password=$(</etc/corral/database/password) || die "/etc/corral/database/password cannot be read: mount the Secret of the database's password there"
# slurmdbd.conf has no way to write these.
[[ $password =~ ^[[:graph:]]+$ && $password != *[\'\"\\#]* ]] || die "the database's password is empty or has a space, quote, backslash or #: choose another"
# slurmdbd refuses a file that others may read.
umask 077
{
	cat /etc/slurm/slurmdbd.conf
	printf 'StoragePass=%s\n' "$password"
} >/run/slurm/slurmdbd.conf
unset password
umask 022
install_token_key
export SLURM_CONF=/run/slurm/slurm.conf
wait_for_auth
# The probe reports the last error while slurmdbd has no database. That it tries again is no reason. It does not end one that changes its tables, and
# Kubernetes shows why one ended: so this script stays the container's first process until all is read.
version=$(/usr/sbin/slurmdbd -V)
rm -f /run/slurm/log /run/slurm/converting /run/slurm/last_error
mkfifo /run/slurm/log
while IFS= read -r line; do
	printf '%s\n' "$line" >&2
	case $line in
	*"from a newer version of Slurm"*)
		echo "the database is that of a newer Slurm than $version, or a restoration of it has not ended: slurmdbd does not start. Go on with the newer" \
			"image, or restore a dump with corral.slurm.restore_database (docs/accounting.md)" | tee /dev/termination-log >&2
		;;
	*fatal:*) printf '%s\n' "${line#*fatal: }" >/dev/termination-log ;;
	*"pre-converting"* | *"adding column"*) : >/run/slurm/converting ;;
	*"slurmdbd version "*" started"*) rm -f /run/slurm/converting ;;
	esac
	[[ $line != *error:* || $line == *"Trying again"* ]] || printf '%s\n' "${line#*error: }" >/run/slurm/last_error
done </run/slurm/log &
reader=$!
/usr/sbin/slurmdbd -D "$@" 2>/run/slurm/log &
daemon=$!
trap 'kill -TERM "$daemon" 2>/dev/null' TERM INT
status=0
wait "$daemon" || status=$?
# The signal ended the wait, and not yet the daemon.
while kill -0 "$daemon" 2>/dev/null; do
	status=0
	wait "$daemon" || status=$?
done
# What the reader's last line was does not count.
wait "$reader" || true
exit "$status"
