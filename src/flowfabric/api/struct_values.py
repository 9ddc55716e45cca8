"""Values of structs between their type and the wire, quickly: a batch has them by the thousand.

The members of a value are read by one call, only those whose form differs are changed one by one,
and what can be made by position is: to pass arguments by name takes three times as long.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, cast

import msgspec
from msgspec import UNSET

from flowfabric.api import payloads
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


def _reader(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these attributes."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        read = attrgetter(names[0])
        return lambda value: (read(value),)
    return attrgetter(*names)


def _present(form: Form, how: str) -> Convert | None:
    """The change of a value that is not None."""
    return getattr(form if form.present is None else form.present, how)


def dumper(
    fields: Sequence[WireMember], tag: Mapping[str, str], *, packed: bool, answers: bool
) -> Convert:
    """From a value to its members, as a dict. An answer has all of them, and is only encoded."""
    if answers and (packed or all(each.encoding is None for each in fields)):
        return _answer_dumper(fields, tag)
    template: dict[str, Any] = dict(tag)
    for each in fields:
        if each.encoding is None or not packed or answers:
            template[each.member] = None
        if each.encoding is not None:
            template[f"{each.member}_base64"] = None
            if each.encoding:
                template[encoding_member(each, fields)] = None
    plain = [each for each in fields if each.encoding is None]
    names = [(each.name, each.member) for each in plain]
    if packed:  # every payload is bytes
        names += _packed_payloads(fields)
    members, read = [member for _, member in names], _reader([name for name, _ in names])
    changes = [
        (each.member, _present(each.form, "dump"), each.form.present is not None)
        for each in plain
        if each.form.dump is not None
    ]
    dumps = [
        _payload_dumper(each, fields, answers=answers)
        for each in fields
        if each.encoding is not None and not packed
    ]

    def dump(value: Any) -> dict[str, Any]:
        found = template.copy()
        found.update(zip(members, read(value), strict=True))
        for member, change, optional in changes:
            given = found[member]
            if change is not None and not (optional and given is None):
                found[member] = change(given)
        for payload in dumps:
            payload(value, found)
        return found

    return dump


def _answer_dumper(fields: Sequence[WireMember], tag: Mapping[str, str]) -> Convert:
    """From a value to a struct of its members, which is made and encoded faster than a dict.

    Payloads are bytes: it is for MessagePack, or there are none.
    """
    plain = [each for each in fields if each.encoding is None]
    sources = {each.member: each.name for each in plain}
    sources |= {member: name for name, member in _packed_payloads(fields)}
    absent = [each.member for each in fields if each.encoding is not None]  # payloads as JSON
    read = _reader(list(sources.values()))
    names = {f"member_{place}": member for place, member in enumerate([*sources, *absent])}
    shape: Convert = msgspec.defstruct(
        "Members",
        [(each, Any, None) for each in names],
        rename=names,
        tag_field=next(iter(tag), None),
        tag=next(iter(tag.values()), None),
        gc=False,
    )
    changes = [
        (place, change, each.form.present is not None)
        for place, each in enumerate(plain)
        if each.form.dump is not None and (change := _present(each.form, "dump")) is not None
    ]
    if not changes:
        return lambda value: shape(*read(value))

    def dump(value: Any) -> Any:
        found = [*read(value)]
        for place, change, optional in changes:
            given = found[place]
            if not (optional and given is None):
                found[place] = change(given)
        return shape(*found)

    return dump


def _packed_payloads(fields: Sequence[WireMember]) -> list[tuple[str, str]]:
    """The fields of payloads and encodings, each with its member in MessagePack."""
    found: list[tuple[str, str]] = []
    for each in fields:
        if each.encoding is not None:
            found.append((each.name, f"{each.member}_base64"))
            if each.encoding:
                found.append((each.encoding, encoding_member(each, fields)))
    return found


def _payload_dumper(
    field: WireMember, fields: Sequence[WireMember], *, answers: bool
) -> Callable[[Any, dict[str, Any]], None]:
    """Puts a payload among the members of JSON: as it is or as bytes, and how it is encoded."""
    read = attrgetter(field.name)
    read_encoding = attrgetter(field.encoding) if field.encoding else None
    member, as_bytes = field.member, f"{field.member}_base64"
    encoding = encoding_member(field, fields)

    def dump(value: Any, found: dict[str, Any]) -> None:
        given = read(value)
        said = None if read_encoding is None else read_encoding(value)
        raw, rest = payloads.split(given, said)
        for name, each in ((member, raw), (as_bytes, rest)):
            if each is not None or answers:
                found[name] = each
            else:  # null would be a payload of its own
                del found[name]
        if read_encoding is not None:
            found[encoding] = said

    return dump


def loader(
    kind: type[msgspec.Struct], fields: Sequence[WireMember], *, packed: bool, answered: bool
) -> Convert:
    """From the members to a value; what is absent has its default.

    The `ValidationError` of a leaf, which does not know its name, gets the name of its member.
    """
    plain = [each for each in fields if each.encoding is None]
    if _is_by_position(kind, fields):
        join = partial(payloads.join, packed=packed, answered=answered)
        return _positional_loader(kind, fields, join)
    names, read = [each.name for each in plain], _reader([each.member for each in plain])
    changes = _changes(plain)
    required = [each.name for each in plain if each.required]
    needed = _needed(kind)
    loads = [
        _payload_loader(each, fields, needed, packed=packed, answered=answered)
        for each in fields
        if each.encoding is not None
    ]

    def load(given: Any) -> Any:
        found = {
            name: each
            for name, each in zip(names, read(given), strict=True)
            if each is not None and each is not UNSET
        }
        for name, member, change in changes:
            if name in found:
                found[name] = _changed(member, change, found[name])
        for name in required:
            found.setdefault(name, None)
        for payload in loads:
            payload(given, found)
        return kind(**found)

    return load


def answer_loader(kind: type[msgspec.Struct], fields: Sequence[WireMember]) -> Convert:
    """As `loader`, for answers of MessagePack, which have all members and payloads as bytes."""
    plain = [each for each in fields if each.encoding is None]
    pairs = _members(fields)
    names, read = [name for name, _ in pairs], _reader([member for _, member in pairs])
    if _is_by_position(kind, fields):
        return _positional_loader(kind, fields)
    changes, needed = _changes(plain), _needed(kind)
    defaults = {
        each.name
        for each in msgspec.structs.fields(kind)
        if not each.required and each.default is not None
    }
    """Fields for which null stands for a default that is not None."""
    replaced = [name for name in names if name in defaults or needed.get(name) is not None]

    def load(given: Any) -> Any:
        found = dict(zip(names, read(given), strict=True))
        for name, member, change in changes:
            value = found[name]
            if value is not None:
                found[name] = _changed(member, change, value)
        for name in replaced:
            if found[name] is None:
                if name in defaults:
                    del found[name]
                else:
                    found[name] = needed[name]
        return kind(**found)

    return load


def _is_by_position(kind: type[msgspec.Struct], fields: Sequence[WireMember]) -> bool:
    """Does the type take its fields by position, and has the wire all of them?"""
    parameters = inspect.signature(kind).parameters.values()
    found = {name for name, _ in _members(fields)}
    return all(each.kind is not each.KEYWORD_ONLY and each.name in found for each in parameters)


def _members(fields: Sequence[WireMember]) -> list[tuple[str, str]]:
    """The fields, each with the member that has it; payloads are bytes."""
    plain = [(each.name, each.member) for each in fields if each.encoding is None]
    return plain + _packed_payloads(fields)


def _positional_loader(
    kind: type[msgspec.Struct],
    fields: Sequence[WireMember],
    join: Callable[..., tuple[bytes | None, str | None]] | None = None,
) -> Convert:
    """From the members to a value of a type that is made by position.

    `join` makes the bytes of payloads that are given as they are; None: none is.
    """
    order = list(kind.__struct_fields__)
    members, needed = dict(_members(fields)), _needed(kind)
    given_raw = [each for each in fields if each.encoding is not None and join is not None]
    read = _reader([*(members[name] for name in order), *(each.member for each in given_raw)])
    raws = [
        (order.index(each.name), order.index(each.encoding) if each.encoding else None, each.member)
        for each in given_raw
    ]
    changes = [
        (order.index(name), member, change)
        for name, member, change in _changes([each for each in fields if each.encoding is None])
    ]
    defaults = [
        (place, needed[each.name] if each.required else _default(each))
        for place, each in enumerate(msgspec.structs.fields(kind))
    ]
    replaced = [each for each in defaults if each[1] is not None or join is not None]
    count, make = len(order), cast("Convert", kind)

    def load(given: Any) -> Any:
        found = [*read(given)]
        for at, (place, of_encoding, member) in enumerate(raws, count):
            raw = found[at]
            if join is not None and raw is not None and raw is not UNSET:
                encoding = None if of_encoding is None else found[of_encoding]
                found[place], encoding = join(member, raw, found[place], encoding)
                if of_encoding is not None:
                    found[of_encoding] = encoding
        for place, member, change in changes:
            value = found[place]
            if value is not None and value is not UNSET:
                found[place] = _changed(member, change, value)
        for place, default in replaced:
            value = found[place]
            if value is None or value is UNSET:
                found[place] = default
        return make(*found[:count])

    return load


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _changes(fields: Sequence[WireMember]) -> list[tuple[str, str, Convert]]:
    """The fields whose form differs on the wire, with their members."""
    return [
        (each.name, each.member, change)
        for each in fields
        if each.form.load is not None and (change := _present(each.form, "load")) is not None
    ]


def _changed(member: str, change: Convert, value: Any) -> Any:
    try:
        return change(value)
    except ValidationError as error:
        if error.field is None:
            raise ValidationError(error.code, error.detail, field=member) from None
        raise


def _needed(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What stands for a payload or an encoding that is not given, where there is no default."""
    hints = typing.get_type_hints(kind)
    return {
        each.name: b"" if hints[each.name] is bytes else None
        for each in msgspec.structs.fields(kind)
        if each.required
    }


def _payload_loader(
    field: WireMember,
    fields: Sequence[WireMember],
    needed: Mapping[str, Any],
    *,
    packed: bool,
    answered: bool,
) -> Callable[[Any, dict[str, Any]], None]:
    """Puts a payload and its encoding among the fields, as given in either form."""
    member, as_bytes = field.member, f"{field.member}_base64"
    encoding_name = encoding_member(field, fields)

    def load(given: Any, found: dict[str, Any]) -> None:
        raw, data = getattr(given, member, None), getattr(given, as_bytes)
        encoding = getattr(given, encoding_name) if field.encoding else None
        if raw is not None and raw is not UNSET:
            data, encoding = payloads.join(
                member, raw, data, encoding, packed=packed, answered=answered
            )
        if data is not None:
            found[field.name] = data
        elif field.name in needed:
            found[field.name] = needed[field.name]
        if field.encoding:
            if encoding is not None:
                found[field.encoding] = encoding
            elif field.encoding in needed:
                found[field.encoding] = needed[field.encoding]

    return load
