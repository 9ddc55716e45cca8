"""The instants of schedules: clock changes, leap days, month ends, and a strict order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.instants import epoch_ms, instant
from flowfabric.schedules.cron import is_fixed_time, next_wall
from flowfabric.schedules.next_after import jitter_of, next_after, next_instants
from flowfabric.schedules.spec import ScheduleSpec, spec_of
from flowfabric.schedules.zones import wall_of
from tests.all_cases import all_cases

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def ms(text: str) -> int:
    return epoch_ms(datetime.fromisoformat(text))


def of_day(cron: str, tz: str, day: str, hours: int = 25) -> list[str]:
    """The instants of a local day, as hours and minutes of UTC."""
    begin = epoch_ms(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz))) - 1
    found = next_instants(spec_of(cron=cron, tz=tz), begin, 200, until_ms=begin + hours * 3600_000)
    end = datetime.fromisoformat(day).date()
    walls = ((instant(each), wall_of(ZoneInfo(tz), instant(each))) for each in found)
    return [f"{at:%H:%M}" for at, wall in walls if wall.date() == end]


def half_hours(first: int, last: int) -> list[str]:
    return [f"{n // 2 % 24:02}:{n % 2 * 30:02}" for n in range(first * 2, last * 2)]


@all_cases(
    ("cron", "tz", "day", "expected"),
    [
        # Europe/Berlin, 02:00 becomes 03:00 at 01:00Z.
        ("30 2 * * *", BERLIN, "2027-03-28", ["01:00"]),
        ("0 30 2 * * *", BERLIN, "2027-03-28", ["01:00"]),
        ("0,30 2,3 * * *", BERLIN, "2027-03-28", ["01:00", "01:30"]),
        ("*/30 * * * *", BERLIN, "2027-03-28", half_hours(23, 46)),
        ("0 * * * *", BERLIN, "2027-03-28", half_hours(23, 46)[::2]),
        (
            "0 */2 * * *",
            BERLIN,
            "2027-03-28",
            ["23:00", *(f"{hour:02}:00" for hour in range(2, 22, 2))],
        ),
        # Europe/Berlin, 03:00 becomes 02:00 at 01:00Z.
        *(
            case
            for day in ("2026-10-25", "2027-10-31")
            for case in (
                ("30 2 * * *", BERLIN, day, ["00:30"]),
                ("0 30 2 * * *", BERLIN, day, ["00:30"]),
                ("0,30 2,3 * * *", BERLIN, day, ["00:00", "00:30", "02:00", "02:30"]),
                ("*/30 * * * *", BERLIN, day, half_hours(22, 47)),
                ("0 * * * *", BERLIN, day, half_hours(22, 47)[::2]),
                (
                    "0 */2 * * *",
                    BERLIN,
                    day,
                    ["22:00", "00:00", "01:00", *(f"{hour:02}:00" for hour in range(3, 23, 2))],
                ),
            )
        ),
        # America/New_York, 02:00 becomes 03:00 at 07:00Z.
        ("30 2 * * *", NEW_YORK, "2027-03-14", ["07:00"]),
        ("0 30 2 * * *", NEW_YORK, "2027-03-14", ["07:00"]),
        ("0,30 2,3 * * *", NEW_YORK, "2027-03-14", ["07:00", "07:30"]),
        ("*/30 * * * *", NEW_YORK, "2027-03-14", half_hours(5, 28)),
        ("0 * * * *", NEW_YORK, "2027-03-14", half_hours(5, 28)[::2]),
        (
            "0 */2 * * *",
            NEW_YORK,
            "2027-03-14",
            ["05:00", *(f"{hour % 24:02}:00" for hour in range(8, 27, 2))],
        ),
        # America/New_York, 02:00 becomes 01:00 at 06:00Z.
        ("30 1 * * *", NEW_YORK, "2027-11-07", ["05:30"]),
        ("0 30 1 * * *", NEW_YORK, "2027-11-07", ["05:30"]),
        ("0,30 1,2 * * *", NEW_YORK, "2027-11-07", ["05:00", "05:30", "07:00", "07:30"]),
        ("*/30 * * * *", NEW_YORK, "2027-11-07", half_hours(4, 29)),
        ("0 * * * *", NEW_YORK, "2027-11-07", half_hours(4, 29)[::2]),
        (
            "0 */2 * * *",
            NEW_YORK,
            "2027-11-07",
            ["04:00", *(f"{hour % 24:02}:00" for hour in range(7, 28, 2))],
        ),
        ("0 1-23/2 * * *", NEW_YORK, "2027-11-07", ["05:00", *half_hours(8, 29)[::4]]),
    ],
)
def test_when_the_clock_changes(cron: str, tz: str, day: str, expected: list[str]) -> None:
    assert of_day(cron, tz, day) == expected


def test_in_the_repeated_hour_the_next_instant_is_never_in_the_past() -> None:
    second_ten_past_two = ms("2026-10-25T01:10:00Z")

    assert next_after(spec_of(cron="30 2 * * *", tz=BERLIN), second_ten_past_two) == ms(
        "2026-10-26T01:30:00Z"
    )
    assert next_after(spec_of(cron="30 * * * *", tz=BERLIN), second_ten_past_two) == ms(
        "2026-10-25T01:30:00Z"
    )


@all_cases(
    ("cron", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("0 0 29 2 *", "2096-03-01T00:00Z", ["2104-02-29T00:00Z"]),
        ("0 0 L * *", "2027-01-31T00:00Z", ["2027-02-28T00:00Z", "2027-03-31T00:00Z"]),
        ("0 0 L 2 *", "2028-01-01T00:00Z", ["2028-02-29T00:00Z"]),
        ("0 0 31 * *", "2027-01-31T00:00Z", ["2027-03-31T00:00Z", "2027-05-31T00:00Z"]),
        ("0 9 LW * *", "2027-01-01T00:00Z", ["2027-01-29T09:00Z", "2027-02-26T09:00Z"]),
        ("0 9 * * MON#2", "2027-01-01T00:00Z", ["2027-01-11T09:00Z", "2027-02-08T09:00Z"]),
        ("0 9 * jan mon-fri", "2026-12-31T00:00Z", ["2027-01-01T09:00Z", "2027-01-04T09:00Z"]),
        ("15 0 0 1 1 *", "2026-12-31T00:00Z", ["2027-01-01T00:00:15Z"]),
        ("*/20 * * * * *", "2027-01-01T00:00:20Z", ["2027-01-01T00:00:40Z", "2027-01-01T00:01Z"]),
        ("@hourly", "2027-01-01T00:30Z", ["2027-01-01T01:00Z"]),
        ("@daily", "2027-01-01T00:00Z", ["2027-01-02T00:00Z"]),
        ("@weekly", "2027-01-01T00:00Z", ["2027-01-03T00:00Z"]),
        ("@monthly", "2027-01-01T00:00Z", ["2027-02-01T00:00Z"]),
        ("@YEARLY", "2027-01-01T00:00Z", ["2028-01-01T00:00Z"]),
    ],
)
def test_leap_days_month_ends_and_names(cron: str, after: str, expected: list[str]) -> None:
    found = next_instants(spec_of(cron=cron), ms(after), len(expected))

    assert [instant(each) for each in found] == [datetime.fromisoformat(at) for at in expected]


def test_an_interval_counts_from_its_anchor_without_drift() -> None:
    spec = spec_of(every=timedelta(minutes=15), starts=datetime(2027, 1, 1, 0, 7, tzinfo=UTC))

    assert next_after(spec, ms("2026-01-01T00:00Z")) == ms("2027-01-01T00:07Z")
    assert next_after(spec, ms("2027-01-01T00:07Z")) == ms("2027-01-01T00:22Z")
    assert next_after(spec, ms("2027-06-01T11:59:59Z")) == ms("2027-06-01T12:07Z")


@pytest.mark.parametrize("change", ["2027-03-28T01:00Z", "2027-10-31T01:00Z", "2027-11-07T06:00Z"])
def test_an_interval_does_not_depend_on_zones(change: str) -> None:
    starts = instant(ms(change) - 90 * 60_000)
    spec = spec_of(every=timedelta(hours=1), starts=starts)

    found = next_instants(spec, epoch_ms(starts), 4)

    assert [each - ms(change) for each in found] == [
        minutes * 60_000 for minutes in (-30, 30, 90, 150)
    ]


def test_one_instant_comes_once() -> None:
    spec = spec_of(at=datetime(2027, 1, 1, tzinfo=UTC))

    assert next_instants(spec, 0, 5) == [ms("2027-01-01T00:00Z")]
    assert next_after(spec, ms("2027-01-01T00:00Z")) is None


def test_the_last_instant_is_before_the_year_10000() -> None:
    assert next_after(spec_of(cron="0 0 1 1 *"), ms("9999-06-01T00:00Z")) is None
    assert next_after(spec_of(every=3600), ms("9999-12-31T23:30Z")) is None


CRONS = st.sampled_from(
    ["30 2 * * *", "0 */2 * * *", "*/7 * * * *", "0 0 3 L * *", "5 1,2,3 * * SUN", "1 0 1 * *"]
)
ZONES = st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe", "Pacific/Apia", "UTC"])


@given(CRONS, ZONES, st.integers(ms("2011-12-01T00:00Z"), ms("2028-12-31T00:00Z")))
def test_instants_ascend_and_match_the_clock_of_the_zone(cron: str, tz: str, after: int) -> None:
    spec, zone = spec_of(cron=cron, tz=tz), ZoneInfo(tz)

    first, second = next_instants(spec, after, 2)

    assert after < first < second
    for each in (first, second):
        wall = wall_of(zone, instant(each))
        at_the_second = next_wall(cron, wall - timedelta(seconds=1)) == wall
        assert at_the_second or (is_fixed_time(cron) and wall.second == 0), "or after a gap"


@given(st.sampled_from(["*/20 * * * *", "10 * * * *", "*/30 */3 * * *"]), ZONES, st.data())
def test_a_rhythm_has_every_second_that_matches(cron: str, tz: str, data: st.DataObject) -> None:
    change = data.draw(
        st.sampled_from(["2027-03-28T01:00Z", "2027-10-31T01:00Z", "2027-11-07T06:00Z"])
    )
    begin = ms(change) - data.draw(st.integers(0, 180)) * 60_000
    zone, end = ZoneInfo(tz), begin + 5 * 3600_000

    def shows_a_match(at: int) -> bool:
        wall = wall_of(zone, instant(at))
        return next_wall(cron, wall - timedelta(seconds=1)) == wall

    by_hand = [at for at in range(begin + 60_000, end + 1, 60_000) if shows_a_match(at)]

    assert next_instants(spec_of(cron=cron, tz=tz), begin, 99, until_ms=end) == by_hand


def test_jitter_is_below_its_bound_and_the_same_for_everybody() -> None:
    delays = [jitter_of("nightly", at, 60_000) for at in range(1000)]

    assert all(0 <= delay < 60_000 for delay in delays)
    assert len(set(delays)) > 900
    assert jitter_of("nightly", 7, 60_000) == delays[7] != jitter_of("hourly", 7, 60_000)
    assert jitter_of("nightly", 7, 0) == 0


def test_an_instant_is_computed_from_the_fields_that_are_stored() -> None:
    stored = ScheduleSpec(
        **{f: getattr(spec_of(every=60), f) for f in ScheduleSpec.__struct_fields__}
    )

    assert next_after(stored, 59_999) == 60_000
