# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real Slurm 24.11.5 answered: scontrol and squeue with --json, of a cluster with nodes in several kinds of trouble."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.corral.slurm.plugins.module_utils._slurm import jobs, nodes, partitions, reservations

_FOLDER = Path(__file__).with_name("recorded")


def text(name: str) -> str:
    """nodes, partitions, reservations or jobs."""
    return (_FOLDER / f"{name}.json").read_text()


def node(name: str) -> nodes.Node:
    return next(one for one in nodes.parse(text("nodes")) if one.name == name)


def partition(name: str) -> partitions.Partition:
    return next(one for one in partitions.parse(text("partitions")) if one.name == name)


def reservation(name: str) -> reservations.Reservation:
    return next(one for one in reservations.parse(text("reservations")) if one.name == name)


def job(number: int) -> jobs.Job:
    return next(one for one in jobs.parse(text("jobs")) if one.id == number)
