# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes beside the operator's own: runs of playbooks, what they report, and checks of documents."""
