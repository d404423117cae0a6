# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to the API server: requests, watches, events, the Lease, the fence for writes and the rate limit."""
