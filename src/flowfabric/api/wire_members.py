"""The members of a struct on the wire: which field each has, and how its value is changed."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec

from flowfabric.api.leaves import Convert, Form
from flowfabric.errors import ValidationError


class WireMember(msgspec.Struct, frozen=True):
    """One member: the field of the engine's type, and that of the wire's."""

    name: str
    member: str
    form: Form
    required: bool
    encoding: str | None = None
    """For a payload: the field of its encoding, "" if it has none."""


def encoding_member(field: WireMember, fields: Sequence[WireMember]) -> str:
    """The member that tells the encoding of a payload."""
    alone = sum(each.encoding is not None for each in fields) == 1
    return "encoding" if alone else f"{field.member}_encoding"


def reader_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these attributes."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        read = attrgetter(names[0])
        return lambda value: (read(value),)
    return attrgetter(*names)


def present(form: Form, how: str) -> Convert | None:
    """The change of a value that is not None."""
    return getattr(form if form.present is None else form.present, how)


def sources_of(fields: Sequence[WireMember]) -> dict[str, str]:
    """The members of MessagePack, where every payload is bytes, each with its field."""
    sources = {each.member: each.name for each in fields if each.encoding is None}
    return sources | {member: name for name, member in packed_payloads(fields)}


def dumps_of(fields: Sequence[WireMember]) -> list[tuple[int, Convert, bool]]:
    """Which of the `sources_of` are changed, by their places, and may they be None?"""
    return [
        (place, change, each.form.present is not None)
        for place, each in enumerate([each for each in fields if each.encoding is None])
        if each.form.dump is not None and (change := present(each.form, "dump")) is not None
    ]


def answer_shape(
    fields: Sequence[WireMember], sources: Mapping[str, str], tag: Mapping[str, str]
) -> Callable[..., Any]:
    """A struct of the members, made by position in the order of `sources`."""
    absent = [each.member for each in fields if each.encoding is not None]  # payloads as JSON
    names = {f"member_{place}": member for place, member in enumerate([*sources, *absent])}
    return msgspec.defstruct(
        "Members",
        [(each, Any, None) for each in names],
        rename=names,
        tag_field=next(iter(tag), None),
        tag=next(iter(tag.values()), None),
        gc=False,
    )


def packed_payloads(fields: Sequence[WireMember]) -> list[tuple[str, str]]:
    """The fields of payloads and encodings, each with its member in MessagePack."""
    found: list[tuple[str, str]] = []
    for each in fields:
        if each.encoding is not None:
            found.append((each.name, f"{each.member}_base64"))
            if each.encoding:
                found.append((each.encoding, encoding_member(each, fields)))
    return found


@functools.cache
def _positional(kind: type[msgspec.Struct]) -> frozenset[str] | None:
    """The fields of a type that takes all of them by position; None for another."""
    parameters = inspect.signature(kind).parameters.values()
    if any(each.kind is each.KEYWORD_ONLY for each in parameters):
        return None
    return frozenset(each.name for each in parameters)


def members_of(fields: Sequence[WireMember]) -> list[tuple[str, str]]:
    """The fields, each with the member that has it; payloads are bytes."""
    plain = [(each.name, each.member) for each in fields if each.encoding is None]
    return plain + packed_payloads(fields)


class ByPosition(msgspec.Struct, frozen=True):
    """How values of a type that is made by position are read from the members."""

    read: Callable[[Any], tuple[Any, ...]]
    """The fields in their order, and after them the payloads that are given as they are."""
    raws: list[tuple[int, int | None, str]]
    """Each of these payloads: the places of its bytes and of its encoding, and its member."""
    changes: list[tuple[int, str, Convert]]
    defaults: list[tuple[int, Any]]
    """What stands at a place for a member that is not given."""
    count: int
    make: Convert


def by_position(
    kind: type[msgspec.Struct], fields: Sequence[WireMember], *, only_bytes: bool
) -> ByPosition | None:
    """None if the type does not take its fields by position, or the wire has not all of them.

    `only_bytes`: no payload is given as it is.
    """
    members, names = dict(members_of(fields)), _positional(kind)
    if names is None or not names <= members.keys():
        return None
    order, needed = list(kind.__struct_fields__), needed_by(kind)
    given_raw = [each for each in fields if each.encoding is not None and not only_bytes]
    defaults = [
        (place, needed[each.name] if each.required else _default(each))
        for place, each in enumerate(msgspec.structs.fields(kind))
    ]
    return ByPosition(
        read=reader_of([*(members[name] for name in order), *(each.member for each in given_raw)]),
        raws=[
            (
                order.index(each.name),
                order.index(each.encoding) if each.encoding else None,
                each.member,
            )
            for each in given_raw
        ],
        changes=[
            (order.index(name), member, change)
            for name, member, change in changes_of([one for one in fields if one.encoding is None])
        ],
        defaults=[each for each in defaults if each[1] is not None or not only_bytes],
        count=len(order),
        make=cast("Convert", kind),
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def changes_of(fields: Sequence[WireMember]) -> list[tuple[str, str, Convert]]:
    """The fields whose form differs on the wire, with their members."""
    return [
        (each.name, each.member, change)
        for each in fields
        if each.form.load is not None and (change := present(each.form, "load")) is not None
    ]


def changed(member: str, change: Convert, value: Any) -> Any:
    try:
        return change(value)
    except ValidationError as error:
        if error.field is None:
            raise ValidationError(error.code, error.detail, field=member) from None
        raise


def needed_by(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What stands for a payload or an encoding that is not given, where there is no default."""
    hints = typing.get_type_hints(kind)
    return {
        each.name: b"" if hints[each.name] is bytes else None
        for each in msgspec.structs.fields(kind)
        if each.required
    }
