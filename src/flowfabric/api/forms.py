"""The form of a type on the wire: derived from the type, so that no shape is written twice.

Ids are texts, instants RFC 3339 in UTC, durations seconds, unions tagged, payloads JSON or bytes,
refusals problems. `form(T)` gives the wire's type (for decoding and for the schema) and the two
functions between it and `T`. Struct types get a mirror of the same name.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType

from flowfabric.api import payloads
from flowfabric.api.leaves import LEAVES, PACKED_LEAVES, Convert, Form
from flowfabric.api.list_values import list_dumper, list_loader
from flowfabric.api.problems import Problem, error_of, problem_of
from flowfabric.api.struct_values import answer_loader, dumper, loader
from flowfabric.api.wire_members import WireMember, encoding_member
from flowfabric.conditions.condition import Condition
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ApiError, FlowFabricError
from flowfabric.joins import JoinPolicy
from flowfabric.policy import ExponentialBackoff, FixedBackoff

Direction: TypeAlias = Literal["in", "out"]
"""`in`: what a caller gives, absent members have their defaults. `out`: all members are there."""

_CONDITION_MEMBERS: Final = frozenset(typing.get_args(Condition))
_HANDLES: Final = {"lease": "handle", "leases": "handles"}
"""The fields of leases, and what the wire calls them."""
_VALUES: Final = frozenset({*typing.get_args(JoinPolicy), FixedBackoff, ExponentialBackoff})
"""Structs of unions that are values and no answers: their tag is `type` in both directions."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Wanted(msgspec.Struct, frozen=True):
    """For which side a form is, and whether for MessagePack.

    `read` is for a caller that reads an answer: refusals are errors again, with their facts.
    """

    use: Direction
    packed: bool = False
    tagged: bool = False
    read: bool = False


def snake(name: str) -> str:
    """`TerminalFailed` as `terminal_failed`."""
    return _CAMEL.sub("_", name).lower()


@functools.cache
def form(kind: Any, wanted: Wanted) -> Form:
    """The form of this type; raises `TypeError` for a type that has none."""
    if kind in (Any, object, None, type(None), bool, int, float, str, bytes, UUID, msgspec.Raw):
        return Form(kind)
    leaf = (PACKED_LEAVES if wanted.packed else LEAVES).get(kind)
    if leaf is not None:
        return leaf
    if isinstance(kind, type):
        if issubclass(kind, FlowFabricError):
            return _ERROR if wanted.read else _REFUSED
        if issubclass(kind, msgspec.Struct):
            return _struct(kind, wanted)
        if issubclass(kind, Enum):
            return Form(kind)
    return _composed(kind, wanted)


def _composed(kind: Any, wanted: Wanted) -> Form:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    inner = msgspec.structs.replace(wanted, tagged=False)
    if origin is Annotated:
        found = form(args[0], wanted)
        return Form(Annotated[(found.wire, *args[1:])], found.dump, found.load)
    if origin is Literal:
        return Form(kind)
    if origin in (Union, types.UnionType):
        return _union(args, inner)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return _fixed_tuple(tuple(form(each, inner) for each in args))
    if origin in (tuple, list, set, frozenset, Sequence, Collection):
        make = list if origin in (Sequence, Collection) else cast("Convert", origin)
        return _list(form(args[0], inner), make)
    if origin in (dict, Mapping):
        return _dict(form(args[0], inner), form(args[1], inner))
    raise TypeError(f"{kind!r} has no form on the wire")


def _list(member: Form, make: Convert) -> Form:
    wire, dump, load = list[member.wire], member.dump, member.load
    return Form(
        wire,
        list if dump is None else member.dump_all or _each(dump),
        make if load is None else _made(member.load_all or _each(load), make),
    )


def _each(change: Convert) -> Convert:
    return lambda values: [change(each) for each in values]


def _made(load_all: Convert, make: Convert) -> Convert:
    return load_all if make is list else lambda values: make(load_all(values))


def _fixed_tuple(members: tuple[Form, ...]) -> Form:
    wire = tuple[tuple(each.wire for each in members)]  # type: ignore[misc]  made at run time
    return Form(
        wire,
        lambda values: [one.dumped(each) for one, each in zip(members, values, strict=True)],
        lambda values: tuple(one.loaded(each) for one, each in zip(members, values, strict=True)),
    )


def _dict(key: Form, value: Form) -> Form:
    if key.dump is None and value.dump is None and key.load is None and value.load is None:
        return Form(dict[key.wire, value.wire])
    return Form(
        dict[key.wire, value.wire],
        lambda values: {key.dumped(name): value.dumped(each) for name, each in values.items()},
        lambda values: {key.loaded(name): value.loaded(each) for name, each in values.items()},
    )


# Unions: None beside one type, a duration, or structs by their tag.


def _union(args: tuple[Any, ...], wanted: Wanted) -> Form:
    kinds = [each for each in args if each is not type(None)]
    optional = len(kinds) < len(args)
    if set(kinds) == {float, timedelta}:
        found = LEAVES[timedelta]
        found = Form(found.wire, found.dump)
    elif kinds and all(_is_refusal(each) for each in kinds):
        if wanted.read:
            return Form(dict[str, Any], load=_error)
        return Form(_REFUSED.wire | CallDone, lambda it: _DONE if it is None else _refused(it))
    elif set(kinds) >= _CONDITION_MEMBERS:
        found = LEAVES[Condition]
    elif len(kinds) == 1:
        found = form(kinds[0], wanted)
    elif any(_is_struct(each) for each in kinds):
        found = _tagged(kinds, wanted)
    else:
        found = _plain_union(kinds, wanted)
    return _optional(found) if optional else found


def _optional(found: Form) -> Form:
    dump, load = found.dump, found.load
    return Form(
        found.wire | None,
        None if dump is None else lambda value: None if value is None else dump(value),
        None if load is None else lambda value: None if value is None else load(value),
        present=found,
    )


def _plain_union(kinds: list[Any], wanted: Wanted) -> Form:
    """Types that the wire tells apart by themselves, such as a number and a text."""
    enums = [each for each in kinds if isinstance(each, type) and issubclass(each, Enum)]
    if enums and any(typing.get_origin(each) is Literal for each in kinds):
        return Form(enums[0])  # the literals are its words
    forms = {each: form(each, wanted) for each in kinds}
    if any(each.load is not None for each in forms.values()):
        raise TypeError(f"{kinds!r} cannot be told apart on the wire")
    return Form(_either([each.wire for each in forms.values()]))


def _either(wires: list[Any]) -> Any:
    found = wires[0]
    for each in wires[1:]:
        found = found | each
    return found


def _tagged(kinds: list[Any], wanted: Wanted) -> Form:
    tagged = msgspec.structs.replace(wanted, tagged=True)
    members = {each: form(each, tagged) for each in kinds if _is_struct(each)}
    wires = [each.wire for each in members.values()]
    if any(_is_refusal(each) for each in kinds):
        if wanted.read:
            return _answer_or_error(members, packed=wanted.packed)
        wires.append(_REFUSED.wire)
    loads = {each.wire: each.loaded for each in members.values()}

    def dump(value: Any) -> Any:
        found = members.get(type(value))
        return _refused(value) if found is None else found.dumped(value)

    return Form(_either(wires), dump, lambda value: loads[type(value)](value))


def _answer_or_error(members: Mapping[Any, Form], *, packed: bool) -> Form:
    """Reads one of these answers, or the error of a refusal, whose facts no struct has."""
    wires = [each.wire for each in members.values()]
    known = _either([*wires, _RefusedAnswer])
    decoder = msgspec.msgpack.Decoder(known) if packed else msgspec.json.Decoder(known)
    decode_any = msgspec.msgpack.decode if packed else msgspec.json.decode
    loads = {each.wire: each.loaded for each in members.values()}

    def load(value: msgspec.Raw) -> Any:
        answer = decoder.decode(value)
        if type(answer) is _RefusedAnswer:
            return _error(decode_any(value))
        return loads[type(answer)](answer)

    return Form(msgspec.Raw, load=load)


def _error(members: Mapping[str, Any]) -> FlowFabricError | None:
    """The error of a refusal; None for another answer."""
    if members["result"] != "refused":
        return None
    return error_of(members) or ApiError.of(members)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_refusal(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, FlowFabricError)


class CallDone(msgspec.Struct, frozen=True, tag_field="result", tag="done"):
    """The call took effect, and has nothing else to tell."""


class _RefusedAnswer(msgspec.Struct, frozen=True, tag_field="result", tag="refused"):
    """A refusal, before its facts are read."""


class Refused(Problem, frozen=True, kw_only=True, tag_field="result", tag="refused"):
    """One of many calls was refused; the others are not affected."""


_DONE: Final = CallDone()


def _refused(error: FlowFabricError) -> dict[str, Any]:
    return {"result": "refused", **problem_of(error)}


_REFUSED: Final = Form(Refused, _refused)
_ERROR: Final = Form(dict[str, Any], load=_error)


# Structs.


def _struct(kind: type[msgspec.Struct], wanted: Wanted) -> Form:
    fields = _fields(kind, wanted)
    mirror = _mirror(kind, fields, wanted)
    answers = wanted.use == "out"
    tag = {_tag_field(kind, wanted): snake(kind.__name__)} if wanted.tagged else {}
    dump = dumper(fields, tag, packed=wanted.packed, answers=answers)
    if not wanted.packed:
        return Form(mirror, dump, loader(kind, fields, packed=False, answered=answers))
    if wanted.read:
        load = answer_loader(kind, fields)
    else:
        load = loader(kind, fields, packed=True, answered=answers)
    return Form(
        mirror,
        dump,
        load,
        dump_all=list_dumper(fields, tag, answers=answers),
        load_all=list_loader(kind, fields, load, only_bytes=wanted.read),
    )


def _fields(kind: type[msgspec.Struct], wanted: Wanted) -> list[WireMember]:
    hints = typing.get_type_hints(kind, include_extras=True)
    inner = msgspec.structs.replace(wanted, tagged=False)
    found: list[WireMember] = []
    taken: set[str] = set()
    for field in msgspec.structs.fields(kind):
        required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        encoding, member = _payload(kind, field.name, hints)
        if encoding is not None:
            taken.add(encoding)
            found.append(WireMember(field.name, member, Form(bytes), required, encoding))
        elif field.name not in taken:
            member = field.encode_name
            if hints[field.name] in (Lease, list[Lease]):
                member = _HANDLES[member]
            found.append(WireMember(field.name, member, form(hints[field.name], inner), required))
    return found


def _payload(kind: type, name: str, hints: dict[str, Any]) -> tuple[str | None, str]:
    """The field of the encoding if `name` is a payload, and the payload's member."""
    pair = payloads.PAIRS.get(name)
    if pair is None or hints[name] not in (bytes, bytes | None):
        return None, name
    encoding, member = pair
    if encoding not in hints:
        encoding = "encoding" if "encoding" in hints else ""
    return encoding, member


def _mirror(kind: type[msgspec.Struct], fields: list[WireMember], wanted: Wanted) -> type:
    given = wanted.use == "in"
    members: list[Any] = []
    for each in fields:
        if each.encoding is not None:
            raw: Any = msgspec.Raw | UnsetType if given else msgspec.Raw
            if not (wanted.read and wanted.packed):  # then every payload is bytes
                members.append((each.member, raw, UNSET if given else NODEFAULT))
            members.append((f"{each.member}_base64", bytes | None, None if given else NODEFAULT))
            if each.encoding:
                name = encoding_member(each, fields)
                members.append((name, str | None, None if given else NODEFAULT))
        elif given and not each.required:
            members.append((each.member, each.form.wire | None | UnsetType, UNSET))
        else:
            members.append((each.member, each.form.wire))
    described: dict[str, Any] = {"__doc__": kind.__doc__}
    return msgspec.defstruct(
        _name(kind, wanted),
        [each if each[-1] is not NODEFAULT else each[:2] for each in members],
        namespace=described,
        module="flowfabric.api",
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=given,
        tag_field=_tag_field(kind, wanted) if wanted.tagged else None,
        tag=snake(kind.__name__) if wanted.tagged else None,
    )


def _tag_field(kind: type, wanted: Wanted) -> str:
    return "type" if wanted.use == "in" or kind in _VALUES else "result"


def _name(kind: type, wanted: Wanted) -> str:
    """The name in the document: what is given and what is answered are two schemas."""
    name = kind.__name__.lstrip("_")
    if wanted.use == "in":
        return name if name.endswith(("Request", "Requests")) else f"{name}Given"
    return f"{name}Result" if wanted.tagged and kind not in _VALUES else name
