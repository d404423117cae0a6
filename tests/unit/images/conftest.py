# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""A small jail on disk, as the populate job leaves it, where what changes owners needs root; and the image's libraries to be preloaded."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "images" / "slurm"))


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The image's programs set theirs, and some tests run them in this process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Entry points trap SIGHUP, which a shell cannot where it is ignored from the start, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pathlib.Path]:
    """Builds a library to be preloaded, of a source of images/slurm or of a path, as the image does. ``more``: more words for gcc."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")

    def make(source: str | pathlib.Path, *more: str) -> pathlib.Path:
        made = tmp_path_factory.mktemp("preload") / "library.so"
        words = ["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", *more]
        subprocess.run(["gcc", *words, "-o", made, REPOSITORY / "images" / "slurm" / source], check=True)
        return made

    return make


@pytest.fixture(scope="session")
def script() -> Callable[[str, dict[str, str]], str]:
    """Gives the text of an entry point of images/slurm/entry, with words of it replaced, each of which it must have."""

    def read(name: str, instead: dict[str, str]) -> str:
        text = (REPOSITORY / "images" / "slurm" / "entry" / name).read_text()
        for word, other in instead.items():
            assert word in text, word
            text = text.replace(word, other)
        return text

    return read


@pytest.fixture
def jail(tmp_path: pathlib.Path) -> pathlib.Path:
    """Root of a jail with Debian's usual files, one account of somebody else, and a skeleton."""
    if os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    root = tmp_path / "jail"
    (root / "etc/skel/.config").mkdir(parents=True)
    (root / "etc/sudoers.d").mkdir()
    (root / "home").mkdir()
    files = {
        "etc/corral-jail": "{}\n",
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nslurm:x:64030:64030::/:/usr/sbin/nologin\nguest:x:5000:5000::/home/guest:/bin/sh\n",
        "etc/group": "root:x:0:\nslurm:x:64030:\nguest:x:5000:\nvideo:x:44:guest\n",
        "etc/shadow": "root:*:19000:0:99999:7:::\nguest:$y$hash:19000::::::\n",
        "etc/gshadow": "root:*::\nguest:!::\nvideo:!::guest\n",
        "etc/skel/.bashrc": "# rc\n",
        "etc/skel/.config/x": "y\n",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    (root / "etc/shadow").chmod(0o640)
    os.symlink(".bashrc", root / "etc/skel/.profile")
    return root
