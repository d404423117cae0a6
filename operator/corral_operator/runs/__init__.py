# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes of the operator: runs of playbooks, what they report, and checks of documents."""
