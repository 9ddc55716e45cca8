"""Values of structs between their type and the wire, quickly: a batch has them by the thousand.

The members of a value are read by one call, only those whose form differs are changed one by one,
and what can be made by position is: to pass arguments by name takes three times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from flowfabric.api import payloads
from flowfabric.api.leaves import Convert
from flowfabric.api.wire_members import (
    ByPosition,
    WireMember,
    answer_shape,
    by_position,
    changed,
    changes_of,
    dumps_of,
    encoding_member,
    members_of,
    needed_by,
    packed_payloads,
    present,
    reader_of,
    sources_of,
)


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
        names += packed_payloads(fields)
    members, read = [member for _, member in names], reader_of([name for name, _ in names])
    changes = [
        (each.member, present(each.form, "dump"), each.form.present is not None)
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
    sources, changes = sources_of(fields), dumps_of(fields)
    read, shape = reader_of(list(sources.values())), answer_shape(fields, sources, tag)
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
    known = by_position(kind, fields, only_bytes=False)
    if known is not None:
        return _positional_loader(known, partial(payloads.join, packed=packed, answered=answered))
    names, read = [each.name for each in plain], reader_of([each.member for each in plain])
    changes = changes_of(plain)
    required = [each.name for each in plain if each.required]
    needed = needed_by(kind)
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
                found[name] = changed(member, change, found[name])
        for name in required:
            found.setdefault(name, None)
        for payload in loads:
            payload(given, found)
        return kind(**found)

    return load


def answer_loader(kind: type[msgspec.Struct], fields: Sequence[WireMember]) -> Convert:
    """As `loader`, for answers of MessagePack, which have all members and payloads as bytes."""
    plain = [each for each in fields if each.encoding is None]
    pairs = members_of(fields)
    names, read = [name for name, _ in pairs], reader_of([member for _, member in pairs])
    known = by_position(kind, fields, only_bytes=True)
    if known is not None:
        return _positional_loader(known)
    changes, needed = changes_of(plain), needed_by(kind)
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
                found[name] = changed(member, change, value)
        for name in replaced:
            if found[name] is None:
                if name in defaults:
                    del found[name]
                else:
                    found[name] = needed[name]
        return kind(**found)

    return load


def _positional_loader(
    known: ByPosition, join: Callable[..., tuple[bytes | None, str | None]] | None = None
) -> Convert:
    """From the members to a value; `join` makes the bytes of payloads given as they are."""
    read, raws, changes, defaults = known.read, known.raws, known.changes, known.defaults
    count, make = known.count, known.make

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
                found[place] = changed(member, change, value)
        for place, default in defaults:
            value = found[place]
            if value is None or value is UNSET:
                found[place] = default
        return make(*found[:count])

    return load


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
