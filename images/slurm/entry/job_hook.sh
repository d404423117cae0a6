#!/bin/bash -p
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
#
# job_hook.sh prolog|epilog: what slurmd runs as root in the pod before each job, and after it. It ends with 1 where the job must not begin, which slurmctld
# then requeues; the node has been drained with a reason of ours by then, or slurmctld would write its own. An epilog always ends with 0.
# job_hook.sh start: before slurmd starts, when no job can be there.
#
# A start of Python costs more than all else here, so health.py runs only where something is wrong, or where the document wants checks before each job.
# The settings are lines of /etc/corral/health/prolog.conf and epilog.conf, made by the collection:
#   checks NAME,…                                   run these anew
#   last                                            what the last health check found counts
#   leftovers                                       end processes that the job's user left behind
#   gpus DIRECTORY                                  write there which job has which GPU, for dcgm-exporter: a file for each GPU, a line for each job
#   script NAME SECONDS ACTION PATH                 a script
#   directory NAME SECONDS ACTION PATH              what is executable in a directory, in the order of names
# ACTION is drain, always (drain, however many nodes are out by it) or log.
set -uo pipefail

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
umask 077
hook=$1
settings=/etc/corral/health
results=/run/corral-health
gpus=/dev/corral-gpu
python=/usr/local/lib/corral/health.sh
job=${SLURM_JOB_ID:-0}
# Of health.py, for a job that must not begin. Not 1, by which an interpreter ends that breaks.
refused=3

# slurmd drops what a prolog prints, unless that fails. The container's log is tini's stderr.
log=/dev/stderr
read -r comm </proc/1/comm
[ "$comm" != tini ] || log=/proc/1/fd/2

say() {
	printf '%s: job %s: %s\n' "$hook" "$job" "$*" >>"$log"
}

# refuse STATUS: what health.py has decided.
refuse() {
	if [ "$1" = "$refused" ]; then
		[ "$hook" != prolog ] || exit 1
	elif [ "$1" != 0 ]; then
		say "health.py ended with status $1, so nothing was done"
	fi
}

failed() { # NAME ACTION DETAIL
	say "script $1 failed: $3"
	[ "$2" != log ] || return 0
	"$python" --job "$hook" --failed "$1" --action "$2" <<<"$3" >/dev/null 2>>"$log"
	refuse $?
}

# Runs a script in a session of its own, which is killed when its time is over. That something that it left behind has its output still, or that it hangs
# in a driver, holds nobody up: its end is read from a pipe that it does not have. Its stderr goes to the log, and the last line of its stdout is the reason.
run() { # NAME SECONDS ACTION PATH
	local name=$1 seconds=$2 action=$3 path=$4 said=$results/.$hook.$$ end pid="" status="" line detail=""
	[ -d "$results" ] || (umask 022 && mkdir -p "$results")
	exec {end}< <(
		exec 4>&1 </dev/null 2>>"$log"
		setsid -- "$path" >"$said" 4>&- &
		echo $! >&4
		wait $!
		echo $? >&4
	)
	IFS= read -r -t 10 -u "$end" pid
	IFS= read -r -t "$seconds" -u "$end" status
	if [ -z "$status" ]; then
		[ -z "$pid" ] || kill -KILL -- "-$pid" "$pid" 2>/dev/null
		detail="it took longer than $seconds s"
		status=late
	elif [ "$status" != 0 ]; then
		while IFS= read -r line || [ -n "$line" ]; do
			[ -z "${line//[[:space:]]/}" ] || detail=${line:0:300}
		done <"$said"
		detail=${detail:-"it ended with status $status"}
	fi
	exec {end}<&-
	rm -f "$said"
	case $status in
	0) ;;
	126 | 127) if [ "$action" = always ]; then failed "$name" "$action" "$detail"; else say "script $name cannot be run: $detail"; fi ;;
	*) failed "$name" "$action" "$detail" ;;
	esac
}

run_directory() { # NAME SECONDS ACTION PATH
	local name=$1 seconds=$2 action=$3 directory=$4 file
	if [ ! -d "$directory" ]; then
		[ "$action" != always ] || failed "$name" "$action" "$directory is not there"
		say "$directory is not there, so nothing of it is run"
		return
	fi
	for file in "$directory"/*; do
		if [ ! -f "$file" ] || [ ! -x "$file" ]; then continue; fi
		# A read-only mount is nobody's to write. sbcast writes in the pod as the user.
		if { [ -w "$directory" ] && others_write "$directory"; } || others_write -L "$file"; then
			say "$file is not run: others than root can write it"
			continue
		fi
		run "$name/${file##*/}" "$seconds" "$action" "$file"
	done
}

others_write() { # [-L] PATH
	[ -n "$(find "$@" -maxdepth 0 \( ! -uid 0 -o -perm /022 \) 2>/dev/null)" ]
}

# The job's GPUs by the driver's numbers, which dcgm-exporter has: what /dev/corral-gpu/N leads to.
gpu_numbers() {
	local item first last number target
	for item in ${SLURM_JOB_GPUS//,/ }; do
		first=${item%-*} last=${item#*-}
		[[ $first$last =~ ^[0-9]{1,8}$ ]] || continue
		for ((number = first; number <= last; number++)); do
			target=$(readlink "$gpus/$number") || target=""
			if [[ $target =~ /nvidia([0-9]+)$ ]]; then
				echo "${BASH_REMATCH[1]}"
			else
				echo "$number"
			fi
		done
	done
}

# map_gpus DIRECTORY add|remove|clear. Shared with the exporter, and perhaps with other workers of the Kubernetes node; a GPU may have several jobs.
map_gpus() {
	local directory=$1 what=$2 number line lines lock beside
	if [ ! -d "$directory" ] || others_write "$directory"; then
		say "the GPUs of the job are not written to $directory: it is not a directory, or others than root can write it"
		return
	fi
	exec {lock}<"$directory"
	if ! flock -w 5 "$lock"; then
		say "the GPUs of the job are not written to $directory: it is locked"
	else
		for number in $(gpu_numbers); do
			lines=()
			if [ "$what" != clear ] && [ -f "$directory/$number" ] && [ ! -L "$directory/$number" ]; then
				while IFS= read -r line; do
					[ "$line" = "$job" ] || [ -z "$line" ] || lines+=("$line")
				done <"$directory/$number"
			fi
			[ "$what" != add ] || lines+=("$job")
			if [ ${#lines[@]} = 0 ]; then
				rm -f "$directory/$number"
			else
				beside=$directory/.$number.$$
				{ printf '%s\n' "${lines[@]}" >"$beside" && chmod 0644 "$beside" && mv -fT "$beside" "$directory/$number"; } 2>>"$log" || rm -f "$beside"
			fi
		done
	fi
	exec {lock}<&-
}

# Whether the process is one of a step, of whatever job. Others can have this name, but not its user.
of_a_step() {
	local pid=$1 line rest
	while [ "$pid" -gt 1 ] && { IFS= read -r line <"/proc/$pid/stat"; } 2>/dev/null; do
		[[ $line != *"(slurmstepd) "* ]] || [ ! -O "/proc/$pid" ] || return 0
		rest=${line##*) }
		rest=${rest#* }
		pid=${rest%% *}
	done
	return 1
}

end_leftovers() {
	local uid=${SLURM_JOB_UID:-0} pid
	[ "$uid" -ge 1000 ] || return 0
	for pid in $(pgrep -u "$uid"); do
		[ -d "/proc/$pid" ] || continue
		if ! of_a_step "$pid"; then
			"$python" --job "$hook" --leftovers >/dev/null 2>>"$log" || say "health.py ended with status $?, so nothing was done"
			return
		fi
	done
}

if [ "$hook" = start ]; then
	[ -r "$settings/epilog.conf" ] && [ -d "$gpus" ] || exit 0
	SLURM_JOB_GPUS=$(cd "$gpus" && echo [0-9]*)
	while read -r kind path; do
		[ "$kind" != gpus ] || map_gpus "$path" clear
	done <"$settings/epilog.conf"
	exit 0
fi

# Read as a whole first: a change of the ConfigMap in between would be read in part.
lines=()
[ ! -r "$settings/$hook.conf" ] || mapfile -t lines <"$settings/$hook.conf"
for line in "${lines[@]}"; do
	read -r kind rest <<<"$line"
	case $kind in
	last)
		[ -s "$results/failed" ] || continue
		"$python" --job "$hook" >/dev/null 2>>"$log"
		refuse $?
		;;
	checks)
		"$python" --job "$hook" --checks "$rest" >/dev/null 2>>"$log"
		refuse $?
		;;
	leftovers) end_leftovers ;;
	gpus)
		[ -n "${SLURM_JOB_GPUS:-}" ] || continue
		if [ "$hook" = prolog ]; then map_gpus "$rest" add; else map_gpus "$rest" remove; fi
		;;
	script | directory)
		read -r name seconds action path <<<"$rest"
		if [ "$kind" = script ]; then run "$name" "$seconds" "$action" "$path"; else run_directory "$name" "$seconds" "$action" "$path"; fi
		;;
	esac
done
exit 0
