# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback plugin that ansible-playbook loads in a cold run, where ansible-runner and not this package starts it."""
