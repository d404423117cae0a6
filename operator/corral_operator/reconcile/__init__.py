# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller: it observes clusters, decides what to do, does it, and writes the status."""
