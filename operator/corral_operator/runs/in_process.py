# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a warm run are done by the run's own process, and what is the same in every run is worked out once, by the zygote.

``ansible-playbook`` forks for each task, also for one that is skipped. With one host nothing is won by that, the run is a fork already, and each costs
more than the task. What a task may change of its surroundings in a fork is given as a copy here. Only what is known to be well-behaved is done
so (this collection's actions, and those of Ansible that only compute); anything else is forked for as ever. With ``preload`` this is the only place
that leans on ansible-core's inside, of the version that the image pins.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from ansible._internal import _task
from ansible._internal._templating import _jinja_bits
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_result import _WireTaskResult
from ansible.plugins.loader import get_plugin_loader_namespace
from ansible.plugins.strategy import StrategyBase
from ansible.vars import manager
from jinja2 import Environment
from jinja2.environment import TemplateExpression

from corral_operator.runs.guard import guard

_OURS = "corral.slurm."
_COMPUTING = frozenset(f"ansible.builtin.{name}" for name in ("assert", "debug", "fail", "include_role", "include_tasks", "set_fact"))

# What SIGINT does while a task is done here; None: what it did before.
_leave: Callable[[int, Any], None] | None = None

# How many tasks this process has begun.
begun = 0

# Code of Jinja's compiler by what it was made of.
_compiled: dict[tuple[Any, ...], Any] = {}
# Where the code of the expression that was compiled last is.
_EXPRESSION = ("expression",)


def install() -> None:
    """Have this process, and those that it forks, work so. Ansible has set up how collections are found."""
    from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
    from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
    from ansible_collections.corral.slurm.plugins.module_utils._kube.client import keep_connections, shared_context

    replace(StrategyBase, "_queue_task", _queue_task)
    replace(_jinja_bits.AnsibleEnvironment, "compile", _compile)
    replace(_jinja_bits.AnsibleEnvironment, "compile_expression", _compile_expression)
    replace(manager, "clean_facts", _clean_facts)
    replace(manager, "namespace_facts", _namespace_facts)
    replace(manager.VariableManager, "set_host_facts", _set_host_facts)
    keep_connections()
    with contextlib.suppress(CorralError):  # a run says what is wrong with it
        shared_context(auth.resolve({}))
    guard()


def leave_by(leave: Callable[[int, Any], None]) -> None:
    """Say how the process is left when it shall end during a task."""
    global _leave
    _leave = leave


def replace(owner: Any, name: str, value: Any) -> None:
    """Set a function of a class or a module; mypy lets nobody assign to one."""
    setattr(owner, name, value)


_fork: Any = StrategyBase._queue_task


def _queue_task(strategy: Any, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any) -> None:
    """Do a task, and leave its result where a worker's would be."""
    global begun
    begun += 1
    if not is_done_here(task):
        _fork(strategy, host, task, task_vars, play_context)
        return
    strategy._queued_task_cache[host.name, task._uuid] = {"host": host, "task": task, "task_vars": task_vars, "play_context": play_context}
    strategy._tqm.send_callback("v2_runner_on_start", host, task)
    mine = task.copy(exclude_tasks=True)  # its templates are replaced by their values, those of its blocks too
    with _task.TaskContext(mine), _ended_at_once():
        executor = TaskExecutor(
            host,
            mine,
            dict(task_vars),
            play_context,
            strategy._loader,
            get_plugin_loader_namespace(),
            strategy._final_q,
            strategy._variable_manager,
        )
        returned = executor.run()
    told = _WireTaskResult(host_name=host.name, task_uuid=mine._uuid, return_data=returned, task_fields=mine.dump_attrs())
    result = strategy._convert_wire_task_result_to_raw(told)
    with strategy._results_lock:
        strategy._results.append(result)
    strategy._pending_results += 1


@contextlib.contextmanager
def _ended_at_once() -> Iterator[None]:
    """Let SIGINT end the process as it ends a worker: an exception would wait for the threads of what is done here, and they would go on writing."""
    if _leave is None:
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_done_here(task: Any) -> bool:
    """True for a task that needs no process of its own."""
    if task.loop is not None or task.loop_with or task.async_val or task.delegate_to or task.become:
        return False
    action = str(task._resolved_action or task.action)
    return action.startswith(_OURS) or action in _COMPUTING


_compile_anew: Any = Environment.compile
_compile_expression_anew: Any = _jinja_bits.AnsibleEnvironment.compile_expression


def _compile(environment: Any, source: Any, name: Any = None, filename: Any = None, raw: bool = False, defer_init: bool = False) -> Any:
    """Compile a template, or remember it: Ansible compiles the same text anew whenever it meets it."""
    if environment._debuggable_template_source:
        return _compile_anew(environment, source, name, filename, raw, defer_init)
    if not isinstance(source, str):  # an expression that was parsed
        _compiled[_EXPRESSION] = _compile_anew(environment, source, name, filename, raw, defer_init)
        return _compiled[_EXPRESSION]
    key = (str(source), name, filename, raw, defer_init, *_settings(environment))
    if key not in _compiled:
        _compiled[key] = _compile_anew(environment, source, name, filename, raw, defer_init)
    return _compiled[key]


def _compile_expression(environment: Any, source: Any, undefined_to_none: bool = True) -> Any:
    """Compile a condition, or remember it."""
    key = (*_EXPRESSION, str(source), *_settings(environment))
    if key not in _compiled or environment._debuggable_template_source:
        expression = _compile_expression_anew(environment, source, undefined_to_none)
        _compiled[key] = _compiled.get(_EXPRESSION)
        return expression
    template = environment.template_class.from_code(environment, _compiled[key], environment.make_globals(None))
    return TemplateExpression(template, undefined_to_none)


def _settings(environment: Any) -> tuple[Any, ...]:
    """Return what the code of a template depends on, but for its text."""
    context = _jinja_bits._TemplateCompileContext.current(optional=True)
    overrides = (getattr(environment, one) for one in _jinja_bits._TEMPLATE_OVERRIDE_FIELD_NAMES)
    return type(environment), *overrides, context and context.escape_backslashes


class _Last:
    """A function of the facts that remembers what came of the last ones: the manager changes those of a host in place, by one method."""

    def __init__(self, name: str) -> None:
        self._work: Any = vars(manager)[name]  # imported there
        self._facts: Any = None
        self._made: Any = None

    def __call__(self, facts: Any) -> Any:
        if self._facts is not facts or not facts:
            self._facts, self._made = facts, self._work(facts)
        return self._made

    def forget(self) -> None:
        """Forget it, since the facts have changed."""
        self._facts = self._made = None


_clean_facts = _Last("clean_facts")
_namespace_facts = _Last("namespace_facts")
_set_facts: Any = manager.VariableManager.set_host_facts


def _set_host_facts(variables: Any, host: Any, facts: Any) -> None:
    _clean_facts.forget()
    _namespace_facts.forget()
    _set_facts(variables, host, facts)
