# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to the API server: requests, watches, events, the Lease, and until when and how fast it may be written."""
