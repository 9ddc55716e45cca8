"""Instants: milliseconds in the database, aware datetimes in Python."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from flowfabric.instants import epoch_ms, instant

LAST_MS_OF_9999 = 253_402_300_799_999


@given(st.integers(0, LAST_MS_OF_9999))
def test_an_instant_reads_back_to_the_millisecond(ms: int) -> None:
    moment = instant(ms)

    assert epoch_ms(moment) == ms
    assert moment.tzinfo is UTC


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)), st.integers(-23, 23))
def test_the_zone_does_not_change_the_instant(naive: datetime, hours: int) -> None:
    moment = naive.replace(tzinfo=UTC)

    assert epoch_ms(moment.astimezone(timezone(timedelta(hours=hours)))) == epoch_ms(moment)


def test_no_instant_is_none_and_the_epoch_is_zero() -> None:
    assert instant(None) is None
    assert instant(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert epoch_ms(datetime(2023, 11, 14, 22, 13, 20, 999_000, tzinfo=UTC)) == 1_700_000_000_999
