# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab: a real Kubernetes on one plain Debian machine, of Python's standard library only, since it runs before anything is installed."""
