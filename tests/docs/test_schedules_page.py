"""Every example of the guide on schedules runs and does what its page says."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime

import pytest

from flowfabric import Client
from flowfabric.app.schedule import ScheduleOptions
from flowfabric.states import ScheduleOutcome, ScheduleOverlap
from flowfabric.testing import Clock
from tests.docs.conftest import Reader
from tests.docs.pages import quoted, rows, sections
from tests.schedules.test_next_after import BERLIN, of_day

PAGE = "docs/guides/schedules.md"


async def test_the_examples_of_the_guide(
    reader: Reader, client: Client, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.opens(PAGE)
    nightly = importlib.import_module("nightly")
    await clock.set(datetime(2027, 1, 5, tzinfo=UTC))

    synced = await reader.shell("schedules-sync")
    await reader.python("schedules-client", client=client, report=nightly.report)
    await reader.python("schedules-backfill", client=client)
    previewed = await reader.shell("schedules-preview")
    looked = await reader.shell("schedules-look")

    assert "missing nightly" in synced
    assert "1 created, 0 changed" in synced
    assert capsys.readouterr().out == "every 0:15:00\ntriggered\n3 executions\n"
    assert previewed.count("02:30:00 CE") == 3
    assert "fires next at 2027-01-05 01:00:00 UTC" in looked
    assert looked.count("backfilled") == 3


async def test_the_test_of_the_guide_passes(reader: Reader, ff_dsn: str, clock: Clock) -> None:
    reader.opens(PAGE)
    nightly = importlib.import_module("nightly")
    nightly.built.clear()
    shown = importlib.import_module("test_nightly")

    await shown.test_a_report_is_built_every_night(ff_dsn, clock)


def test_the_tables_have_every_word() -> None:
    options = {word for first, _ in rows(sections(PAGE, 2)["Options"]) for word in quoted(first)}
    overlaps = {quoted(first)[0] for first, _ in rows(sections(PAGE, 2)["Overlap"])}
    outcomes = {w for first, _ in rows(sections(PAGE, 2)["Looking"]) for w in quoted(first)}

    assert options == set(ScheduleOptions.__annotations__)
    assert overlaps == {word.value for word in ScheduleOverlap}
    assert outcomes == {word.value for word in ScheduleOutcome}


def test_the_table_of_clock_changes_is_what_is_computed() -> None:
    table = {quoted(row[0])[0]: row[1:] for row in rows(sections(PAGE, 2)["Time zones"])}

    assert of_day("30 2 * * *", BERLIN, "2027-03-28") == ["01:00"]
    assert of_day("30 2 * * *", BERLIN, "2027-10-31") == ["00:30"]
    assert table["30 2 * * *"] == ["once, at 03:00", "once, at the first 02:30"]
    assert len(table) == 4
