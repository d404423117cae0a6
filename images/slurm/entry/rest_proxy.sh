#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# The proxy before slurmrestd: HAProxy, which reads a renewed certificate again. This script stays the container's first process.
set -uo pipefail

config=/etc/corral/rest/haproxy.cfg
tls=/etc/corral/rest-tls

# A kubelet replaces all files of a Secret at once, by this link; there is none with plainHttp.
version() {
	readlink "$tls/..data" 2>/dev/null || true
}

served=$(version)
haproxy -W -db -f "$config" &
proxy=$!
# USR1 lets requests end.
trap 'kill -USR1 "$proxy" 2>/dev/null; wait "$proxy"; exit 0' TERM
while kill -0 "$proxy" 2>/dev/null; do
	sleep 30 &
	wait -n "$proxy" "$!"
	now=$(version)
	[ "$now" != "$served" ] || continue
	if haproxy -c -q -f "$config"; then
		kill -USR2 "$proxy"
		echo "rest_proxy.sh: the certificate is read again" >&2
	else
		echo "rest_proxy.sh: the new certificate of $tls cannot be used, the former one stays" >&2
	fi
	served=$now
done
wait "$proxy"
status=$?
echo "rest_proxy.sh: haproxy ended with status $status; the container is started again" >&2
exit 1
