# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of servers that tests run."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def authority(work: Path, name: str = "ca") -> Path:
    """Make NAME.crt and NAME.key in a folder, and return the former."""
    certificate = work / f"{name}.crt"
    openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{work}/{name}.key", "-out", str(certificate))
    return certificate


def sign(work: Path, host: str) -> dict[str, str]:
    """Return tls.crt and tls.key for a host, signed by the authority ``ca`` of the folder."""
    # A common name has no room for a long one.
    openssl("req", *_NEW_KEY, "-subj", "/CN=server", "-keyout", f"{work}/tls.key", "-out", f"{work}/tls.csr")
    (work / "names").write_text(f"subjectAltName=DNS:{host}\n")
    openssl(
        "x509", "-req", "-in", f"{work}/tls.csr", "-CA", f"{work}/ca.crt", "-CAkey", f"{work}/ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", f"{work}/names", "-out", f"{work}/tls.crt",
    )  # fmt: skip
    return {name: (work / name).read_text() for name in ("tls.crt", "tls.key")}
