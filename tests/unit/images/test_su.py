# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""su.sh, as slurmd calls it for a user's environment. That it ends in the jail is tried on bare machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "images" / "slurm" / "entry" / "su.sh"
# Slurm's own, src/common/env.c.
COMMAND = "/bin/echo; /bin/echo; /bin/echo; /bin/echo XXXXSLURMSTARTPARSINGHEREXXXX; {}; /bin/echo XXXXSLURMSTOPPARSINGHEREXXXXX"


def called(folder: Path, *words: str) -> list[str]:
    """What jail-exec is given for a call of su with these words, in the environment that slurmd gives."""
    program = folder / "jail-exec"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    text = SCRIPT.read_text()
    for old, new in (
        ("exec /opt/corral/bin/jail-exec", f"exec {program}"),
        ("[ -x /opt/corral/sbin/slurmstepd", f"[ -x {folder}/slurmstepd"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    done = subprocess.run(["bash", "-c", text, "su", *words], env={"ENVIRONMENT": "BATCH"}, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    assert found[:3] == ["plugstack=/run/slurm/conf/plugstack.conf", "--", "su"]
    return found[3:]


@pytest.mark.parametrize("place", ["/usr/sbin", "/opt/slurm 24/sbin"])
def test_the_environment_is_told_by_a_program_that_the_jail_has(tmp_path: Path, place: str) -> None:
    asked = COMMAND.format(f"{place}/slurmstepd getenv")
    assert called(tmp_path, "-", "ada", "-c", asked) == ["-", "ada", "-c", COMMAND.format("/usr/bin/env")]
    (tmp_path / "slurmstepd").touch(0o755)
    assert called(tmp_path, "-", "ada", "-c", asked) == ["-", "ada", "-c", COMMAND.format("/opt/corral/sbin/slurmstepd getenv")]


@pytest.mark.parametrize("words", [["-", "ada"], ["-", "ada", "-c", "echo 'two  words'; id"], ["ada", "-c", COMMAND.format("/bin/env")]])
def test_other_words_stay(tmp_path: Path, words: list[str]) -> None:
    assert called(tmp_path, *words) == words
