"""Many families at once, on several workers: everybody ends, once, and the flows are sound."""

import pytest

from flowfabric import App, ChildFailed, Client, Ctx, Fail
from flowfabric.db.rows import Connection
from tests.engine.joins.invariants import broken_invariants
from tests.worker.facts import count, told_twice

FAMILIES = 15


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_many_families_at_once_come_out_right(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("leaf")
    async def leaf(ctx: Ctx, n: int) -> int:
        if n % 7 == 0:
            raise Fail("a seventh", retryable=False)
        return n

    @app.task("middle")
    async def middle(ctx: Ctx, n: int) -> int:
        ends = await ctx.gather(leaf.many(range(n, n + 4)), return_exceptions=True)
        return sum(end for end in ends if isinstance(end, int))

    @app.task("top")
    async def top(ctx: Ctx, n: int) -> list[int]:
        beside = await ctx.spawn(middle.call(n))
        sums = await ctx.gather(middle.many(range(n, n + 3)))
        first = await ctx.race(leaf.call(7), leaf.call(7 * n + 1), leaf.call(14))
        two = await ctx.quorum(2, middle.many(range(3)))
        try:
            pair = await ctx.gather(leaf.many([n, n + 1]))
        except ChildFailed:
            pair = []
        return [*sums, first, len(two), len(pair), await beside.result()]

    handles = await client.submit_many(top.many(range(FAMILIES)))
    async with (
        app.worker(dsn=ff_dsn, concurrency=1, worker_instance_id="narrow"),
        app.worker(dsn=ff_dsn, concurrency=3, worker_instance_id="wide"),
        app.worker(dsn=ff_dsn, concurrency=8, worker_instance_id="wider"),
    ):
        found = [await handle.result(timeout=90) for handle in handles]

    for n, result in enumerate(found):
        sums = [sum(x for x in range(m, m + 4) if x % 7) for m in range(n, n + 3)]
        pair = 0 if n % 7 in (0, 6) else 2
        assert result == [*sums, 7 * n + 1, 2, pair, sums[0]]
    # Itself, 7 in the middle with 4 leaves each, 3 that race and a pair; of the quorum one may be
    # cancelled before it has leaves.
    everybody = 1 + 7 + 7 * 4 + 3 + 2
    assert FAMILIES * (everybody - 4) <= await count(db) <= FAMILIES * everybody
    assert await told_twice(db) == 0
    assert await broken_invariants(db) == {}
