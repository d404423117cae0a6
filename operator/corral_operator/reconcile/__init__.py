# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is seen of the clusters, what is decided from it, and what becomes of that in the status."""
