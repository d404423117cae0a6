# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The endpoints of this process: metrics, health probes and the admission webhook."""
