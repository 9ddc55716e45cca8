"""Sessions of browsers: opened by a token, kept while used, and over with their token."""

from datetime import timedelta
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.access.close_session import close_session
from flowfabric.engine.access.create_token import create_token
from flowfabric.engine.access.forget_sessions import forget_sessions
from flowfabric.engine.access.list_sessions import list_sessions
from flowfabric.engine.access.open_session import open_session
from flowfabric.engine.access.read_session import read_session
from flowfabric.engine.access.revoke_token import revoke_token
from flowfabric.engine.access.secret import digest
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock


async def test_only_the_hash_of_a_session_is_stored(db: Connection) -> None:
    opened = await open_session(db, bytes(32), address="::1", user_agent="a\0b" + "c" * 500)
    [row] = await db.fetch("SELECT * FROM ff.web_session")
    assert row["session_hash"] == digest(opened.secret)
    assert opened.secret not in repr(opened) + str(dict(row))
    assert row["user_agent"] == "ab" + "c" * 198


async def test_a_session_knows_its_token_until_that_is_revoked(db: Connection) -> None:
    made = await create_token(db, "ann", role="operator", namespaces=["shop"])
    opened = await open_session(db, digest(made.token))
    found = await read_session(db, opened.secret)
    assert found is not None
    assert found.token is not None
    assert (found.token.label, found.token.namespaces) == ("ann", ["shop"])
    await revoke_token(db, made.token_id)
    assert await read_session(db, opened.secret) is None


async def test_a_session_of_a_token_that_is_not_stored_has_only_its_hash(db: Connection) -> None:
    opened = await open_session(db, digest("from the environment"))
    found = await read_session(db, opened.secret)
    assert found is not None
    assert (found.token, found.token_hash) == (None, digest("from the environment"))
    assert await read_session(db, "another") is None


async def test_a_session_lasts_while_it_is_used_but_a_week_at_most(
    db: Connection, clock: Clock
) -> None:
    used, idle = [await open_session(db, bytes(32)) for _ in range(2)]
    for _ in range(15):
        await clock.advance(timedelta(hours=11))
        assert await read_session(db, used.secret) is not None
    assert await read_session(db, idle.secret) is None
    await clock.advance(timedelta(hours=4))
    assert await read_session(db, used.secret) is None
    assert await forget_sessions(db, 10) == 2
    assert await forget_sessions(db, 10) == 0


async def test_a_session_is_listed_and_closed_by_its_own_token_only(db: Connection) -> None:
    mine, other = bytes(32), bytes([1]) * 32
    first, second = [await open_session(db, mine) for _ in range(2)]
    await open_session(db, other)
    listed = [each.session_id for each in await list_sessions(db, mine)]
    assert listed == [second.session_id, first.session_id]
    assert not await close_session(db, first.session_id, token_hash=other)
    assert await close_session(db, first.session_id, token_hash=mine)
    assert not await close_session(db, uuid4(), token_hash=mine)
    assert await read_session(db, first.secret) is None
    assert await read_session(db, second.secret) is not None


async def test_what_is_no_hash_opens_nothing(db: Connection) -> None:
    with pytest.raises(ValidationError) as refused:
        await open_session(db, b"short")
    assert refused.value.field == "token_hash"
