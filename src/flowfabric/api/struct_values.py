"""Values of structs between their type and the wire, quickly: a batch has them by the thousand.

The function for a type is compiled from its fields, as those of dataclasses are: it reads each
member by its name and makes the value by one call. A loop over the fields takes three times as
long. It is compiled when it is first called: a process needs few of all forms.
"""

from __future__ import annotations

import keyword
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET

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

    @property
    def as_bytes(self) -> str:
        """The member that has a payload as bytes."""
        return f"{self.member}_base64"

    def change(self, how: str) -> Convert | None:
        """What changes a value that is not None."""
        found = self.form if self.form.present is None else self.form.present
        return getattr(found, how)


def encoding_member(field: WireMember, fields: Sequence[WireMember]) -> str:
    """The member that tells the encoding of a payload."""
    alone = sum(each.encoding is not None for each in fields) == 1
    return "encoding" if alone else f"{field.member}_encoding"


class _Function:
    """The source of a function with the parameter `given`, and the objects that it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {"UNSET": UNSET}

    def name(self, value: object) -> str:
        """A name for this object."""
        name = f"object_{len(self.objects)}"
        self.objects[name] = value
        return name

    def local(self, source: str) -> str:
        """A name for what this gives."""
        name = f"local_{len(self.lines)}"
        self.lines.append(f"{name} = {source}")
        return name

    def made(self, answer: str) -> Convert:
        """The function, which returns this."""
        source = "\n    ".join(["def function(given):", *self.lines, f"return {answer}"])
        exec(compile(source, "<wire form>", "exec"), self.objects)  # noqa: S102  of our own names
        return self.objects["function"]


class Compiled:
    """A function that is compiled when it is first called."""

    __slots__ = ("_function", "_make")

    def __init__(self, make: Callable[[], Convert]) -> None:
        self._make = make
        self._function: Convert | None = None

    def __call__(self, value: Any) -> Any:
        return self.function(value)

    @property
    def function(self) -> Convert:
        """The function itself, for a caller with many values."""
        if self._function is None:
            self._function = self._make()
        return self._function


def itself(convert: Convert) -> Convert:
    """The function, without the look whether it is compiled."""
    return convert.function if isinstance(convert, Compiled) else convert


# From a value to the wire.


def dumper(
    fields: Sequence[WireMember], tag: Mapping[str, str], *, packed: bool, answers: bool
) -> Convert:
    """From a value to its members.

    A request is a dict. An answer has all members and is a struct: made and encoded faster.
    """
    function = _Function()
    members = {} if answers else {name: repr(each) for name, each in tag.items()}
    for each in fields:
        if each.encoding is None:
            members[each.member] = _dumped(each, function)
            continue
        data, encoding = f"given.{each.name}", f"given.{each.encoding}" if each.encoding else "None"
        if not packed:
            both = function.local(f"{function.name(payloads.split)}({data}, {encoding})")
            members[each.member], data = f"{both}[0]", f"{both}[1]"
        elif answers:
            members[each.member] = "None"
        members[each.as_bytes] = data
        if each.encoding:
            members[encoding_member(each, fields)] = encoding
    if answers:
        shape = function.name(_shape(list(members), tag))
        return function.made(f"{shape}({', '.join(members.values())})")
    found = function.local("{" + ", ".join(f"{n!r}: {each}" for n, each in members.items()) + "}")
    for each in fields:
        if each.encoding is not None and not packed:  # null would be a payload of its own
            for member in (each.member, each.as_bytes):
                function.lines.append(f"if {found}[{member!r}] is None: del {found}[{member!r}]")
    return function.made(found)


def _dumped(field: WireMember, function: _Function) -> str:
    value, change = f"given.{field.name}", field.change("dump")
    if field.form.dump is None or change is None:
        return value
    if field.form.present is None:
        return f"{function.name(itself(change))}({value})"
    return f"None if {value} is None else {function.name(itself(change))}({value})"


def _shape(members: Sequence[str], tag: Mapping[str, str]) -> type[msgspec.Struct]:
    """The struct of these members, given by position."""
    names = {f"member_{place}": member for place, member in enumerate(members)}
    return msgspec.defstruct(
        "Members",
        [(each, Any) for each in names],
        rename=names,
        tag_field=next(iter(tag), None),
        tag=next(iter(tag.values()), None),
        gc=False,
    )


# From the wire to a value.


def _attribute(member: str) -> str:
    """The source that reads a member of the wire, which may be a word of Python such as `from`."""
    return f"getattr(given, {member!r})" if keyword.iskeyword(member) else f"given.{member}"


def loader(
    kind: type[msgspec.Struct],
    fields: Sequence[WireMember],
    *,
    packed: bool,
    answered: bool,
    only_bytes: bool = False,
) -> Convert:
    """From the members to a value; what is absent has its default.

    With `only_bytes` payloads have no other member. The `ValidationError` of a leaf, which does not
    know its name, gets the name of its member.
    """
    function = _Function()
    absent = _Absent(kind, function)
    arguments: dict[str, str] = {}
    for each in fields:
        if each.encoding is None:
            arguments[each.name] = _loaded(each, absent, function, answered=answered)
            continue
        data = function.local(f"given.{each.as_bytes}")
        encoding = "None"
        if each.encoding:
            encoding = function.local(f"given.{encoding_member(each, fields)}")
        if not only_bytes:
            raw = function.local(_attribute(each.member))
            join = function.name(_joiner(each.member, packed=packed, answered=answered))
            both = function.local(
                f"({data}, {encoding}) if {raw} is UNSET or {raw} is None"
                f" else {join}({raw}, {data}, {encoding})"
            )
            data, encoding = function.local(f"{both}[0]"), function.local(f"{both}[1]")
        arguments[each.name] = f"{absent.of(each.name)} if {data} is None else {data}"
        if each.encoding:
            default = absent.of(each.encoding)
            arguments[each.encoding] = f"{default} if {encoding} is None else {encoding}"
    given = ", ".join(f"{name}={each}" for name, each in arguments.items())
    return function.made(f"{function.name(kind)}({given})")


def _loaded(field: WireMember, absent: _Absent, function: _Function, *, answered: bool) -> str:
    value, change = _attribute(field.member), field.change("load")
    default = absent.of(field.name)
    if field.form.load is None:
        change = None
    if change is None and default == "None" and (answered or field.required):
        return value
    value = function.local(value)
    is_absent = f"{value} is None" if answered else f"{value} is None or {value} is UNSET"
    loaded = value
    if change is not None:
        change, checked = function.name(itself(change)), function.name(_changed)
        loaded = f"{checked}({field.member!r}, {change}, {value})"
    return f"{default} if {is_absent} else {loaded}"


class _Absent:
    """What stands for a field that is not given."""

    def __init__(self, kind: type[msgspec.Struct], function: _Function) -> None:
        self._fields = {each.name: each for each in msgspec.structs.fields(kind)}
        self._hints, self._function = typing.get_type_hints(kind), function

    def of(self, name: str) -> str:
        """The source of its default; what has none is None, or empty if it is bytes."""
        field = self._fields[name]
        if field.default_factory is not NODEFAULT:
            return f"{self._function.name(field.default_factory)}()"
        if field.default is NODEFAULT:
            return 'b""' if self._hints[name] is bytes else "None"
        return "None" if field.default is None else self._function.name(field.default)


def _changed(member: str, change: Convert, value: Any) -> Any:
    try:
        return change(value)
    except ValidationError as error:
        if error.field is None:
            raise ValidationError(error.code, error.detail, field=member) from None
        raise


def _joiner(member: str, *, packed: bool, answered: bool) -> Any:
    def join(raw: msgspec.Raw, data: bytes | None, encoding: str | None) -> Any:
        return payloads.join(member, raw, data, encoding, packed=packed, answered=answered)

    return join
