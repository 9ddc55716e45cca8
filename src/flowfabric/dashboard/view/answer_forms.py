"""The form of an answer: fields from the JSON schema of a waitpoint, and the value that they give.

Of a schema the properties of one object are drawn: texts, numbers, yes or no, choices. A property
of another kind is a field for JSON. What a form cannot check the handler checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from flowfabric.dashboard.problems import FormProblem
from flowfabric.dashboard.table import DialogField

PREFIX: Final = "answer."
"""What the names of the fields begin with."""
_LONG: Final = 200
_MOST: Final = 50

Schema = Mapping[str, Any]


def answer_fields(schema: Schema | None) -> list[DialogField]:
    """The fields of the form; none without a schema."""
    return [_field(name, each, is_required) for name, each, is_required in _properties(schema)]


def answer_of(schema: Schema | None, text: Callable[[str], str]) -> dict[str, Any]:
    """The value that was typed, by the names of the fields; raises `FormProblem`.

    A field that is empty and not required is left out.
    """
    found: dict[str, Any] = {}
    for name, each, is_required in _properties(schema):
        field, kind = PREFIX + name, _kind(each)
        given = text(field)
        if kind == "boolean":
            found[name] = given == "yes"
        elif given.strip():
            found[name] = _value(field, each, kind, given)
        elif is_required:
            raise FormProblem(field, "is needed")
    return found


def _properties(schema: Schema | None) -> list[tuple[str, Schema, bool]]:
    """Name, schema without references, and whether it is required, of each property."""
    if schema is None:
        return []
    whole = _resolved(schema, schema)
    required = whole.get("required", [])
    given = cast("Mapping[str, Schema]", whole.get("properties", {}))
    return [
        (name, _resolved(each, schema), name in required)
        for name, each in list(given.items())[:_MOST]
    ]


def _resolved(part: Schema, whole: Schema) -> Schema:
    """The part itself instead of a reference to it, and what is not null of a choice with null."""
    for _ in range(10):
        choices = cast("list[Schema]", part.get("anyOf", []))
        others = [each for each in choices if each.get("type") != "null"]
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = whole
            for key in reference[2:].split("/"):
                found = found.get(key, {}) if isinstance(found, Mapping) else {}  # pyright: ignore
            part = {**found, **{key: part[key] for key in part if key != "$ref"}}
        elif len(others) == 1 and len(choices) == 2:
            part = {**others[0], **{key: part[key] for key in part if key != "anyOf"}}
        else:
            break
    return part


def _kind(schema: Schema) -> str:
    """`string`, `integer`, `number`, `boolean`, `enum`, or `json` for the rest."""
    if isinstance(schema.get("enum"), list):
        return "enum"
    kind = schema.get("type")
    return kind if kind in ("string", "integer", "number", "boolean") else "json"


def _field(name: str, schema: Schema, is_required: bool) -> DialogField:
    kind = _kind(schema)
    default = schema.get("default")
    value = "" if default is None else _written(default, kind)
    if kind == "boolean":
        value = "yes" if default is True else ""
    choices = [(_written(each, kind), str(each)) for each in schema.get("enum", [])]
    if choices and not (is_required or value):
        choices.insert(0, ("", "no answer"))
    looks = {"boolean": "check", "enum": "select", "integer": "number", "json": "area"}
    is_long = kind == "string" and int(schema.get("maxLength", 0)) > _LONG
    return DialogField(
        name=PREFIX + name,
        label=str(schema.get("title") or name.replace("_", " ").capitalize()),
        kind="area" if is_long else looks.get(kind, "text"),
        value=value,
        hint=str(schema.get("description", "")) or ("JSON" if kind == "json" else ""),
        choices=choices,
        required=is_required and kind != "boolean",
    )


def _written(value: object, kind: str) -> str:
    if kind in ("enum", "json"):
        return msgspec.json.encode(value).decode()
    return str(value)


def _value(field: str, schema: Schema, kind: str, given: str) -> Any:
    if kind == "string":
        longest = schema.get("maxLength")
        if isinstance(longest, int) and len(given) > longest:
            raise FormProblem(field, f"must have at most {longest} characters")
        return given
    try:
        found: Any = float(given) if kind == "number" else msgspec.json.decode(given)
    except ValueError:
        raise FormProblem(field, f"must be {_WANTED[kind]}") from None
    if kind == "enum" and found not in schema["enum"]:
        raise FormProblem(field, "must be one of the choices")
    if kind in ("integer", "number"):
        _check_number(field, schema, kind, found)
    return found


_WANTED: Final = {
    "integer": "a whole number",
    "number": "a number",
    "enum": "one of the choices",
    "json": "JSON",
}


def _check_number(field: str, schema: Schema, kind: str, found: Any) -> None:
    if (kind == "integer" and type(found) is not int) or not math.isfinite(found):
        raise FormProblem(field, f"must be {_WANTED[kind]}")
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not low <= found <= high:
        between = f"{low:g} to {high:g}".replace("-inf to", "at most").replace(
            " to inf", " or more"
        )
        raise FormProblem(field, f"must be {between}")
