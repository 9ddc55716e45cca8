"""The log of what operators do: the logger `flowfabric.audit`, which no default level hides.

The table `ff.operator_event` has the same facts for good. Neither has payloads, results or tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Final

from flowfabric.at_commit import at_commit

log: Final = logging.getLogger("flowfabric.audit")
log.setLevel(logging.INFO)  # its own level: that of the root logger does not apply

_NO_REQUEST: Final[Mapping[str, str]] = MappingProxyType({})
_request: Final[ContextVar[Mapping[str, str]]] = ContextVar(
    "flowfabric_request", default=_NO_REQUEST
)


class ActingFor:
    """Inside the block audit records have the fields of one request."""

    __slots__ = ("_fields", "_token")

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _request.set(self._fields)

    def __exit__(self, *error: object) -> None:
        _request.reset(self._token)


def acting_for(principal: str, request_id: str, *, reason: str | None = None) -> ActingFor:
    """Inside the block audit records have the principal and the id of this request.

    Operator events have the reason, too, where the operation is given none.
    """
    fields = {"principal": principal, "request_id": request_id}
    if reason is not None:
        fields["reason"] = reason
    return ActingFor(fields)


def acting_reason() -> str | None:
    """Why the person acts on whose behalf the operation runs; None if that was not said."""
    return _request.get().get("reason")


def audit(event: str, **fields: object) -> None:
    """Record the event once the transaction that runs now is committed.

    Fields that are None are left out. The message has the event and the fields too.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    at_commit(partial(_write, event, {**given, **_request.get()}))


def audit_now(event: str, **fields: object) -> None:
    """Record an event that no commit follows, such as a refusal."""
    given = {name: value for name, value in fields.items() if value is not None}
    _write(event, {**given, **_request.get()})


def _write(event: str, fields: Mapping[str, object]) -> None:
    if not log.hasHandlers():
        return
    shown = " ".join(f"{name}={value}" for name, value in fields.items())
    log.info("%s %s", event, shown, extra={"event": event, **fields})
