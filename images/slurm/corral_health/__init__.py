# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""The health checks of a node: what is checked (catalogue), how results are read (pure functions), and what becomes of the node."""
