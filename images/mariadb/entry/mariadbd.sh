#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# MariaDB as user mysql, with its data in /var/lib/mysql/data and its configuration in /etc/corral/mariadb/corral.cnf.
#   CORRAL_DATABASE, CORRAL_USER  the database, and the user who has all rights to it
#   /etc/corral/database/password the user's password: set at each start, so a new password needs a restart and nothing else
set -euo pipefail

die() {
	echo "mariadbd.sh: $*" >&2
	exit 1
}

data=/var/lib/mysql/data
password=$(</etc/corral/database/password) || die "/etc/corral/database/password cannot be read: mount the Secret of the database's password there"
[[ $password =~ ^[[:graph:]]+$ && $password != *[\'\"\\#]* ]] || die "the database's password is empty or has a space, quote, backslash or #: choose another"
[ -w /var/lib/mysql ] || die "/var/lib/mysql is not writable by uid $(id -u): give the volume to 64040:64040"

# Complete or not there at all: the marker is the rename.
if [ ! -d "$data" ]; then
	rm -rf "$data.new"
	mariadb-install-db --no-defaults --datadir="$data.new" --auth-root-authentication-method=socket --auth-root-socket-user=mysql \
		--skip-test-db --skip-name-resolve >/tmp/install.log 2>&1 || die "the database cannot be created: $(tail -n 3 /tmp/install.log | tr '\n' ' ')"
	sync
	mv "$data.new" "$data"
fi

umask 077
cat >/run/mysqld/init.sql <<-END
	CREATE DATABASE IF NOT EXISTS \`$CORRAL_DATABASE\`;
	CREATE USER IF NOT EXISTS '$CORRAL_USER'@'%' IDENTIFIED BY '$password';
	ALTER USER '$CORRAL_USER'@'%' IDENTIFIED BY '$password';
	GRANT ALL PRIVILEGES ON \`$CORRAL_DATABASE\`.* TO '$CORRAL_USER'@'%';
	CREATE USER IF NOT EXISTS 'mysql'@'localhost' IDENTIFIED VIA unix_socket;
	GRANT ALL PRIVILEGES ON *.* TO 'mysql'@'localhost' WITH GRANT OPTION;
END
# Slurm's tables are upgraded by slurmdbd, MariaDB's own by this, after the server is up: it does nothing where there is nothing to do.
(
	until mariadb-admin --socket=/run/mysqld/mysqld.sock --connect-timeout=2 ping >/dev/null 2>&1; do sleep 0.5; done
	rm -f /run/mysqld/init.sql
	mariadb-upgrade --socket=/run/mysqld/mysqld.sock --silent || true # the next start tries again
) &
exec mariadbd --defaults-file=/etc/corral/mariadb/corral.cnf --init-file=/run/mysqld/init.sql --console "$@"
