# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How full the folder is in which slurmctld keeps its state: what ``df`` says of it, as a sentence. Pure."""

from __future__ import annotations

FOLDER = "/var/spool/slurmctld"
# A volume that hangs keeps nobody from the other answer.
_DF = f"timeout -s KILL 5 df --block-size=1 --output=size,avail {FOLDER} 2>/dev/null"
# Share of the volume from which on it is told, and the room below which it counts as full (as in images/slurm/controller.py).
WARN_AT = 0.9
ROOM = 8 << 20


def beside(command: list[str]) -> list[str]:
    """Return a command that prints the room in a line, and then is the one that is given: each start of a command in a pod costs more than both."""
    return ["sh", "-c", f'echo $({_DF}); exec "$@"', "sh", *command]


def split(printed: str) -> tuple[str, str]:
    """Return of what a command of ``beside`` printed the line about the room, which df's headings begin, and the rest."""
    line, _end, rest = printed.partition("\n")
    return line, rest


def room(line: str, where: str) -> str:
    """Return a sentence for a volume that is full or nearly so, "" for one with room or a line that says nothing.

    ``line`` is that of ``split``, in bytes; ``where`` is the pod that it comes from.
    """
    fields = line.split()[-2:]
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return ""
    size, free = (int(field) for field in fields)
    if size <= 0 or size - free < WARN_AT * size:
        return ""
    share = f"{100 * (size - free) // size} % of {_amount(size)}, {_amount(free)} left"
    advice = "make the claim larger, or delete what is not Slurm's; docs/ha.md explains how"
    if free < min(ROOM, size // 20):
        return f"The state volume of slurmctld in {where} is full ({share}), so jobs are refused and what changes is not saved: {advice}."
    return f"The state volume of slurmctld in {where} is nearly full ({share}); once it is full jobs are refused: {advice}."


def _amount(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
