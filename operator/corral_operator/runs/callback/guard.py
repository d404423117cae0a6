# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A callback plugin that is loaded before the first task, to subject the requests of all tasks to the operator's fence."""

from __future__ import annotations

import os

from ansible.plugins.callback import CallbackBase

from corral_operator.runs.guard import guard


class CallbackModule(CallbackBase):
    """Created once, by the process whose forks execute the tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "corral_fence"

    def __init__(self) -> None:
        super().__init__()
        try:
            guard()
        except OSError:  # Ansible would continue without a plugin that fails
            os._exit(1)
