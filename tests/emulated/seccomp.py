# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A seccomp profile as the kernel takes it: made by libseccomp from the OCI's form, as runc makes it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from pathlib import Path

# seccomp.h; the operators are those of an argument's comparison.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OPERATORS = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6}
_X86 = 0x40000003


class _Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("datum_a", ctypes.c_uint64), ("datum_b", ctypes.c_uint64))


def _action(name: str, number: int) -> int:
    return {"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | number}[name]


def compiled(path: Path) -> bytes:
    """The profile's filter, for x86-64 with its programs of 32 bits."""
    profile = json.loads(path.read_text())
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_action(profile["defaultAction"], profile["defaultErrnoRet"]))))
    assert library.seccomp_arch_add(made, ctypes.c_uint32(_X86)) == 0
    for rule in profile["syscalls"]:
        wanted = [_Comparison(one["index"], _OPERATORS[one["op"]], one["value"], 0) for one in rule.get("args", ())]
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == -1:  # newer than the library, whose runtime leaves it out
                continue
            action = ctypes.c_uint32(_action(rule["action"], rule.get("errnoRet", errno.EPERM)))
            done = library.seccomp_rule_add_array(made, action, number, len(wanted), (_Comparison * len(wanted))(*wanted))
            assert done == 0, f"{name}: {os.strerror(-done)}"
    file = os.memfd_create("filter")
    assert library.seccomp_export_bpf(made, file) == 0
    library.seccomp_release(made)
    with os.fdopen(file, "rb") as exported:
        exported.seek(0)
        return exported.read()
