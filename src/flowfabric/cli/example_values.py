"""Values made up for a type, as JSON data: from msgspec's description, or from a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

_BYTES: Final = "aGVsbG8="
_TEXTS: Final[Mapping[type[inspect.Type], str]] = {
    inspect.BytesType: _BYTES,
    inspect.ByteArrayType: _BYTES,
    inspect.MemoryViewType: _BYTES,
    inspect.DateType: "2030-01-31",
    inspect.DateTimeType: "2030-01-31T12:00:00Z",
    inspect.TimeType: "12:00:00Z",
    inspect.TimeDeltaType: "PT90S",
    inspect.DecimalType: "9.99",
    inspect.UUIDType: "00000000-0000-4000-8000-000000000000",
}
_FORMATS: Final[Mapping[str, str]] = {
    "byte": _BYTES,
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "decimal": "9.99",
    "duration": "PT90S",
    "email": "ann@example.org",
    "time": "12:00:00Z",
    "uri": "https://example.org",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEEPEST: Final = 12

Schema = Mapping[str, Any]


def example_value(kind: Any) -> Any:
    """A value of this type; a text is the name of its field, where it may be any text.

    Fields with a default are left out. The value may not fit a pattern or a rule in code.
    """
    return _of_type(inspect.type_info(kind), "value", 0)


def _of_type(info: inspect.Type, name: str, depth: int) -> Any:
    if depth > _DEEPEST:
        return None
    match info:
        case inspect.Metadata():
            extra: Schema | None = msgspec.structs.asdict(info)["extra_json_schema"]
            given = (extra or {}).get("examples")
            return given[0] if given else _of_type(info.type, name, depth)
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return _number(info, 1)
        case inspect.FloatType():
            return _number(info, 1.5)
        case inspect.NoneType():
            return None
        case inspect.EnumType():
            return next(iter(info.cls)).value
        case inspect.LiteralType():
            return info.values[0]
        case inspect.UnionType():
            some = [each for each in info.types if not isinstance(each, inspect.NoneType)]
            return _of_type(some[0], name, depth + 1)
        case inspect.CustomType():
            return _of_model(info.cls, name)
        case inspect.StrType():
            return name.ljust(info.min_length or 0, "x")[: info.max_length]
        case _:
            return _TEXTS[type(info)] if type(info) in _TEXTS else _of_many(info, name, depth)


def _of_many(info: inspect.Type, name: str, depth: int) -> Any:
    """A value that has others in it."""
    match info:
        case inspect.StructType() | inspect.NamedTupleType():
            fields = {
                each.encode_name: _of_type(each.type, each.encode_name, depth + 1)
                for each in info.fields
                if each.required
            }
            if isinstance(info, inspect.NamedTupleType):
                return list(fields.values())
            tag = {} if info.tag_field is None else {info.tag_field: info.tag}
            return [*tag.values(), *fields.values()] if info.array_like else {**tag, **fields}
        case inspect.DataclassType() | inspect.TypedDictType():
            return {
                each.encode_name: _of_type(each.type, each.encode_name, depth + 1)
                for each in info.fields
                if each.required
            }
        case inspect.TupleType():
            return [_of_type(each, name, depth + 1) for each in info.item_types]
        case inspect.CollectionType():
            number = max(info.min_length or 0, 0 if info.max_length == 0 else 1)
            return [_of_type(info.item_type, name, depth + 1)] * number
        case inspect.DictType():
            return {}
        case _:
            return name


def _number(info: inspect.IntType | inspect.FloatType, usual: float) -> float:
    lowest = info.ge if info.ge is not None else usual if info.gt is None else info.gt + 1
    highest = info.le if info.le is not None else usual if info.lt is None else info.lt - 1
    near = usual if lowest <= usual <= highest else lowest if lowest > usual else highest
    step = info.multiple_of
    return near if step is None else -(-near // step) * step


def _of_model(cls: type, name: str) -> Any:
    """A value of a pydantic model, by its JSON schema."""
    schema = getattr(cls, "model_json_schema", None)
    if schema is None:
        return name
    described = cast("Schema", schema())
    return _of_schema(described, name, described.get("$defs", {}), 0)


def _of_schema(schema: Schema, name: str, definitions: Schema, depth: int) -> Any:
    if depth > _DEEPEST:
        return None
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _of_schema(target, name, definitions, depth + 1)
    for given in ("examples", "enum"):
        if schema.get(given):
            return schema[given][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            some = [each for each in schema[choice] if each.get("type") != "null"]
            return _of_schema(some[0], name, definitions, depth + 1)
    match schema.get("type"):
        case _ if "const" in schema:
            return schema["const"]
        case "integer" | "number":
            return max(1, schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1))
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            inner = schema.get("prefixItems") or [schema.get("items", {})]
            return [_of_schema(each, name, definitions, depth + 1) for each in inner]
        case "object":
            fields = schema.get("properties", {})
            return {
                each: _of_schema(fields[each], each, definitions, depth + 1)
                for each in schema.get("required", ())
            }
        case _:
            text = _FORMATS.get(schema.get("format", ""), name)
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
