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
wait_for_munge
# The probe reports the last error while slurmdbd has no database. That it tries again is no reason.
exec /usr/sbin/slurmdbd -D "$@" 2> >(
	while IFS= read -r line; do
		printf '%s\n' "$line" >&2
		[[ $line != *error:* || $line == *"Trying again"* ]] || printf '%s\n' "${line#*error: }" >/run/slurm/last_error
	done
)
