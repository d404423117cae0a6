# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the seccomp profiles of worker and login pods from the groups below: `make profiles`.

Allowed is what the container runtimes' own default allows, what entering the jail takes, and what jobs need; docs/security.md tells why.
The files are in the OCI's form, without conditions, for that is what containerd reads. The same files serve x86-64 and ARM; a runtime skips
names that its libseccomp does not know.

Whatever is not named answers ENOSYS, as a kernel that does not have the call: programs then take the way that they have for older kernels.
What is an administrator's answers EPERM, as it would to anybody without the capability.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "roles" / "node_profiles" / "files" / "seccomp"

ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM")

# What every program may do, by what it is for.
COMMON: dict[str, str] = {
    "files": """
        access cachestat chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
        fadvise64_64 arm_fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
        file_getattr file_setattr flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents
        getdents64 ioctl lchown lchown32 link linkat listmount _llseek lseek lstat lstat64 mkdir mkdirat mknod mknodat name_to_handle_at
        newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename
        renameat renameat2 rmdir sendfile sendfile64 splice stat stat64 statfs statfs64 statmount statx symlink symlinkat sync
        sync_file_range sync_file_range2 arm_sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat
        utimensat_time64 utimes vmsplice write writev
    """,
    "extended attributes": """
        fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lremovexattr lsetxattr
        removexattr removexattrat setxattr setxattrat
    """,
    "waiting for files": """
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
        fanotify_mark inotify_add_watch inotify_init inotify_init1 inotify_rm_watch _newselect poll ppoll ppoll_time64 pselect6
        pselect6_time64 select signalfd signalfd4
    """,
    "asynchronous files of the older kind (libaio)": """
        io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
    """,
    "memory": """
        brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap mseal
        msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease remap_file_pages cacheflush
    """,
    "processes": """
        capget capset clone clone3 execve execveat exit exit_group fork getpgid getpgrp getpid getppid getpriority getrusage getsid gettid
        ioprio_get ioprio_set kill pause pidfd_open pidfd_send_signal prctl prlimit64 rseq setpgid setpriority setsid tgkill times tkill
        vfork wait4 waitid waitpid arch_prctl modify_ldt breakpoint set_tls get_thread_area set_thread_area set_tid_address
        restart_syscall getrlimit ugetrlimit setrlimit getcpu sysinfo uname getrandom
    """,
    "signals": """
        rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
        rt_tgsigqueueinfo sigaction sigaltstack signal sigpending sigprocmask sigreturn sigsuspend alarm
    """,
    "users and groups": """
        getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32 getresuid getresuid32 getuid getuid32
        setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 setresgid setresgid32 setresuid
        setresuid32 setreuid setreuid32 setuid setuid32
    """,
    "scheduling": """
        sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min sched_getscheduler
        sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
    """,
    "locks": """
        futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake get_robust_list set_robust_list
    """,
    "time; to set the clock takes SYS_TIME, which nobody has": """
        adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
        clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete timer_getoverrun timer_gettime
        timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
    """,
    "pipes, messages, shared memory": """
        ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget
        msgrcv msgsnd pipe pipe2 semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
    """,
    "network": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 recvmsg send sendmmsg
        sendmsg sendto setsockopt shutdown socketcall socketpair
    """,
    "what the kernel's own probes put into a program": "uprobe uretprobe",
    "programs that confine themselves": """
        landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules seccomp
    """,
    "the jail and containers of users: mount namespaces, file systems, roots": """
        chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree open_tree_attr pivot_root setdomainname sethostname
        setns umount umount2 unshare
    """,
    "debuggers, MPI within a node, CUDA's shared memory; the kernel asks for the same user, or SYS_PTRACE": """
        kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace
    """,
    "NUMA: numactl, Slurm's own binding": """
        get_mempolicy mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node
    """,
}

# What only jobs need.
WORKER: dict[str, str] = {
    "counters: perf, PAPI, VTune, likwid; the node's perf_event_paranoid decides what they see": "perf_event_open",
}

# An administrator's, and nobody's in a pod: said to be forbidden rather than missing.
FORBIDDEN: dict[str, str] = {
    "another kernel, or parts of it": "kexec_load kexec_file_load init_module finit_module delete_module create_module query_module",
    "the machine": "reboot swapon swapoff acct iopl ioperm quotactl quotactl_fd syslog vhangup nfsservctl",
    "its clock": "settimeofday stime clock_settime clock_settime64",
    "files by their handles, past every directory's rights": "open_by_handle_at",
}

# Left out on purpose; named here so that nothing is left out by oversight (a test compares with the kernel's list).
LEFT_OUT: dict[str, str] = {
    "keyrings are the whole node's, but for those of user namespaces": "add_key keyctl request_key",
    "io_uring: a large part of the kernel with a long list of holes; what uses it has a way without": "io_uring_enter io_uring_register io_uring_setup",
    "page faults handed to a program, a tool of exploits": "userfaultfd",
    "watches of whole file systems": "fanotify_init",
    "profiles of the whole machine": "lookup_dcookie",
    "a security module's own": "lsm_set_self_attr",
    "gone from the kernel, or never there": """
        _sysctl afs_syscall get_kernel_syms getpmsg putpmsg security tuxcall uselib ustat vserver sysfs vm86 vm86old
    """,
}

# (system call, argument, comparison, values): only with one of these.
ARGUMENTS: tuple[tuple[str, str, tuple[tuple[int, str], ...]], ...] = (
    (
        "every family but AF_ALG (38), the kernel's cryptography, and AF_VSOCK (40), which leads to the machine that runs this one",
        "socket",
        ((38, "SCMP_CMP_LT"), (39, "SCMP_CMP_EQ"), (40, "SCMP_CMP_GT")),
    ),
    (
        "Linux, 32 bits, its old names, asking; 0x40000 is without randomized addresses, for debuggers and benchmarks",
        "personality",
        tuple((value, "SCMP_CMP_EQ") for value in (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)),
    ),
)
WORKER_ARGUMENTS = (
    (
        "slurmd's lists of devices in cgroup v2 (ConstrainDevices): PROG_LOAD, PROG_ATTACH, TOKEN_CREATE; no maps",
        "bpf",
        ((5, "SCMP_CMP_EQ"), (8, "SCMP_CMP_EQ"), (36, "SCMP_CMP_EQ")),
    ),
)


def profile(kind: str) -> dict[str, Any]:
    """The profile of ``worker`` or ``login`` pods."""
    workers = kind == "worker"
    allowed = {**COMMON, **(WORKER if workers else {})}
    rules: list[dict[str, Any]] = [
        {"comment": comment, "names": sorted(names.split()), "action": "SCMP_ACT_ALLOW"} for comment, names in allowed.items()
    ]
    rules += [
        {"comment": comment, "names": [name], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": value, "op": comparison}]}
        for comment, name, cases in (*ARGUMENTS, *(WORKER_ARGUMENTS if workers else ()))
        for value, comparison in cases
    ]
    rules += [
        {"comment": comment, "names": sorted(names.split()), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
        for comment, names in FORBIDDEN.items()
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": list(ARCHITECTURES),
        "syscalls": rules,
    }


def text(kind: str) -> str:
    """The profile's file."""
    return json.dumps(profile(kind), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write both files."""
    for kind in ("worker", "login"):
        (FOLDER / f"{kind}.json").write_text(text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
