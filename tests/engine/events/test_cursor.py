"""Cursors: opaque to clients that keep them, exact when they are read back."""

import pytest

from flowfabric.engine.events.cursor import (
    FROM_NOW,
    cursor_from_hex,
    cursor_to_hex,
    decode_cursor,
    encode_cursor,
)
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases


def test_a_cursor_is_a_two_and_the_event_id_in_eight_bytes() -> None:
    assert encode_cursor(0x0102030405060708) == b"\x02\x01\x02\x03\x04\x05\x06\x07\x08"


@all_cases("event_id", [0, 1, 255, 256, 2**32, 2**63 - 1])
def test_a_cursor_reads_back_as_the_event_it_was_made_of(event_id: int) -> None:
    cursor = encode_cursor(event_id)

    assert decode_cursor(cursor) == event_id
    assert cursor_from_hex(cursor_to_hex(cursor)) == cursor


def test_the_empty_cursor_is_from_now_on() -> None:
    assert decode_cursor(FROM_NOW) is None
    assert cursor_to_hex(FROM_NOW) == ""
    assert cursor_from_hex("") == FROM_NOW


BAD = [
    b"\x00",
    b"\x02",
    b"\x01" + bytes(8),
    b"\x02" + bytes(7),
    b"\x02" + bytes(9),
    bytes(9),
    b"\x02\x80" + bytes(7),
    b"\x02" + b"\xff" * 8,
]


@all_cases("cursor", BAD, ids=bytes.hex)
def test_other_bytes_are_refused_by_name(cursor: bytes) -> None:
    with pytest.raises(ValidationError, match=f"^invalid_cursor: cursor '{cursor.hex()}'"):
        decode_cursor(cursor)
    with pytest.raises(ValidationError, match=f"^invalid_cursor: cursor '{cursor.hex()}'"):
        cursor_from_hex(cursor.hex())


@all_cases("text", ["0", "xy", "02 0000000000000001", "0x02", "٠٢", "latest"])
def test_text_that_is_not_hexadecimal_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValidationError, match=r"^invalid_cursor: cursor"):
        cursor_from_hex(text)
