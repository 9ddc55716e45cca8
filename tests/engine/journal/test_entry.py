"""An entry that cannot be stored is refused when it is made."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from flowfabric.engine.journal.entry import MAX_VALUE, entry_key
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from tests.all_cases import all_cases
from tests.engine.journal.journals import BEGAN, entry

LEASE = Lease(ExecutionId(3, UUID(int=1)), 0, 1, UUID(int=2))


@pytest.mark.parametrize("name", ["a", "x" * 128, "Straße 7", "é" * 64])
def test_a_name_has_up_to_128_printable_bytes(name: str) -> None:
    assert entry(LEASE, 1, name).name == name


@all_cases(
    "name", ["", "x" * 129, "é" * 65, "a\nb", "a\x00b", "\ud800", "a\u200bb", 7, None, ["a"]]
)
def test_another_name_is_refused(name: Any) -> None:
    with pytest.raises(ValidationError, match="name") as refused:
        entry(LEASE, 1, name)

    assert (refused.value.code, refused.value.field) == ("invalid_input", "name")


@pytest.mark.parametrize("item", ["", "x" * 256, "line\nbreak", "é" * 128])
def test_an_item_has_up_to_256_bytes(item: str) -> None:
    assert entry(LEASE, 1, item=item).item == item


@all_cases("item", ["x" * 257, "é" * 129, "a\x00b", "\ud800", None, 7, 0, b""])
def test_another_item_is_refused(item: Any) -> None:
    with pytest.raises(ValidationError, match="item"):
        entry(LEASE, 1, item=item)


@all_cases(
    ("field", "value"),
    [
        ("seq", 0),
        ("seq", -1),
        ("seq", 2**31),
        ("seq", 1.5),
        ("seq", True),
        ("occurrence", -1),
        ("occurrence", 2**31),
        ("tries", 0),
        ("tries", 2**15),
        ("fingerprint", -1),
        ("fingerprint", 2**32),
        ("signal_seq", 0),
        ("kind", "step"),
        ("kind", "nap"),
        ("state", "done"),
        ("started_at", BEGAN.replace(tzinfo=None)),
        ("started_at", 3.0),
        ("due_at", BEGAN.replace(tzinfo=None)),
        ("encoding", ""),
        ("value", "text"),
        ("value", bytearray(b"x")),
    ],
)
def test_what_a_column_cannot_hold_is_refused_by_its_name(field: str, value: Any) -> None:
    fields = {"seq": 1, field: value}
    with pytest.raises(ValidationError, match=field):
        entry(LEASE, fields.pop("seq"), **fields)


def test_a_value_of_more_than_a_mebibyte_is_refused() -> None:
    assert entry(LEASE, 1, value=b"x" * MAX_VALUE).value
    with pytest.raises(ValidationError, match=f"value {MAX_VALUE + 1} bytes") as refused:
        entry(LEASE, 1, value=b"x" * (MAX_VALUE + 1))

    assert refused.value.code == "payload_too_large"


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="tries"):
        msgspec.structs.replace(entry(LEASE, 1), tries=0)


def test_a_key_is_read_as_name_item_and_number() -> None:
    assert entry_key("fetch", "", 2) == "fetch#2"
    assert entry_key("fetch", "page-1", 0) == "fetch:page-1#0"
