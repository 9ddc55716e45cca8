"""Durations as people write them, and as they are said back."""

from datetime import timedelta

import pytest

from flowfabric.cli.durations import duration, spoken
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases
from tests.cli.conftest import Inside, one_line


@all_cases(
    ("written", "meant"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1.5h", timedelta(minutes=90)),
        ("30", timedelta(seconds=30)),
        ("0", timedelta()),
        (" 5m ", timedelta(minutes=5)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(written: str, meant: timedelta) -> None:
    assert duration(written, field="--grace") == meant


@all_cases(
    "written", ["", "x", "h", "-1h", "1 h", "1y", "1H", "1h30m", "1e3", ".5h", "1.h", "٣h", "∞"]
)
def test_anything_else_is_refused_by_name(written: str) -> None:
    with pytest.raises(ValidationError) as refused:
        duration(written, field="--grace")

    assert refused.value.code == "invalid_input"
    assert refused.value.detail == f"--grace {written!r} must look like 90s, 15m, 12h or 7d"


def test_one_that_no_calendar_has_is_too_long() -> None:
    with pytest.raises(ValidationError, match=r"--grace '9{20}w' is longer than a century"):
        duration(f"{'9' * 20}w", field="--grace")


@all_cases(
    ("length", "said"),
    [
        (timedelta(days=7), "7d"),
        (timedelta(hours=24), "1d"),
        (timedelta(hours=36), "36h"),
        (timedelta(minutes=90), "90m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(milliseconds=100), "0.1s"),
        (timedelta(), "0s"),
    ],
)
def test_it_is_said_in_its_largest_whole_unit_and_can_be_read_back(
    length: timedelta, said: str
) -> None:
    assert spoken(length) == said
    assert duration(said, field="DURATION") == length


async def test_one_that_is_too_long_is_named_as_it_was_written(ff: Inside) -> None:
    for command in (
        ("lanes", "keep", "default", "99999w"),
        ("keys", "rotate", "--grace", "99999w"),
        ("retention", "trim", "--lane", "default", "--older-than", "99999w"),
    ):
        line = one_line(await ff(*command), 2)
        assert "'99999w'" in line
        assert "timedelta" not in line
