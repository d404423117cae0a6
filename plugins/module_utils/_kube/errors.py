# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong with an API server, each as one sentence, and the one place that reads a ``Status`` object."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

# managedFields' typed converter answers 500 without a reason for an object that does not fit its schema; it is the caller's error all the same.
_SCHEMA_ERROR = "failed to create typed patch object"


class KubeError(CorralError):
    """Anything that a Kubernetes API server, or the way to it, refused."""


class ConfigError(KubeError):
    """The credentials, kubeconfig or parameters do not say how to reach a cluster."""


class Unreachable(KubeError):
    """No response from the API server within the deadline."""


@dataclass(frozen=True)
class Cause:
    """One entry of a Status' ``details.causes``."""

    reason: str
    message: str
    field: str


@dataclass(frozen=True)
class Status:
    """An API server's refusal: HTTP code and what its ``Status`` object says."""

    code: int
    reason: str = ""
    message: str = ""
    kind: str = ""
    name: str = ""
    causes: tuple[Cause, ...] = field(default=())
    retry_after: float | None = None

    @property
    def is_field_conflict(self) -> bool:
        """A server-side apply met fields of another manager."""
        return self.code == 409 and any(cause.reason == "FieldManagerConflict" for cause in self.causes)

    @property
    def already_exists(self) -> bool:
        """A create met an object of that name."""
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def is_uid_mismatch(self) -> bool:
        """A delete's precondition is not met: another object of the same name, or another version of it."""
        return self.code == 409 and "precondition" in self.message.lower()

    @property
    def is_race(self) -> bool:
        """Somebody else wrote the object in between; the same request may well succeed."""
        return self.code == 409 and not self.is_field_conflict and not self.already_exists and not self.is_uid_mismatch

    @property
    def namespace_missing(self) -> bool:
        """The namespace that the request names does not exist."""
        return self.code == 404 and self.kind == "namespaces"

    @property
    def is_of_another_uid(self) -> bool:
        """An apply names the UID of an object that has gone, and whose name perhaps another one has (the UID is a field that cannot change)."""
        if self.code == 409:
            return not self.is_field_conflict
        return any(cause.field == "metadata.uid" for cause in self.causes) or "metadata.uid" in self.message

    @property
    def is_untried(self) -> bool:
        """A webhook that may do more than answer is not called for a dry run, so the API server says nothing about the object."""
        return self.code == 400 and "does not support dry run" in self.message

    @property
    def is_schema_error(self) -> bool:
        """The object does not fit its kind's schema (answered with 500 by server-side apply)."""
        return self.code in (400, 422) or _SCHEMA_ERROR in self.message


class ApiError(KubeError):
    """A response of the API server that is not a success; ``status`` holds its parts."""

    def __init__(self, message: str, status: Status, *, data: dict[str, Any] | None = None) -> None:
        super().__init__(message, data=data)
        self.status = status


class Forbidden(ApiError):
    """401 or 403."""


class NotFound(ApiError):
    """404 or 410."""


class Invalid(ApiError):
    """400 or 422, or a schema error."""


class Conflict(ApiError):
    """409."""


class WaitFailed(KubeError):
    """What was waited for cannot come by itself; the text says why."""


class WaitTimeout(KubeError):
    """What was waited for did not come in time; the text says what is missing."""


class TemplateError(KubeError):
    """A template that cannot be rendered or whose output is no Kubernetes object."""


class ExecError(KubeError):
    """A command in a pod could not be started or followed to its end."""


class NotStarted(ExecError):
    """A command in a pod has not begun: its container does not run, or its node does not respond. It can be run elsewhere without running twice."""


def parse_status(code: int, body: bytes, retry_after: str | None = None) -> Status:
    """Return what a refusal says. A body that is no ``Status`` (a proxy's page, say) becomes its first line."""
    wait = float(retry_after) if retry_after is not None and re.fullmatch(r"\d+(\.\d+)?", retry_after.strip()) else None
    try:
        document = json.loads(body)
    except ValueError:
        text = body.decode(errors="replace").strip()
        return Status(code, message=text.splitlines()[0][:300] if text else "", retry_after=wait)
    if not isinstance(document, dict):
        return Status(code, message=str(document)[:300], retry_after=wait)
    details = document.get("details") or {}
    if wait is None and isinstance(details.get("retryAfterSeconds"), int):
        wait = float(details["retryAfterSeconds"])
    causes = tuple(
        Cause(str(cause.get("reason", "")), str(cause.get("message", "")), str(cause.get("field", "")))
        for cause in details.get("causes") or ()
        if isinstance(cause, dict)
    )
    return Status(
        code,
        reason=str(document.get("reason", "")),
        message=str(document.get("message", "")),
        kind=str(details.get("kind", "")),
        name=str(details.get("name", "")),
        causes=causes,
        retry_after=wait,
    )


def parse_object(code: int, body: bytes, content_type: str, what: str, *, method: str, server: str) -> dict[str, Any]:
    """Return the object in a successful response. A login page, or whatever else is no API server, has something else there: raises Unreachable.

    Whatever an API server answers says what it is, discovery too, if without a version for the core group; a Status in place of an object is the
    answer to a DELETE alone.
    """
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind and (data.get("apiVersion") or kind == "APIResourceList") and (kind != "Status" or method == "DELETE"):
        return dict(data)
    sort = content_type.partition(";")[0] or "no content type"
    raise Unreachable(
        f"Could not {what}: {server} answered {code} with something ({sort}) that is no Kubernetes object; "
        "is it an API server, or a proxy's page before it?"
    )


def api_error(status: Status, what: str, *, server: str) -> ApiError:
    """Return the exception for ``status``; ``what`` is the tried action in words ("apply StatefulSet demo/demo-cpu")."""
    message = status.message or f"HTTP {status.code}"
    if status.code == 401:
        return Forbidden(
            f"Could not {what}: the API server {server} does not accept the credentials (401 Unauthorized); log in again or renew the token.",
            status,
        )
    if status.code == 403:
        return Forbidden(f"Could not {what}: {_forbidden(message)}", status)
    if status.is_field_conflict:
        return Conflict(_field_conflict(status, what), status, data={"conflicts": [_conflict_row(cause) for cause in status.causes]})
    if status.namespace_missing:
        return NotFound(f"Could not {what}: namespace {status.name} does not exist; make it first, or name another one.", status)
    if status.code in (404, 410):
        return NotFound(f"Could not {what}: {message}.", status)
    if status.is_schema_error:
        return Invalid(f"Could not {what}: the API server refuses the object: {_invalid(status)}.", status)
    if status.code == 409:
        return Conflict(f"Could not {what}: {message}.", status)
    return ApiError(
        f"Could not {what}: the API server {server} answered {status.code}: {message.rstrip('.')}; try again when it is well.", status
    )


_RBAC = re.compile(
    r'(?P<resource>\S+?)(?: "(?P<name>[^"]*)")? is forbidden: User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<plural>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)


def _forbidden(message: str) -> str:
    """Report who lacks which right where, and which rule gives it; other refusals (Pod Security, quota) in the server's own text."""
    match = _RBAC.search(message)
    if match is None:
        return f"refused by policy: {message.rstrip('.')}."
    group, namespace = match["group"] or "", match["namespace"]
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    kind = "Role" if namespace else "ClusterRole"
    return (
        f"user {match['user']} may not {match['verb']} {match['plural']}{'.' + group if group else ''} {where}; ask an administrator for a {kind} with "
        f"{{apiGroups: [{json.dumps(group)}], resources: [{match['plural']}], verbs: [{match['verb']}]}}."
    )


def _conflict_row(cause: Cause) -> dict[str, str]:
    manager = re.search(r'conflict with "([^"]*)"', cause.message)
    return {"field": cause.field, "manager": manager[1] if manager else cause.message}


def _field_conflict(status: Status, what: str) -> str:
    """Report which fields belong to whom, and what can be done."""
    rows = [_conflict_row(cause) for cause in status.causes]
    fields = ", ".join(f"{row['field']} belongs to {row['manager']}" for row in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"Could not {what}: field {fields}{more}; leave the field out to let its owner keep it, or set force: true to take it over."


def _invalid(status: Status) -> str:
    """Field messages instead of the server's run-on text."""
    if status.causes:
        return "; ".join(f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in status.causes)
    text = status.message.rstrip(".")
    return text.split(": ", 1)[1] if text.startswith(_SCHEMA_ERROR) and ": " in text else text
