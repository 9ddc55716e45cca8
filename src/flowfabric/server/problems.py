"""Problems of requests: what is refused before an operation is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flowfabric.api.problems import TYPE

_AT: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
_MISSING: Final = re.compile(r"missing required field `([^`]*)`")

TITLES: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_body": (400, "The body is not what its content type says"),
    "unauthorized": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "cross_site": (403, "Requests from other sites are refused"),
    "route_not_found": (404, "There is no such route"),
    "no_result": (404, "The execution has no result"),
    "method_not_allowed": (405, "The route has no such method"),
    "not_acceptable": (406, "No such media type is answered"),
    "stale_view": (412, "It has changed since it was read"),
    "body_too_large": (413, "The body is too large"),
    "uri_too_long": (414, "The URL is too long"),
    "unsupported_media_type": (415, "The content type is not understood"),
    "misdirected": (421, "This host is not served"),
    "invalid_cursor": (422, "The cursor was not made by this list"),
    "invalid_request": (422, "The request has a wrong member or value"),
    "too_many_requests": (429, "Too many requests"),
    "headers_too_large": (431, "The headers are too large"),
    "internal": (500, "An unexpected error"),
    "draining": (503, "The server is stopping"),
    "not_ready": (503, "The server is not ready"),
}
"""Kinds of problems that the server itself tells, with status and title."""


class RequestProblem(Exception):
    """The request is refused, and no operation was called."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors = kind, detail, errors
        self.headers, self.facts = headers or {}, facts
        self.status, self.title = TITLES[kind]

    def members(self, instance: str) -> dict[str, Any]:
        """The members of the problem document."""
        found: dict[str, Any] = {
            **self.facts,
            "type": TYPE + self.kind,
            "title": self.title,
            "status": self.status,
            "kind": self.kind,
            "category": "request",
            "retryable": self.status in (429, 503),
            "detail": self.detail,
            "instance": instance,
        }
        if self.errors is not None:
            found["errors"] = self.errors
        return found


def invalid(field: str, detail: str) -> RequestProblem:
    """The request is refused because of this field."""
    text = f"{field}: {detail}" if field else detail
    kind = "invalid_cursor" if field == "cursor" else "invalid_request"
    return RequestProblem(kind, text, errors=[{"field": field, "detail": detail}])


def of_decoding(error: msgspec.DecodeError, *, where: str = "") -> RequestProblem:
    """The problem with a body, or with the parameters of a URL, that could not be decoded."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return RequestProblem("invalid_body", text)
    found = _AT.search(text)
    field, detail = (found[1].lstrip("."), text[: found.start()]) if found else ("", text)
    named = _UNKNOWN.search(detail) or _MISSING.search(detail)
    if named is not None:
        field = f"{field}.{named[1]}" if field else named[1]
    return invalid(where + field, detail)
