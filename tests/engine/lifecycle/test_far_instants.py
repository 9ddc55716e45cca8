"""Instants that no datetime can show are refused at every entry, and clamped when they are read."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import describe_execution
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.read_execution_info import read_execution_info
from flowfabric.engine.executions.search_executions import Search, search_executions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.errors import ValidationError
from flowfabric.instants import LAST_MS, instant
from flowfabric.policy import ExecutionPolicy
from tests import given
from tests.all_cases import all_cases

WEST = timezone(timedelta(hours=-12))
YEAR_10000 = datetime(9999, 12, 31, 23, tzinfo=WEST)
YEAR_1969 = datetime(1969, 12, 31, tzinfo=UTC)
NAIVE = datetime(2030, 1, 1)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
FAR_MS = 253_402_300_800_000


@all_cases("moment", [YEAR_10000, YEAR_1969, NAIVE, "2030-01-01", 5])
@all_cases("field", ["delay_until", "execution_deadline_at"])
def test_an_execution_is_not_delayed_or_due_outside_of_the_calendar(
    field: str, moment: Any
) -> None:
    with pytest.raises(ValidationError, match=field):
        given.new(**{field: moment})


@all_cases("moment", [YEAR_10000, YEAR_1969, NAIVE, "2030-01-01", 5])
def test_no_policy_and_no_worker_delays_outside_of_the_calendar(moment: Any) -> None:
    with pytest.raises(ValidationError, match="delay_until"):
        ExecutionPolicy(delay_until=moment)


@pytest.mark.parametrize("ms", [FAR_MS, 2**62, -1])
def test_a_policy_given_as_json_is_held_to_the_same_calendar(ms: int) -> None:
    with pytest.raises(ValidationError, match="delay_until"):
        ExecutionPolicy.parse({"delay_until": ms})


@pytest.mark.parametrize("moment", [YEAR_10000, YEAR_1969, NAIVE])
async def test_a_worker_cannot_delay_outside_of_the_calendar(
    db: Connection, moment: datetime
) -> None:
    lease = await given.claimed(db)

    with pytest.raises(ValidationError, match="delay_until"):
        DelayRequest(lease=lease, delay_until=moment)
    with pytest.raises(ValidationError, match="delay"):
        DelayRequest(lease=lease, delay=timedelta.max)
    with pytest.raises(ValidationError, match="retry_after"):
        Failure(lease=lease, reason="no", retry_after=1e300)


@pytest.mark.parametrize("moment", [YEAR_10000, YEAR_1969, NAIVE])
async def test_now_is_held_to_the_calendar(db: Connection, moment: datetime) -> None:
    with pytest.raises(ValidationError, match="now"):
        await create_execution(db, [given.new()], now=moment)

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


@pytest.mark.parametrize("field", ["delay", "deadline"])
async def test_a_duration_that_leads_out_of_the_calendar_is_refused(
    db: Connection, field: str
) -> None:
    with pytest.raises(ValidationError, match=field):
        await create_execution(db, [given.new(**{field: 3600})], now=LAST)

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


@pytest.mark.parametrize(
    ("argument", "naming"),
    [
        ("delay => '9000 years'", "delay"),
        ("delay => '100000000 years'", "delay"),
        ("deadline => '9000 years'", "deadline"),
        ("deadline => '-9000 years'", "deadline"),
        ("policy => '{\"delay_until\": 253402300800000}'", "delay_until"),
        (
            'policy => \'{"timeout_policy": {"execution_deadline_ms": 253402300800000}}\'',
            "execution_deadline_ms",
        ),
    ],
)
async def test_sql_is_held_to_the_same_calendar(db: Connection, argument: str, naming: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match=naming) as raised:
        await db.execute(f"SELECT ff.submit('job', {argument})")

    assert raised.value.sqlstate == "22023"


@pytest.mark.parametrize("stored_ms", [FAR_MS, 2**62])
async def test_an_instant_that_was_stored_anyway_is_read_as_the_last_one(
    db: Connection, stored_ms: int
) -> None:
    execution_id = await given.created(db, delay=60, deadline=60)
    await db.execute("UPDATE ff.exec_core SET delay_until_ms = $1, deadline_at_ms = $1", stored_ms)

    described = await describe_execution(db, execution_id)

    assert described is not None
    assert (described.delay_until, described.deadline_at) == (instant(LAST_MS),) * 2
    assert await explain_execution(db, execution_id) is not None
    assert await read_execution_info(db, execution_id) is not None
    assert len((await search_executions(db, Search())).executions) == 1


async def test_a_deadline_that_was_stored_anyway_does_not_stop_a_claim(db: Connection) -> None:
    await given.created(db)
    await db.execute("UPDATE ff.exec_core SET deadline_at_ms = $1", 2**62)

    [claimed] = await claim(db, given.WORKER, ttl=30)

    assert claimed.deadline is not None
    assert claimed.deadline > 0


@pytest.mark.parametrize("field", ["created_since", "created_before"])
async def test_a_search_by_an_instant_without_a_zone_is_refused(db: Connection, field: str) -> None:
    asked: dict[str, Any] = {field: NAIVE}
    with pytest.raises(ValidationError, match=field):
        await search_executions(db, Search(**asked))
