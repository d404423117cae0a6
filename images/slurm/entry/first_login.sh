#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# first_login.sh JAIL [HOMES]: whether a user lacks what first_login.py makes. Called by PAM (pam_exec) before each session, so it checks before it
# starts Python. A link that is planted there can only make it check in vain.
set -u

home=$1$(getent passwd "$PAM_USER" | cut -d : -f 6)
if [ -e "$home/.ssh/corral.pub" ] || { [ ! -e "$1/etc/ssh/ssh_config.d/20-corral.conf" ] && { [ -e "$home" ] || [ -z "${2:-}" ]; }; }; then
	exit 0
fi
exec /usr/local/lib/corral/first_login.py "$@"
