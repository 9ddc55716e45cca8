"""What the sweeps of flows touch when there is nothing to do, as long as nobody counted rows."""

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.joins.dispatch_completions import undispatched
from tests.explained import Explained
from tests.proofs.crowd import analyzed, crowded

pytestmark = [
    pytest.mark.session("prepares statements and sets how its session plans"),
    pytest.mark.usefixtures("new_database"),
]

FEW = 10


async def test_looking_for_listed_groups_does_not_read_every_group(db: Connection) -> None:
    await crowded(db, ended=10_000, live=200)
    conn = Explained(db, generic=False)

    async with db.transaction():
        assert await cancel_siblings(conn) == 0  # type: ignore[arg-type]

    assert max(each.buffers for each in conn.costs) <= FEW


async def test_looking_for_ends_behind_a_pooler_does_not_read_every_end(ff_dsn: str) -> None:
    plain = await connect(DatabaseConfig(dsn=ff_dsn, pooler=True), role="tests")
    try:
        await crowded(plain, ended=20_000, live=200)
        await analyzed(plain)
        conn = Explained(plain, generic=False)

        async with plain.transaction():
            assert not await undispatched(conn)  # type: ignore[arg-type]

        assert max(each.buffers for each in conn.costs) <= FEW
    finally:
        await plain.close()
