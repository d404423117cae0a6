# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readable manifests with values in them, in a Jinja environment in which a value cannot break out of its place.

Every expression is printed as JSON, which is YAML: ``name: {{ corral.name }}`` holds for quotes, newlines and Jinja in the value, and a
dict or list is placed whole. So text is joined inside the expression (``{{ a ~ "-" ~ b }}``), never beside it. Undefined names are errors;
the environment is sandboxed; blocks alone on a line leave no line (``trim_blocks``). Extra filters: ``to_json`` (a text that holds JSON) and ``b64encode``.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import traceback
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import TemplateError
from ansible_collections.corral.slurm.plugins.module_utils._kube.text import as_json

try:
    import jinja2
    import jinja2.sandbox
    import yaml
except ImportError as error:  # Ansible's controller, where templates are rendered, has both
    _MISSING: ImportError | None = error
else:
    _MISSING = None


@functools.cache
def _loader() -> Any:
    """Return the class that reads YAML as Kubernetes does: no dates, JSON's numbers; and no key twice."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                seen: set[str] = set()
                for key, _dummy in node.value:
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} is there twice", key.start_mark)
                    seen.add(key.value)
            return mapping

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    # YAML 1.1 takes 1e-07 for a text, JSON and Kubernetes' reader for a number.
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+$"), list("-0123456789"))
    return Loader


# The templates of the roles; those of others are few, and their folders come and go.
_COLLECTION = Path(__file__).parents[3]
# To be raised when the environment below is changed: code that was compiled in an older one is not used then.
_ENVIRONMENT = 1


def render(templates: list[Path], variables: dict[str, Any], paths: list[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects of all templates, and for each where it was written.

    ``templates`` are files; an ``include`` is looked for beside the template, then in ``paths``. A template without documents gives no object.
    Raises TemplateError that names template and line.
    """
    if _MISSING is not None:
        raise TemplateError(f"Templates need the Python packages Jinja2 and PyYAML ({_MISSING}); install them.")
    objects: list[dict[str, Any]] = []
    origins: list[str] = []
    for template in templates:
        environment = _environment((template.parent, *paths))
        text = _rendered(environment, template, variables)
        for number, document in enumerate(_documents(text, template), 1):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise TemplateError(
                    f"Document {number} of template {template} is no mapping but {type(document).__name__}; a manifest is a mapping."
                )
            objects.append(document)
            origins.append(f"{template.name}, document {number}")
    return objects, origins


def warm() -> None:
    """Build what all templates share (Jinja's lexer, its compiler's imports, the YAML loader), for a process that will fork those that render."""
    if _MISSING is None:
        _environment(()).from_string("{% for a in b %}{{ a }}{% endfor %}").render(b=[{"a": 1}])
        yaml.load("a: 1", Loader=_loader())


@functools.lru_cache(maxsize=32)
def _environment(paths: tuple[Path, ...]) -> jinja2.Environment:
    """Return the environment of a search path; it keeps its compiled templates."""
    environment = jinja2.sandbox.SandboxedEnvironment(
        loader=jinja2.FileSystemLoader([str(path) for path in paths]),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        autoescape=False,
        bytecode_cache=_bytecode_cache() if any(path.is_relative_to(_COLLECTION) for path in paths) else None,
    )
    environment.filters["to_json"] = lambda value: json.dumps(value, sort_keys=True)
    environment.filters["b64encode"] = lambda value: base64.b64encode(str(value).encode()).decode()
    for name in ("tojson", "xmlattr", "urlize", "safe"):  # they make HTML, which nobody wants here
        environment.filters.pop(name, None)
    environment.globals.pop("lipsum", None)
    return environment


@functools.cache
def _bytecode_cache() -> jinja2.BytecodeCache | None:
    """Return where compiled templates are kept from run to run, in a folder of this user's own; compiling them costs more than applying what they make.

    Jinja compares a template's text to tell whether its code still fits; the name has what else that depends on.
    """
    try:
        return jinja2.FileSystemBytecodeCache(pattern=f"corral_{jinja2.__version__}_{_ENVIRONMENT}_%s.cache")
    except (OSError, RuntimeError):  # no folder for temporary files, or somebody else's
        return None


def _finalize(value: Any) -> str:
    """Print an expression."""
    if isinstance(value, jinja2.Undefined):
        value._fail_with_undefined_error()
    return as_json(value)


def _rendered(environment: jinja2.Environment, template: Path, variables: dict[str, Any]) -> str:
    try:
        return environment.get_template(template.name).render(variables)
    except jinja2.TemplateNotFound as error:
        raise TemplateError(
            f"Template {template} includes {error.name}, which is in none of its folders; correct the name or add template_paths."
        ) from error
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"Template {error.filename or template}, line {error.lineno}: {error.message}.") from error
    except Exception as error:  # an expression may raise anything
        where = _place(error, template)
        reason = error.message if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
        raise TemplateError(f"Template {where}: {reason}.") from error


def _place(error: BaseException, template: Path) -> str:
    """Return "file, line N" of the innermost template in an error's traceback; Jinja maps its code back to template lines."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith((".j2", template.name)):
            return f"{frame.filename}, line {frame.lineno}"
    return str(template)


def _documents(text: str, template: Path) -> list[Any]:
    try:
        return list(yaml.load_all(text, Loader=_loader()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1} of its output"
        # Only the part before the value is shown: the value may be a secret.
        shown = "" if mark is None else text.splitlines()[mark.line].partition(":")[0].strip()[:80]
        raise TemplateError(f"Template {template} does not make YAML{line} ({shown!r}): {error.problem}.") from error
    except yaml.YAMLError as error:
        raise TemplateError(f"Template {template} does not make YAML: {' '.join(str(error).split())}.") from error
