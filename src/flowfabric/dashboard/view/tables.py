"""Rows as a file, for spreadsheets and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from datetime import datetime

import msgspec

from flowfabric.dashboard.view.durations import iso


async def csv_pieces(
    head: Sequence[str], pages: AsyncIterable[Iterable[Sequence[object]]]
) -> AsyncGenerator[bytes]:
    """The rows as CSV, a piece for each page."""
    yield _lines([head])
    async for page in pages:
        yield _lines([cell(each) for each in row] for row in page)


async def json_pieces(pages: AsyncIterable[Iterable[object]]) -> AsyncGenerator[bytes]:
    """The values as one JSON array, a piece for each page."""
    before = b"["
    async for page in pages:
        if encoded := b",".join(map(msgspec.json.encode, page)):
            yield before + encoded
            before = b","
    yield b"[]" if before == b"[" else b"]"


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def cell(value: object) -> str:
    """The value as text; what a spreadsheet would compute begins with an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, dict):
        text = msgspec.json.encode(value).decode()
    else:
        text = iso(value) if isinstance(value, datetime) else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
