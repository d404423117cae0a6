# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watches tell, and for which clusters that is a reason to be queued."""
