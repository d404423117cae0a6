# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes quantities, exactly: ``500m`` CPUs, ``1.5Gi`` bytes, ``25%`` of something; and times as Slurm has them."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_QUANTITY = re.compile(r"([0-9]+(?:[.][0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_FACTORS = {
    None: Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(1000**2),
    "G": Fraction(1000**3),
    "T": Fraction(1000**4),
    "P": Fraction(1000**5),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "Ti": Fraction(1024**4),
    "Pi": Fraction(1024**5),
}


def parse(text: str | int) -> Fraction:
    """Return the amount in the base unit (CPUs, bytes). Raises ValueError for what is no quantity of the schema."""
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(f"{text!r} is not a quantity such as 2, 500m or 1.5Gi")
    return Fraction(match[1]) * _FACTORS[match[2]]


def mebibytes(text: str | int) -> int:
    """Return an amount of bytes in whole MiB, rounded down."""
    return int(parse(text) / 1024**2)


def seconds(time: str) -> float:
    """Return a time such as ``7-00:00:00``; INFINITE is more than any."""
    if time == "INFINITE":
        return math.inf
    days, _dash, clock = time.rpartition("-")
    hours, minutes, rest = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def share(text: str | int, of: int) -> int:
    """Return a number, or a share such as ``25%`` of ``of``, rounded up; at least 1, for less would never come to an end."""
    digits = str(text)
    return max(1, -(-int(digits[:-1]) * of // 100) if digits.endswith("%") else int(digits))
