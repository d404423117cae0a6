#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# probe.sh mariadbd [alive|SECONDS]: exit 0 when the server answers, else 1 with the reason in one line. With SECONDS it waits so long for it.
set -uo pipefail

if ! [[ "${1:-}:${2:-0}" =~ ^mariadbd:(alive|[0-9]+)$ ]]; then
	echo "usage: probe.sh mariadbd [alive|SECONDS]"
	exit 1
fi
last=${2:-0}
last=${last/alive/0}
until said=$(mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock --connect-timeout=5 ping 2>&1); do
	if [ "$SECONDS" -ge "$last" ]; then
		echo "the database does not answer: $(tail -n 1 <<<"$said")"
		exit 1
	fi
	sleep 0.2
done
