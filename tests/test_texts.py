"""Names and texts: which are refused before SQL sees them, and which are cleaned."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowfabric.db.rows import Connection
from flowfabric.errors import ValidationError
from flowfabric.ids import (
    check_lane,
    check_tag_key,
    check_text,
    check_worker_name,
    clean_text,
    parse_uuid,
    storable_text,
)
from tests.all_cases import all_cases

LONE = "\ud800"
anything = st.text(st.characters(exclude_categories=()), max_size=400)


def name_of(value: str) -> str:
    return check_text(value, field="namespace")


def worker_of(value: str) -> str:
    return check_worker_name(value, field="worker_id")


@all_cases(
    ("check", "field", "value", "why"),
    [
        (check_lane, "lane_id", "", "must not be empty"),
        (check_lane, "lane_id", "a" * 65, "at most 64 bytes"),
        (check_lane, "lane_id", "tab\t", "printable ASCII"),
        (check_lane, "lane_id", "nul\x00", "printable ASCII"),
        (check_lane, "lane_id", "del\x7f", "printable ASCII"),
        (check_lane, "lane_id", "naïve", "printable ASCII"),
        (check_tag_key, "tag key", "", "area.name"),
        (check_tag_key, "tag key", "nodot", "area.name"),
        (check_tag_key, "tag key", "Upper.case", "area.name"),
        (check_tag_key, "tag key", "area.Case", "area.name"),
        (check_tag_key, "tag key", "1area.name", "area.name"),
        (check_tag_key, "tag key", "_area.name", "area.name"),
        (check_tag_key, "tag key", ".name", "area.name"),
        (check_tag_key, "tag key", "a.", "area.name"),
        (check_tag_key, "tag key", "a..b", "area.name"),
        (check_tag_key, "tag key", "a b.c", "area.name"),
        (check_tag_key, "tag key", "a-b.c", "area.name"),
        (check_tag_key, "tag key", "a'.c", "area.name"),
        (check_tag_key, "tag key", "a.b\n", "area.name"),
        (check_tag_key, "tag key", "a." + "b" * 255, "area.name"),
        (name_of, "namespace", "", "must not be empty"),
        (name_of, "namespace", "nul\x00", "NUL"),
        (name_of, "namespace", f"lone{LONE}", "lone surrogate"),
        (name_of, "namespace", "a" * 257, "at most 256 bytes"),
        (name_of, "namespace", "é" * 129, "at most 256 bytes"),
        (worker_of, "worker_id", "", "must not be empty"),
        (worker_of, "worker_id", "a b", "white space"),
        (worker_of, "worker_id", "a\N{NO-BREAK SPACE}b", "white space"),
        (worker_of, "worker_id", "a\nb", "white space"),
        (worker_of, "worker_id", "a\x1bb", "control"),
        (worker_of, "worker_id", "a\x85b", "control"),
        (worker_of, "worker_id", "a" * 257, "at most 256 bytes"),
    ],
    ids=lambda value: value.__name__ if callable(value) else ascii(value)[:24],
)
def test_a_name_that_cannot_be_is_refused_by_field_and_value(
    check: Callable[[str], str], field: str, value: str, why: str
) -> None:
    with pytest.raises(ValidationError) as error:
        check(value)

    assert error.value.code == "invalid_input"
    assert error.value.detail.startswith(field)
    assert repr(value[:40])[1:-1] in error.value.detail.replace("\\\\", "\\")
    assert why in error.value.detail


@all_cases(
    ("check", "value"),
    [
        (check_lane, "a"),
        (check_lane, " ~"),
        (check_lane, "a" * 64),
        (check_tag_key, "a.b"),
        (check_tag_key, "shop.tenant_1"),
        (check_tag_key, "cairn.instance_id"),
        (check_tag_key, "a_1.2.c_"),
        (check_tag_key, "a." + "b" * 254),
        (name_of, "a" * 256),
        (name_of, "é" * 128),
        (name_of, "any thing, \N{GRINNING FACE}"),
        (worker_of, "worker-1.host/é"),
        (worker_of, "a" * 256),
    ],
)
def test_a_name_at_the_limit_is_accepted_as_it_is(check: Callable[[str], str], value: str) -> None:
    assert check(value) == value


@given(anything)
@example("\x00")
@example(LONE)
def test_storable_text_is_exactly_what_postgres_can_store(value: str) -> None:
    storable = "\x00" not in value and not any("\ud800" <= each <= "\udfff" for each in value)
    try:
        told = storable_text(value, field="tag")
    except ValidationError as error:
        told = error.detail.encode().decode()[:4]

    assert told == (value if storable else "tag ")


@given(anything, st.sampled_from([256, 1024, 16 * 1024]))
@example("a" * 256, 256)
@example("é" * 128, 256)
@example("\N{GRINNING FACE}" * 64 + "a", 256)
def test_cleaned_text_can_be_stored_and_fits(value: str, at_most: int) -> None:
    cleaned = clean_text(value, at_most=at_most)

    assert storable_text(cleaned, field="reason") == cleaned
    assert len(cleaned.encode()) <= at_most
    try:
        fits = "\x00" not in value and len(value.encode()) <= at_most
    except UnicodeEncodeError:
        fits = False
    assert (cleaned == value) is fits


def test_cleaning_replaces_what_is_bad_and_marks_what_is_cut() -> None:
    assert clean_text("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    assert set(clean_text(f"a{LONE}b")[1:-1]) == {"\N{REPLACEMENT CHARACTER}"}
    assert clean_text("x" * 300, at_most=256) == "x" * 253 + "…"
    assert clean_text("é" * 300, at_most=256) == "é" * 126 + "…"
    assert len(clean_text("x" * 20_000).encode()) == 16 * 1024


@pytest.mark.parametrize("text", ["", "x", "5_0e8400-e29b-41d4-a716-446655440000", "0" * 32])
def test_a_malformed_uuid_is_refused_by_field(text: str) -> None:
    with pytest.raises(ValidationError) as error:
        parse_uuid(text, field="flow_id")

    assert error.value.detail.startswith(f"flow_id {text!r}")


KEYS = ["a.b", "a.b.c", "a.b_", "a.1", "a_1.b", "a." + "b" * 254, "a." + "b" * 255]
KEYS += ["a", "a.", "a..b", "a.b.", "a.b..c", ".b", "A.b", "1.b", "a-b.c", "a b.c", "a.b\n", "a.é"]


def accepts(key: str) -> bool:
    try:
        return check_tag_key(key) == key
    except ValidationError:
        return False


async def stores(db: Connection, key: str) -> bool:
    try:
        await db.execute(
            "INSERT INTO ff.exec_tag VALUES (0, gen_random_uuid(), $1, 'value', 0)", key
        )
    except asyncpg.CheckViolationError:
        return False
    return True


async def test_the_database_accepts_the_same_tag_keys(db: Connection) -> None:
    stored = {key for key in KEYS if await stores(db, key)}

    assert {key for key in KEYS if accepts(key)} == stored
