# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Executes tasks of a warm run in the run's own process, and caches in the zygote what is the same in every run.

``ansible-playbook`` forks for each task, even for a skipped one. With one host that gains nothing, since the run is a fork already, and a fork costs
more than the task. Instead, the task gets a copy of what it may modify. Only this collection's actions and those of Ansible that only compute are
executed in process; any other task gets a fork. Only this module and ``preload`` use internals of ansible-core, of the version that the image pins.
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

# The handler of SIGINT during a task in this process; None: it is left alone.
_exit_handler: Callable[[int, Any], None] | None = None

# How many tasks this process has started.
begun = 0

# Code of Jinja's compiler, by its source and settings.
_compiled: dict[tuple[Any, ...], Any] = {}
# The key of the code of the expression that was compiled last.
_EXPRESSION = ("expression",)


def install() -> None:
    """Patch Ansible in this process and its forks. Ansible must have set up its collection loader."""
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
    with contextlib.suppress(CorralError):  # each run reports the error itself
        shared_context(auth.resolve({}))
    guard()


def set_exit_handler(handler: Callable[[int, Any], None]) -> None:
    """Set the handler of SIGINT during a task, which ends the process."""
    global _exit_handler
    _exit_handler = handler


def replace(owner: Any, name: str, value: Any) -> None:
    """Replace a function of a class or a module, to which mypy forbids assignments."""
    setattr(owner, name, value)


_fork: Any = StrategyBase._queue_task


def _queue_task(strategy: Any, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any) -> None:
    """Execute a task, and store its result as if a worker had returned it."""
    global begun
    begun += 1
    if not runs_in_process(task):
        _fork(strategy, host, task, task_vars, play_context)
        return
    strategy._queued_task_cache[host.name, task._uuid] = {"host": host, "task": task, "task_vars": task_vars, "play_context": play_context}
    strategy._tqm.send_callback("v2_runner_on_start", host, task)
    own = task.copy(exclude_tasks=True)  # execution replaces templates by their values, in its blocks too
    with _task.TaskContext(own), _exit_on_interrupt():
        executor = TaskExecutor(
            host,
            own,
            dict(task_vars),
            play_context,
            strategy._loader,
            get_plugin_loader_namespace(),
            strategy._final_q,
            strategy._variable_manager,
        )
        returned = executor.run()
    wire_result = _WireTaskResult(host_name=host.name, task_uuid=own._uuid, return_data=returned, task_fields=own.dump_attrs())
    result = strategy._convert_wire_task_result_to_raw(wire_result)
    with strategy._results_lock:
        strategy._results.append(result)
    strategy._pending_results += 1


@contextlib.contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    """Let SIGINT end the process at once, as it ends a worker: an exception would wait for the task's threads, which would continue to write."""
    if _exit_handler is None:
        yield
        return
    before = signal.signal(signal.SIGINT, _exit_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def runs_in_process(task: Any) -> bool:
    """True for a task that is executed without a fork."""
    if task.loop is not None or task.loop_with or task.async_val or task.delegate_to or task.become:
        return False
    action = str(task._resolved_action or task.action)
    return action.startswith(_OURS) or action in _COMPUTING


_compile_anew: Any = Environment.compile
_compile_expression_anew: Any = _jinja_bits.AnsibleEnvironment.compile_expression


def _compile(environment: Any, source: Any, name: Any = None, filename: Any = None, raw: bool = False, defer_init: bool = False) -> Any:
    """Compile a template, with a cache: Ansible compiles the same text each time."""
    if environment._debuggable_template_source:
        return _compile_anew(environment, source, name, filename, raw, defer_init)
    if not isinstance(source, str):  # a parsed expression
        _compiled[_EXPRESSION] = _compile_anew(environment, source, name, filename, raw, defer_init)
        return _compiled[_EXPRESSION]
    key = (str(source), name, filename, raw, defer_init, *_settings(environment))
    if key not in _compiled:
        _compiled[key] = _compile_anew(environment, source, name, filename, raw, defer_init)
    return _compiled[key]


def _compile_expression(environment: Any, source: Any, undefined_to_none: bool = True) -> Any:
    """Compile a condition, with a cache."""
    key = (*_EXPRESSION, str(source), *_settings(environment))
    if key not in _compiled or environment._debuggable_template_source:
        expression = _compile_expression_anew(environment, source, undefined_to_none)
        _compiled[key] = _compiled.get(_EXPRESSION)
        return expression
    template = environment.template_class.from_code(environment, _compiled[key], environment.make_globals(None))
    return TemplateExpression(template, undefined_to_none)


def _settings(environment: Any) -> tuple[Any, ...]:
    """Return what the code of a template depends on besides its text."""
    context = _jinja_bits._TemplateCompileContext.current(optional=True)
    overrides = (getattr(environment, one) for one in _jinja_bits._TEMPLATE_OVERRIDE_FIELD_NAMES)
    return type(environment), *overrides, context and context.escape_backslashes


class _CachedByFacts:
    """A function of a host's facts that caches its last result. The variable manager changes facts in place, in one method only."""

    def __init__(self, name: str) -> None:
        self._function: Any = vars(manager)[name]
        self._facts: Any = None
        self._result: Any = None

    def __call__(self, facts: Any) -> Any:
        if self._facts is not facts or not facts:
            self._facts, self._result = facts, self._function(facts)
        return self._result

    def forget(self) -> None:
        """Clear the cache: the facts have changed."""
        self._facts = self._result = None


_clean_facts = _CachedByFacts("clean_facts")
_namespace_facts = _CachedByFacts("namespace_facts")
_set_facts: Any = manager.VariableManager.set_host_facts


def _set_host_facts(variables: Any, host: Any, facts: Any) -> None:
    _clean_facts.forget()
    _namespace_facts.forget()
    _set_facts(variables, host, facts)
