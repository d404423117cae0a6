# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes this checkout importable as `ansible_collections.corral.slurm`, so that a plain `pytest tests/unit` works without a word about paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

# The link tree outside the checkout is the Makefile's own; Python's current folder or an installed collection must not win over it.
TREE = subprocess.run([REPOSITORY / "tools" / "tree"], check=True, capture_output=True, text=True).stdout.strip()
if TREE not in sys.path:
    sys.path.insert(0, TREE)
# For ansible-playbook and other programs that tests start.
os.environ["ANSIBLE_COLLECTIONS_PATH"] = TREE
os.environ["PYTHONPATH"] = TREE
