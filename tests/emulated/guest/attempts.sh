# shellcheck shell=bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
# What is tried; sourced by machine.sh. Each part of the output has a name, by which the test finds it.
ada() {
	setpriv --reuid=10001 --regid=10001 --clear-groups env --chdir=/ HOME=/home/ada timeout 90 "$@" 2>&1
}
in_pod() { # under the profile and the filter, as all that the pod's programs start
	nsenter -t "$(pgrep -x slurmd)" -m -p python3 /guest/confine.py worker bash -c "$1" 2>&1
}
SSH=(ssh -i /mnt/jail/home/ada/.ssh/id -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null 192.0.2.1)

say pod
cat /sys/fs/cgroup/worker/cgroup.procs /sys/fs/cgroup/worker/cgroup.subtree_control

say step
ada srun -Q sh -c 'cat /proc/self/cgroup /proc/self/attr/current; id -un; test -e /etc/corral-jail && echo jail'

say filter
ada srun -Q grep Seccomp: /proc/self/status
ada srun -Q python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in (246, 248, 172): # kexec_load, add_key, iopl, all with arguments that do nothing
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0))
    print(number, ctypes.get_errno())'

say cores
ada srun -Q -n1 -c1 --mem=100 nproc

say memory
ada srun -Q -n1 -c1 --mem=100 python3 -c 'x = bytearray(300 << 20); print("had it")'

# One job with one GPU, one without; each tries both devices.
# shellcheck disable=SC2016 # the job's shell expands it
try_devices='echo "gpus: $CUDA_VISIBLE_DEVICES"; for device in /dev/nvidia[01]; do head -c 1 "$device" | wc -c; done'
say one-gpu
ada srun -Q -n1 -c1 --mem=100 --gres=gpu:1 sh -c "$try_devices"
say no-gpu
ada srun -Q -n1 -c1 --mem=100 sh -c "$try_devices"

say cgroups
ada srun -Q sh -c 'mkdir /sys/fs/cgroup/mine; echo 1 >/sys/fs/cgroup/cgroup.procs'

say ssh-without-job
ada "${SSH[@]}" true

say ssh
job=$(ada sbatch --parsable -o /dev/null -D /home/ada --wrap 'sleep 60')
for _ in $(seq 60); do
	[ "$(squeue -h -j "$job" -o %t)" != R ] || break
	sleep 0.5
done
ada "${SSH[@]}" -o LogLevel=ERROR 'cat /proc/self/cgroup /proc/self/attr/current; id -un; test -e /etc/corral-jail && echo jail; grep Seccomp: /proc/self/status'
scancel "$job"

LOGIN=(ssh -p 2222 -o LogLevel=ERROR "${SSH[@]:1}")
say login
# shellcheck disable=SC2016 # the session's shell expands it
ada "${LOGIN[@]}" 'cat /proc/self/cgroup /proc/self/attr/current; cd /sys/fs/cgroup/user-$(id -u); cat memory.max cpu.max pids.max; test -e /etc/corral-jail && echo jail'

say login-memory
# shellcheck disable=SC2016 # the session's shell expands it
ada "${LOGIN[@]}" 'for _ in 1 2 3; do python3 -c "import time; x = bytes(b\"1\") * (90 << 20); print(\"had it\", flush=True); time.sleep(999)" & done
	wait -n; echo "ended $?"; kill $(jobs -p)'

say login-processes
ada "${LOGIN[@]}" "python3 -c '
import os, time
for made in range(200):
    try:
        os.fork() or (time.sleep(20), os._exit(0))
    except OSError as error:
        print(made, error.errno)
        break
'"

say login-root
ada "${LOGIN[@]}" "sudo sh -c 'id -u; cat /proc/self/cgroup; cd /sys/fs/cgroup; echo 0 >cgroup.procs; mkdir mine; echo max >user-10001/pids.max; mount -o remount,rw /sys/fs/cgroup'"

say login-after
ada "${LOGIN[@]}" 'echo welcome'
cat /sys/fs/cgroup/login/cgroup.procs

say unconfined
cat /proc/sys/kernel/core_pattern >/tmp/pattern
cat /tmp/pattern >/proc/sys/kernel/core_pattern && echo written

say confined
in_pod 'cat /proc/self/attr/current; cat /tmp/pattern >/proc/sys/kernel/core_pattern && echo written'

say own
in_pod 'cat /proc/sys/kernel/shmmni >/tmp/shmmni; cat /tmp/shmmni >/proc/sys/kernel/shmmni && echo written'

say hidden
in_pod 'head -c 1 /proc/kcore; : >/proc/sysrq-trigger'
