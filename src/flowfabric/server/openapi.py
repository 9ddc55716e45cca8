"""The OpenAPI document: made from the route table and the types of its bodies and answers.

`python -m flowfabric.server.openapi` writes it to `docs/reference/openapi.json`.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from flowfabric import errors
from flowfabric.api.problems import MEDIA_TYPE, Problem
from flowfabric.errors import FlowFabricError, ValidationError
from flowfabric.server.problems import TITLES
from flowfabric.server.routes import ROUTES
from flowfabric.server.table import NOTHING, Kind, Route
from flowfabric.states import Scope
from flowfabric.version import __version__

REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_NUMBERS: Final = frozenset({"attempt_index"})
_UUIDS: Final = frozenset({"flow_id", "edge_id", "waitpoint_id", "token_id"})
_MEANINGS: Final = {
    200: "Done",
    201: "Created",
    202: "Not ended yet",
    204: "Nothing",
    503: "Not ready",
}
_ENTITIES: Final = (
    *("execution", "flow", "edge", "lane", "schedule", "waitpoint", "worker", "tag"),
    *("budget", "limit", "sleep", "step"),
)


def problem_kinds() -> list[str]:
    """The kind of every problem that the server answers with."""
    found = {*TITLES, *ValidationError.CODES, *(f"{each}_not_found" for each in _ENTITIES)}
    found |= {"token_not_found", "summary_not_found", "unavailable", "permission_denied"}
    for name in errors.__all__:
        each = getattr(errors, name)
        if inspect.isclass(each) and issubclass(each, FlowFabricError):
            found.add(each.code)
    return sorted(found)


@functools.cache
def document() -> dict[str, Any]:
    """The whole document."""
    types: list[Any] = [Problem]
    for each in ROUTES:
        for form in (each.body_form(packed=False), *_answers(each)):
            if form is not None:
                types.append(form.wire)
        if each.query is not None:
            types += [field.type for field in msgspec.structs.fields(each.query)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    by_type = dict(zip(types, schemas, strict=True))
    components["Problem"]["properties"]["kind"]["x-known-kinds"] = problem_kinds()
    paths: dict[str, Any] = {}
    for each in ROUTES:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FlowFabric",
            "version": __version__,
            "description": "Durable tasks on Postgres, over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": noun} for noun in dict.fromkeys(each.noun for each in ROUTES)],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "Refused",
                    "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}},
                }
            },
        },
    }


def _answers(route: Route) -> list[Any]:
    if route.kind is Kind.RAW:
        return []
    return [route.answer_forms[status, False] for status in route.answers]


_HEADERS: Final[Mapping[str, Callable[[Route], bool]]] = {
    "Idempotency-Key": lambda route: route.idempotency_key,
    "If-Match": lambda route: route.if_match,
    "If-None-Match": lambda route: route.etag,
    "Last-Event-ID": lambda route: route.kind is Kind.STREAM,
}
"""The headers that a route reads beside those of every request."""


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    text = inspect.getdoc(route.handler) or ""
    summary, _, rest = text.partition("\n")
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": summary,
        "tags": [route.noun],
        "x-scope": route.scope.value,
        "parameters": _parameters(route, schemas),
        "responses": {str(status): _answer(route, status, schemas) for status in route.answers},
    }
    if rest.strip():
        found["description"] = rest.strip()
    if route.scope is Scope.PUBLIC:
        found["security"] = []
    if route.etag:
        found["responses"]["304"] = {"description": "Not changed since `If-None-Match`"}
    found["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    form = route.body_form(packed=False)
    if form is not None:
        schema = schemas[form.wire]
        media = ("application/json", "application/msgpack")
        found["requestBody"] = {
            "required": True,
            "content": {each: {"schema": schema} for each in media},
            "x-max-bytes": route.limit.size,
        }
    return found


def _parameters(route: Route, schemas: dict[Any, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in _PARAMETER.findall(route.path):
        schema: dict[str, Any] = {"type": "string"}
        if name in _NUMBERS:
            schema = {"type": "integer", "minimum": 0}
        elif name in _UUIDS:
            schema = {"type": "string", "format": "uuid"}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if route.query is not None:
        for field in msgspec.structs.fields(route.query):
            found.append(
                {
                    "name": field.encode_name,
                    "in": "query",
                    "required": field.required,
                    "schema": schemas[field.type],
                }
            )
    for name, given in _HEADERS.items():
        if given(route):
            found.append(
                {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
            )
    return found


def _answer(route: Route, status: int, schemas: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": _MEANINGS[status]}
    if route.kind is Kind.STREAM:
        found["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.kind is Kind.RAW:
        found["content"] = {"*/*": {"schema": {}}}
    elif route.answers[status] is not NOTHING:
        form = route.answer_forms[status, False]
        assert form is not None
        schema = schemas[form.wire]
        media = ("application/json", "application/msgpack")
        found["content"] = {each: {"schema": schema} for each in media}
    return found


@functools.cache
def document_text() -> bytes:
    """The document as JSON, the same text every time."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=1) + b"\n"


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/openapi.json")
    target.write_bytes(document_text())
