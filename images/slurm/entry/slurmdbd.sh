#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# slurmdbd, as user slurm, with the configuration of a ConfigMap in /etc/slurm and the database's password in /etc/corral/database.
#   CORRAL_DATABASE_ADDRESS  host:port of the database
#   CORRAL_PRIMARY_SECONDS   how long a backup waits for the primary once the database responds (60)
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

config() {
	sed -n "s/^$1=//p" /etc/slurm/slurmdbd.conf
}

answers() {
	timeout 3 bash -c "exec 3<>/dev/tcp/$1/$2" 2>/dev/null
}

daemon=
ending=
trap 'ending=yes; [ -z "$daemon" ] || kill -TERM "$daemon" 2>/dev/null' TERM INT
# Another slurmdbd with the keys that there are now (keys.sh): one that runs reads none.
again=
trap '[ -z "$daemon" ] || { again=yes; kill -TERM "$daemon" 2>/dev/null; }' HUP

# Only the primary makes tables, and one that starts takes control anyway. A backup does without a primary that stays away.
wait_for_primary() {
	local tries=0 primary port
	primary=$(config DbdAddr)
	port=$(config DbdPort)
	until [ -n "$ending" ] || [ "$tries" -ge "${CORRAL_PRIMARY_SECONDS:-60}" ] || answers "$primary" "$port"; do
		# Without the database the primary does not respond either.
		! answers "${CORRAL_DATABASE_ADDRESS%:*}" "${CORRAL_DATABASE_ADDRESS##*:}" || tries=$((tries + 1))
		sleep 1
	done
}

# The probe reads these: "standby" of a backup that has nothing to do, "waiting" of one without a daemon for a while.
rm -f /run/slurm/standby /run/slurm/waiting
backup=$(config DbdBackupHost)
[ "$backup" = "$HOSTNAME" ] || backup=
while :; do
	if [ -n "$backup" ]; then
		: >/run/slurm/waiting
		wait_for_primary
		[ -z "$ending" ] || exit 0
	fi
	rm -f /run/slurm/log /run/slurm/converting /run/slurm/last_error /run/slurm/waiting
	mkfifo /run/slurm/log
	while IFS= read -r line; do
		printf '%s\n' "$line" >&2
		case $line in
		*"from a newer version of Slurm"*)
			echo "the database is that of a newer Slurm than $version, or a restoration of it has not ended: slurmdbd does not start. Go on with the" \
				"newer image, or restore a dump with corral.slurm.restore_database (docs/accounting.md)" | tee /dev/termination-log >&2
			;;
		*"Backup DBD can not convert database"*) touch /run/slurm/standby /run/slurm/waiting ;;
		*"running in background mode"*) : >/run/slurm/standby ;;
		*fatal:*) printf '%s\n' "${line#*fatal: }" >/dev/termination-log ;;
		*"pre-converting"* | *"adding column"*) : >/run/slurm/converting ;;
		*"slurmdbd version "*" started"*) rm -f /run/slurm/converting ;;
		esac
		[[ $line != *error:* || $line == *"Trying again"* ]] || printf '%s\n' "${line#*error: }" >/run/slurm/last_error
	done </run/slurm/log &
	reader=$!
	/usr/sbin/slurmdbd -D "$@" 2>/run/slurm/log &
	daemon=$!
	status=0
	wait "$daemon" || status=$?
	# The signal ended the wait, and not yet the daemon.
	while kill -0 "$daemon" 2>/dev/null; do
		status=0
		wait "$daemon" || status=$?
	done
	# What the reader's last line was does not count.
	wait "$reader" || true
	daemon=
	if [ -n "$again" ] && [ -z "$ending" ]; then
		again=
		echo "slurmdbd.sh: slurmdbd starts again with the keys that there are now" >&2
		continue
	fi
	[ -e /run/slurm/waiting ] && [ -z "$ending" ] || exit "$status"
	# The primary changes the tables when it is replaced, which Kubernetes does once this pod is ready.
	echo "slurmdbd.sh: the tables are those of another release, which the primary changes first; slurmdbd is tried again" >&2
	sleep 5
done
