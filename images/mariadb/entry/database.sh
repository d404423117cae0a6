#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# Dumps of the accounting database, and their restoration. A client of the server, as the user whom slurmdbd is.
#   database.sh dump                        write a compressed dump to standard output
#   database.sh backup KEEP                 write one to the volume, and remove all but the newest KEEP
#   database.sh find NAME CLUSTER           check a dump on the volume, "latest" for the newest, and print its name
#   database.sh inspect                     print what the database holds
#   database.sh close                       from now on no slurmdbd starts with this database
#   database.sh restore CLUSTER ID [NAME]   replace all that is in a closed database by a dump from standard input or from the volume, and open it
#   database.sh idle                        wait for commands
# ID is the ClusterID that the cluster gets, 0 for the dump's. Environment, with the fields of spec.accounting.database:
#   CORRAL_CLUSTER, CORRAL_DATABASE_HOST, CORRAL_DATABASE_PORT, CORRAL_DATABASE, CORRAL_USER
set -euo pipefail
export LC_ALL=C

backups=/var/backups/slurm
options=/run/mysqld/client-$$.cnf
# A version of the tables that no Slurm has reached: slurmdbd compares it before anything else and ends. It is what makes half a restoration harmless.
closed=2147483647

die() {
	echo "database.sh: $*" >&2
	# Where Kubernetes reads it, if this is the container's own command.
	[ "$$" != 1 ] || echo "$*" >/dev/termination-log
	exit 1
}

connect() {
	local password
	password=$(</etc/corral/database/password) || die "/etc/corral/database/password cannot be read: mount the Secret of the database's password there"
	umask 077
	{
		printf '[client]\nprotocol=tcp\nhost=%s\nport=%s\nuser=%s\npassword="%s"\n' \
			"$CORRAL_DATABASE_HOST" "$CORRAL_DATABASE_PORT" "$CORRAL_USER" "$password"
		printf 'default-character-set=utf8mb4\nmax-allowed-packet=1G\n'
		if [ -e /etc/corral/database-ca/ca.crt ]; then
			printf 'ssl-ca=/etc/corral/database-ca/ca.crt\nssl-verify-server-cert\n'
		elif [ ! -e /etc/corral/database-tls/tls.crt ]; then
			printf 'skip-ssl\n'
		fi
		[ ! -e /etc/corral/database-tls/tls.crt ] || printf 'ssl-cert=/etc/corral/database-tls/tls.crt\nssl-key=/etc/corral/database-tls/tls.key\n'
	} >"$options"
	umask 022
	trap 'rm -f "$options"' EXIT
}

sql() {
	mariadb --defaults-file="$options" --batch --skip-column-names --connect-timeout=10 "$CORRAL_DATABASE" "$@"
}

value() {
	sql -e "$1" || die "the database does not answer: see above"
}

# One snapshot of all tables: slurmdbd writes on meanwhile. Only a change of the tables themselves, as in an upgrade, ends it with an error.
dump() {
	mariadb-dump --defaults-file="$options" --single-transaction --quick --routines --triggers "$CORRAL_DATABASE" | gzip -3
}

# A dump that is whole ends with this line; one of slurmdbd's database has the version of its tables, and those of the cluster.
check() {
	gzip -dc "$1" 2>/dev/null | sed -n -e "/^CREATE TABLE \`\(convert_version_table\|$2_job_table\)\`/p" -e '${/^-- Dump completed/p}' >/tmp/check ||
		die "$1 cannot be read: it is damaged or no gzip file"
	grep -q '^-- Dump completed' /tmp/check || die "$1 is not whole: its last line is not 'Dump completed'"
	grep -q 'convert_version_table' /tmp/check || die "$1 is no dump of an accounting database: it has no table convert_version_table"
	grep -qF "\`$2_job_table\`" /tmp/check || die "$1 has no jobs of the cluster $2: it is the dump of another cluster"
}

dumps() {
	find "$backups" -maxdepth 1 -regex "$backups/$CORRAL_CLUSTER-[0-9]+T[0-9]+Z\.sql\.gz" -printf '%f\n' | sort -r
}

backup() {
	local name
	[ -w "$backups" ] || die "the backup volume at $backups is not writable by uid $(id -u): give it to 64040:64040"
	exec 9>"$backups/.$CORRAL_CLUSTER.lock"
	flock -w 3600 9 || die "another backup of this database has run for an hour: see its pod"
	name=$CORRAL_CLUSTER-$(date -u +%Y%m%dT%H%M%SZ).sql.gz
	part=$backups/.$CORRAL_CLUSTER.part
	# Half a dump would take the room of the next one.
	trap 'rm -f "$options" "$part"' EXIT
	dump >"$part" 2>/tmp/error ||
		die "the database could not be dumped ($(df -h --output=avail "$backups" | tail -n 1 | tr -d ' ') free): $(tail -n 3 /tmp/error | tr '\n' ' ')"
	gzip -dc "$part" | sed -n '$p' | grep -q '^-- Dump completed' || die "the dump is not whole, so it is not kept"
	sync "$part"
	mv "$part" "$backups/$name"
	sync "$backups"
	echo "$(sha256sum <"$backups/$name" | cut -d ' ' -f 1) $(stat -c %s "$backups/$name") $name"
	dumps | tail -n +$(($1 + 1)) | while IFS= read -r old; do rm -f "${backups:?}/$old"; done
}

find_dump() {
	local name=$1
	if [ "$name" = latest ]; then
		name=$(dumps | head -n 1)
		[ -n "$name" ] || die "there is no dump of the cluster $CORRAL_CLUSTER on the backup volume"
	fi
	[[ $name != */* && -f $backups/$name ]] || die "there is no dump $name on the backup volume; it has: $(dumps | head -n 20 | tr '\n' ' ')"
	check "$backups/$name" "$2"
	echo "$name"
}

has_table() {
	local count
	count=$(value "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '$1'") || exit 1
	[ "$count" = 1 ]
}

inspect() {
	local table version=0
	! has_table convert_version_table || version=$(value 'SELECT COALESCE(MAX(version), 0) FROM convert_version_table')
	echo "closed $((version == closed))"
	! has_table cluster_table || value "SELECT CONCAT('cluster ', name, ' ', id) FROM cluster_table WHERE deleted = 0"
	! has_table user_table || value "SELECT CONCAT('users ', COUNT(*)) FROM user_table WHERE deleted = 0 AND name <> 'root'"
	value "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '%\_job\_table'" |
		while IFS= read -r table; do
			value "SELECT CONCAT('jobs ', COUNT(*), ' ', COALESCE(MAX(time_submit), 0)) FROM \`$table\`"
		done
}

close() {
	sql <<-END || die "the database could not be closed: see above"
		CREATE TABLE IF NOT EXISTS convert_version_table (mod_time BIGINT UNSIGNED DEFAULT 0 NOT NULL, version INT DEFAULT 0, PRIMARY KEY (version)) ENGINE=InnoDB;
		START TRANSACTION;
		DELETE FROM convert_version_table;
		INSERT INTO convert_version_table VALUES (UNIX_TIMESTAMP(), $closed);
		COMMIT;
	END
}

restore() {
	local cluster=$1 id=$2 name=${3:-} next
	[[ $id =~ ^[0-9]+$ && $cluster =~ ^[a-z0-9-]+$ ]] || die "usage: database.sh restore CLUSTER ID [NAME]"
	[ "$(value 'SELECT MAX(version) FROM convert_version_table')" = "$closed" ] || die "the database is not closed, so nothing is replaced; close it first"
	{
		echo 'SET FOREIGN_KEY_CHECKS = 0;'
		value "SELECT CONCAT('DROP TABLE IF EXISTS \`', table_name, '\`;') FROM information_schema.tables
			WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND table_name <> 'convert_version_table'"
	} | sql || die "the former tables could not be dropped: see above"
	# Who sends a dump reads nothing before all is sent, so the rest of one that fails is read too.
	# The dump's version of the tables waits in a table of its own until all is there. Routines get the user of this database.
	# shellcheck disable=SC2016 # quotes of SQL
	{ if [ -n "$name" ]; then gzip -dc "$backups/$name"; else gzip -dc; fi; } |
		sed -e 's/^\([A-Z/*!0-9 ]*\)`convert_version_table`/\1`corral_version_table`/' -e 's/^CREATE DEFINER=[^ ]*/CREATE/' -e '$w /tmp/last' |
		sql || { [ -n "$name" ] || cat >/dev/null; die "the dump could not be loaded: see above. The database is closed until it is restored"; }
	grep -q '^-- Dump completed' /tmp/last || die "the dump is not whole. The database is closed until it is restored"
	# slurmctld still has the numbers of rows that came after the dump, by which it reports the ends of jobs: no other job may get one of them. Since 24.11
	# slurmctld makes these numbers itself, of the ClusterID and the time, with the highest bit set; MariaDB leaves AUTO_INCREMENT where those are.
	next=$(value "SELECT COALESCE(MAX(auto_increment), 0) FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = '${cluster}_job_table' AND auto_increment < 9223372036854775808") || exit 1
	sql <<-END || die "the restored database could not be opened: see above"
		ALTER TABLE \`${cluster}_job_table\` AUTO_INCREMENT = $((next + 1000000000));
		START TRANSACTION;
		UPDATE cluster_table SET id = $id WHERE name = '$cluster' AND $id <> 0;
		DELETE FROM convert_version_table;
		INSERT INTO convert_version_table SELECT * FROM corral_version_table;
		COMMIT;
		DROP TABLE corral_version_table;
	END
}

case ${1:-}:$# in
dump:1 | inspect:1 | close:1 | backup:2 | restore:3 | restore:4)
	connect
	"$@"
	;;
find:3) find_dump "$2" "$3" ;;
idle:1) exec sleep infinity ;;
*) die "usage: database.sh dump | backup KEEP | find NAME CLUSTER | inspect | close | restore CLUSTER ID [NAME] | idle" ;;
esac
