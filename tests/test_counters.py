"""Counts of a process, as a server exports them."""

from collections.abc import Mapping

import pytest

from flowfabric import AnyOf, App, Client, Ctx, Flow
from flowfabric.counters import (
    COUNTERS,
    DIVERGENCES,
    EDGE_GROUP_POLICIES,
    JOURNAL_ENTRIES,
    JOURNAL_FLUSH_SECONDS,
    JOURNAL_FLUSH_SIZE,
    REPLAYED_ENTRIES,
    SIBLING_DISPOSITIONS,
    Distribution,
)
from flowfabric.testing import Clock

pytestmark = pytest.mark.timeout(60)


def test_a_distribution_counts_what_is_at_most_as_large_as_each_bound() -> None:
    seen = Distribution("x", "", (1, 5))
    for value in (0.5, 1, 2, 5, 9):
        seen.observe(value)

    assert seen.buckets == [(1, 2), (5, 4)]
    assert (seen.count, seen.sum) == (5, 17.5)


def test_every_counter_has_its_own_name_and_a_meaning() -> None:
    assert len({each.name for each in COUNTERS}) == len(COUNTERS)
    assert all(each.name.startswith("ff_") and each.meaning for each in COUNTERS)


async def test_entries_flushes_replays_and_divergences_are_counted(
    ff_dsn: str, ff_clock: Clock
) -> None:
    app, runs = App(), list[int]()
    before = dict(JOURNAL_ENTRIES.values)
    flushes, sizes, replayed = JOURNAL_FLUSH_SECONDS.count, JOURNAL_FLUSH_SIZE.sum, _of(())

    @app.task("counted")
    async def counted(ctx: Ctx) -> None:
        runs.append(1)
        await ctx.step("one", lambda: 1)
        await ctx.sleep(60)
        await ctx.step(f"run {len(runs)}", lambda: 1)
        await ctx.sleep(60)

    async with await Client.connect(ff_dsn) as client:
        await client.submit(counted.call())
        for _ in range(3):
            await app.worker(dsn=ff_dsn).run_until_idle()
            await ff_clock.advance(60)

    assert _more(JOURNAL_ENTRIES.values, before) == {("step", "done"): 2, ("sleep", "open"): 2}
    assert (JOURNAL_FLUSH_SECONDS.count - flushes, JOURNAL_FLUSH_SIZE.sum - sizes) == (4, 4)
    assert _of(()) - replayed == 2 + 2, "the second run found two entries, the third two of four"
    assert DIVERGENCES.values[("counted",)] == 1


def _of(labels: tuple[str, ...]) -> int:
    return REPLAYED_ENTRIES.values[labels]


def _more(
    now: Mapping[tuple[str, ...], int], before: Mapping[tuple[str, ...], int]
) -> dict[tuple[str, ...], int]:
    return {key: now[key] - before.get(key, 0) for key in now if now[key] != before.get(key, 0)}


async def test_joins_and_siblings_are_counted_when_they_are_committed(ff_dsn: str) -> None:
    app = App()
    before = dict(EDGE_GROUP_POLICIES.values)
    cancelled = SIBLING_DISPOSITIONS.values["cancelled",]

    @app.task("fast")
    async def fast(ctx: Ctx) -> None: ...

    flow = Flow("race")
    winner = flow.add(fast.call(), name="winner")
    loser = flow.add(fast.call(), name="loser", delay=3600)
    flow.add(fast.call(), name="last").after(winner, loser, policy=AnyOf())
    async with await Client.connect(ff_dsn) as client:
        await client.start(flow, idempotency_key="race-1")
        await client.start(flow, idempotency_key="race-1")
        await app.worker(dsn=ff_dsn).run_until_idle()

    assert _more(EDGE_GROUP_POLICIES.values, before) == {("any_of",): 1}, "a repeat makes no join"
    assert SIBLING_DISPOSITIONS.values["cancelled",] - cancelled == 1
