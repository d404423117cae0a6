# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all action plugins of the collection share: the module's backend runs in the controller's process where that is possible.

A module costs about 0.65 CPU-seconds before it does anything (a zip is built, copied, unpacked, and a Python starts and imports);
an action plugin runs in the worker that Ansible has forked anyway. So with a local connection the action calls the very
function that the module calls, and otherwise it has Ansible run the module on the task's host.
Imports at the top of an action plugin are paid once a run: the parent process loads the class before it forks.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import logging
import os
import typing as t
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

Backend = Callable[..., dict[str, t.Any]]

# Variable of a play that has no cluster, corral.slurm.render: objects are collected in the fact RENDERED, and nothing else is done.
RENDERS, RENDERED = "corral_renders", "corral_rendered"
_PLUGINS = __name__.removesuffix(".plugin_utils._action")


class BackendAction(ActionBase):
    """Runs ``backend(params, check=…, diff=…)`` here when the task's connection is local, else the module of the same name.

    ``argument_spec`` and ``backend`` are that module's, and so is ``CONSTRAINTS``, the keyword arguments of AnsibleModule that restrict
    combinations (``mutually_exclusive``, ``required_if``…). A subclass overrides ``prepare`` for what only the controller can do.
    """

    module: t.ClassVar[t.Any]
    argument_spec: t.ClassVar[Callable[[], dict[str, t.Any]]]
    backend: t.ClassVar[Backend]
    constraints: t.ClassVar[dict[str, t.Any]] = {}

    _supports_check_mode = True
    _supports_diff = True
    _supports_async = True

    def __init_subclass__(cls, **options: t.Any) -> None:
        """Called when a plugin is loaded, which is just before the parent begins to fork.

        What is in memory by then stays: a garbage collection in a fork would touch all of it, and have the kernel copy it page by page.
        """
        super().__init_subclass__(**options)
        if "argument_spec" not in vars(cls):
            cls.module = importlib.import_module(f"{_PLUGINS}.modules.{cls.__module__.rpartition('.')[2]}")
            cls.argument_spec, cls.constraints = staticmethod(cls.module.argument_spec), getattr(cls.module, "CONSTRAINTS", {})
            if "backend" not in vars(cls):
                cls.backend = staticmethod(cls.module.backend)
        gc.freeze()

    def prepare(self, params: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the parameters as the backend should have them. May raise CorralError."""
        return params

    def render(self, params: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result of a task of corral.slurm.render: what asks or changes a cluster is skipped."""
        return {"changed": False, "skipped": True, "skip_reason": "There is no cluster; corral.slurm.render only renders objects."}

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Ansible's entry: validate, prepare, then run the backend or the module."""
        variables = task_vars if task_vars is not None else {}
        result = super().run(tmp, variables)
        with self._environment():
            validated, secrets = self._validated()
            try:
                params = self.prepare(dict(validated), variables)
                if variables.get(RENDERS):
                    result.update(self.render(params, variables))
                    return result
                if not self._runs_here():
                    arguments = self._arguments(validated, params)
                    result.update(self._execute_module(module_args=arguments, task_vars=variables, wrap_async=self._task.async_val))
                    return result
                with _progress_shown():
                    outcome = type(self).backend(params, check=bool(self._task.check_mode), diff=bool(self._task.diff))
            except CorralError as error:
                outcome = {"failed": True, "changed": bool(error.data.get("changed", False)), **error.data, "msg": str(error)}
        result.update(remove_values(outcome, secrets))
        return result

    def _validated(self) -> tuple[dict[str, t.Any], set[str]]:
        """Return the checked parameters with plain values, and the values that must not be shown."""
        validation = ArgumentSpecValidator(type(self).argument_spec(), **self.constraints).validate(plain(dict(self._task.args)))
        secrets: set[str] = set(validation._no_log_values)  # AnsibleModule reads the same attribute
        if validation.error_messages:
            raise AnsibleActionFail(remove_values("; ".join(validation.error_messages), secrets))
        return validation.validated_parameters, secrets

    def _runs_here(self) -> bool:
        """True when the task's host is this process' host and user."""
        return self._connection.transport == "local" and not self._connection.become and not self._task.async_val

    def _arguments(self, validated: dict[str, t.Any], params: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the module's arguments: what the task says and what ``prepare`` made of it, so that the module's host fills in the rest."""
        names: set[str] = set(self._task.args)
        return {
            name: params[name]
            for name, option in type(self).argument_spec().items()
            if params.get(name) is not None
            and (not names.isdisjoint({name, *option.get("aliases", ())}) or params[name] != validated.get(name))
        }

    def _update_module_args(
        self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any], ignore_unknown_opts: bool = False
    ) -> None:
        """Have the module write none of its parameters into its host's log: objects and documents hold secrets, and no_log of a whole option would blot out
        every name in the result, while that of a part of it misses texts of several lines."""
        super()._update_module_args(module_name, module_args, task_vars, ignore_unknown_opts)
        module_args["_ansible_no_log"] = True

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """The task's ``environment:`` holds here too (K8S_AUTH_KUBECONFIG and friends), as it would for a module."""
        wanted: dict[str, t.Any] = {}
        t.cast(t.Any, self)._compute_environment_string(wanted)
        if not wanted:
            yield
            return
        before = dict(os.environ)
        os.environ.update({str(name): str(value) for name, value in wanted.items()})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


class _Shown(logging.Handler):
    """Shows a backend's progress among Ansible's own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one line."""
        Display().display(f"corral.slurm: {record.getMessage()}")


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Backends know no Ansible and say by a logger how a wait goes; here it is shown while they run."""
    logger = logging.getLogger("corral.slurm.progress")
    handler, level, spread = _Shown(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = spread


def plain(value: t.Any) -> t.Any:
    """Return ``value`` made of plain JSON types only.

    ansible-core 2.19 hands out tagged subclasses of str, int, list… (and vault strings that decrypt on use); a backend should neither
    know of them nor pass their tags on. Text with Jinja in it stays that text.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return str(value)
