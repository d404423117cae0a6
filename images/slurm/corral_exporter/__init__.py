# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Metrics of a Slurm cluster for Prometheus. Slurm's commands run once per interval, and never for a scrape; what they print is read as a stream."""


class SourceError(Exception):
    """A command failed, or its output cannot be understood; the message is a sentence."""
