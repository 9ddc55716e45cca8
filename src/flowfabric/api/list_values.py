"""Lists of values between their type and MessagePack: changed column by column.

A batch has values by the hundred. To change a column calls no function of ours for each value but
the change itself; value by value the rest costs more than the changes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from flowfabric.api.leaves import Convert
from flowfabric.api.wire_members import (
    WireMember,
    answer_shape,
    by_position,
    dumps_of,
    reader_of,
    sources_of,
)
from flowfabric.errors import ValidationError


def list_dumper(fields: Sequence[WireMember], tag: Mapping[str, str], *, answers: bool) -> Convert:
    """From values to what each is written as: a struct for an answer, else a dict."""
    sources, changes = sources_of(fields), dumps_of(fields)
    read = reader_of(list(sources.values()))
    shape = functools.cache(lambda: answer_shape(fields, sources, tag)) if answers else None
    members = [*sources, *tag]

    def dump_all(values: Sequence[Any]) -> list[Any]:
        columns: list[Any] = [*zip(*map(read, values), strict=True)]
        for place, change, optional in changes if columns else ():
            columns[place] = _changed(change, columns[place], optional=optional)
        if shape is not None:
            return list(map(shape(), *columns)) if columns else [shape()() for _ in values]
        columns += [[each] * len(values) for each in tag.values()]
        return [dict(zip(members, row, strict=True)) for row in zip(*columns, strict=True)]

    return dump_all


def _changed(change: Convert, column: Sequence[Any], *, optional: bool) -> list[Any]:
    if optional and None in column:
        return [None if each is None else change(each) for each in column]
    return list(map(change, column))


def list_loader(
    kind: type[msgspec.Struct], fields: Sequence[WireMember], load: Convert, *, only_bytes: bool
) -> Convert | None:
    """From members to values, as `load` of each; None for a type that is not made by position.

    A list that has what the columns cannot tell is loaded one by one: payloads that are given as
    they are, and a value that is refused, whose error names its member.
    """
    known = by_position(kind, fields, only_bytes=only_bytes)
    if known is None:
        return None
    read, changes, defaults = known.read, known.changes, known.defaults
    count, make, has_raws = known.count, known.make, bool(known.raws)

    def load_all(given: Sequence[Any]) -> list[Any]:
        if not given:
            return []
        columns: list[Any] = [*zip(*map(read, given), strict=True)]
        if has_raws and any(each.count(UNSET) < len(given) for each in columns[count:]):
            return [load(each) for each in given]
        try:
            for place, _, change in changes:
                columns[place] = _loaded(change, columns[place])
            for place, default in defaults:
                columns[place] = _with_default(columns[place], default)
            return list(map(make, *columns[:count]))
        except ValidationError:
            return [load(each) for each in given]

    return load_all


def _loaded(change: Convert, column: Sequence[Any]) -> list[Any]:
    if None in column or UNSET in column:
        return [each if each is None or each is UNSET else change(each) for each in column]
    return list(map(change, column))


def _with_default(column: Sequence[Any], default: Any) -> Sequence[Any]:
    if None in column or UNSET in column:
        return [default if each is None or each is UNSET else each for each in column]
    return column
