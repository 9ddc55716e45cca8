"""How much of a budget was used over time: noted by a sweep, kept for 30 days."""

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine import Engine
from flowfabric.engine.budgets.compact_budget_usage import compact_budget_usage
from flowfabric.engine.budgets.sample_budget_usage import LATE_MS, sample_budget_usage
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests.explained import Explained

HOUR = timedelta(hours=1)
MANY_BUDGETS = """
WITH made AS (
    INSERT INTO ff.budget_policy (partition_key, budget_id, scope_type, scope_id, enforcement_mode,
                                  policy_json, created_at_ms, updated_at_ms)
    SELECT ff.budget_partition(id), id, 'x', '', 'strict',
           '{"hard_limits": {}, "soft_limits": {}}', ff.now_ms(), ff.now_ms()
      FROM (SELECT gen_random_uuid() FROM generate_series(1, 1000)) AS new (id)
 RETURNING partition_key, budget_id
)
INSERT INTO ff.budget_usage (partition_key, budget_id, dimensions_key, current_value, updated_at_ms)
SELECT partition_key, budget_id, 'tokens', 7, ff.now_ms() FROM made
"""


async def used(engine: Engine, amount: int) -> None:
    await engine.report_usage_admin("b", ["tokens"], [amount])


async def levels(
    engine: Engine, window: timedelta = timedelta(minutes=10), steps: int = 60
) -> list[int | None]:
    found = await engine.read_budget_history("b", window=window, steps=steps)
    assert len(found.begins_at) == len(found.used["tokens"])
    return found.used["tokens"]


@pytest.fixture
async def budget(engine: Engine, clock: Clock) -> Engine:
    """A budget without usage, at the beginning of an hour."""
    now = await clock.now_ms()
    await clock.advance((3_600_000 - now % 3_600_000) / 1000)
    await engine.create_budget("b", dimensions=["tokens"], hard_limits=[900], soft_limits=[0])
    return engine


async def test_a_minute_without_a_report_has_what_was_used_before(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    await used(budget, 10)
    assert await sample_budget_usage(db, 100) == 1
    await clock.advance(3 * 60)
    assert await sample_budget_usage(db, 100) == 0, "nothing has changed"
    await used(budget, 5)
    assert await sample_budget_usage(db, 100) == 1
    await clock.advance(2 * 60)
    await used(budget, 1)

    assert await levels(budget) == [None] * 4 + [10, 10, 10, 15, 15, 16]


async def test_a_reset_shows_as_a_fall_after_the_highest_usage(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    await used(budget, 800)
    await sample_budget_usage(db, 100)
    await clock.advance(30)
    await budget.reset_budget("b")
    await sample_budget_usage(db, 100)
    await clock.advance(60)
    await used(budget, 7)

    assert (await levels(budget))[-2:] == [800, 7]


async def test_what_was_used_before_the_window_is_its_first_figure(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    await used(budget, 3)
    await sample_budget_usage(db, 100)
    await clock.advance(2 * HOUR)

    assert await levels(budget, timedelta(minutes=3)) == [3, 3, 3]


async def test_minutes_become_hours_after_a_day_and_are_deleted_after_thirty(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    for _ in range(4):
        await used(budget, 100)
        await sample_budget_usage(db, 100)
        await clock.advance(20 * 60)
    assert await compact_budget_usage(db, 100) == 0, "a day has not passed"
    await clock.advance(25 * HOUR)

    for _ in range(2):  # an hour in two batches
        assert await compact_budget_usage(db, 2) == 2
    assert await compact_budget_usage(db, 2) == 0

    rows = await db.fetch("SELECT used, peak FROM ff.budget_usage_history ORDER BY begins_at_ms")
    assert [tuple(row) for row in rows] == [(300, 300), (400, 400)]
    assert (await levels(budget, 30 * HOUR))[-28:-24] == [None, 300, 400, 400]
    await clock.advance(30 * 24 * HOUR)
    assert await compact_budget_usage(db, 100) == 2


async def test_usage_that_stays_the_same_is_known_also_after_thirty_days(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    for _ in range(2):
        await used(budget, 100)
        await sample_budget_usage(db, 100)
        await clock.advance(HOUR)
    await clock.advance(31 * 24 * HOUR)

    assert [await compact_budget_usage(db, 100) for _ in range(3)] == [2, 2, 0]

    assert await sample_budget_usage(db, 100) == 0
    await clock.advance(HOUR)
    assert await levels(budget, timedelta(minutes=3)) == [200, 200, 200]


async def test_what_has_not_changed_for_long_is_not_compared_again(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    """A note reads the pages of usage, and looks no further at what is older than the last one."""
    await db.execute(MANY_BUDGETS)
    for wait in (0, LATE_MS / 1000 + 60):
        await clock.advance(wait)
        while await sample_budget_usage(db, 500):
            pass
    await used(budget, 10)
    assert await sample_budget_usage(db, 500) == 1, "only what was reported since"
    pages = await db.fetchval("SELECT pg_relation_size('ff.budget_usage') / 8192")

    for generic in (False, True):
        await clock.advance(60)
        await used(budget, 10)
        explained = Explained(db, generic=generic)
        assert await sample_budget_usage(explained, 500) == 1  # type: ignore[arg-type]
        assert explained.costs[0].buffers <= pages + 60


async def test_usage_that_was_reported_for_another_instant_is_noted(
    budget: Engine, db: Connection, clock: Clock
) -> None:
    await used(budget, 1)
    assert await sample_budget_usage(db, 100) == 1
    now = await clock.now()

    await budget.report_usage_admin("b", ["tokens"], [5], now=now - timedelta(days=3))

    assert await sample_budget_usage(db, 100) == 1


async def test_usage_of_a_budget_that_nobody_created_is_not_noted(
    engine: Engine, db: Connection
) -> None:
    await used(engine, 10)

    assert await sample_budget_usage(db, 100) == 0
    assert (await levels(engine))[-1] == 10


async def test_with_activity_off_nothing_is_noted(
    budget: Engine, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await used(budget, 10)
    monkeypatch.setenv("FF_ACTIVITY", "0")

    assert await sample_budget_usage(db, 100) == 0


async def test_a_budget_without_usage_has_no_history(budget: Engine) -> None:
    assert (await budget.read_budget_history("b", window=HOUR)).used == {}
    for wrong in (timedelta(seconds=1), timedelta(days=31)):
        with pytest.raises(ValidationError):
            await budget.read_budget_history("b", window=wrong)
