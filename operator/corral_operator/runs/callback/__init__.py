# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ansible-playbook of a cold run loads of the operator, as a plugin: it is started by ansible-runner and not by this package."""
