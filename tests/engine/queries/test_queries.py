"""Saved searches: private or shared, by name."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.queries.forget_query import forget_query
from flowfabric.engine.queries.list_queries import list_queries
from flowfabric.engine.queries.save_query import save_query
from flowfabric.errors import NotFound, ValidationError


async def test_a_search_is_seen_by_its_owner_or_by_all_until_it_is_forgotten(
    db: Connection,
) -> None:
    mine = await save_query(db, "b", "state=failed", owner="ann")
    again = await save_query(db, "b", "state=expired", owner="ann")
    shared = await save_query(db, "a", "kind=pay", owner="bob", shared=True)
    await save_query(db, "b", "lane=x", owner="bob")
    await save_query(db, "b", "lane=x", owner="ann", namespace="other")

    assert again.query_id == mine.query_id
    assert [each.query for each in await list_queries(db, owner="ann")] == [
        "kind=pay",
        "state=expired",
    ]
    with pytest.raises(NotFound):
        await forget_query(db, shared.query_id, owner="ann")
    with pytest.raises(NotFound):
        await forget_query(db, mine.query_id, namespace="other")
    with pytest.raises(NotFound):
        await forget_query(db, uuid4())
    await forget_query(db, mine.query_id, owner="ann")
    await forget_query(db, shared.query_id)
    assert await list_queries(db, owner="ann") == []
    for wrong in ({"name": ""}, {"query": "x" * 9000}):
        with pytest.raises(ValidationError):
            await save_query(db, **{"name": "a", "query": "b", "owner": "c", **wrong})
