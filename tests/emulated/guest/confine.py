# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""confine.py worker|login COMMAND...: run it under that pod's AppArmor profile and its seccomp filter, as a container runtime does."""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


class Program(ctypes.Structure):
    """struct sock_fprog: how many instructions of 8 bytes, and where."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


kind, *command = sys.argv[1:]
with open(f"/guest/{kind}.bpf", "rb") as file:
    code = file.read()
with open("/proc/self/attr/exec", "w") as attribute:
    attribute.write(f"exec corral-{kind}")
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(code) // 8, code)), 0, 0) != 0:
    sys.exit(f"confine.py: the filter is refused: {os.strerror(ctypes.get_errno())}")
os.execvp(command[0], command)
