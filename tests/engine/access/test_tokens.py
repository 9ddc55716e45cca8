"""API tokens: made, found by their hash, listed and revoked."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.access.create_token import create_token
from flowfabric.engine.access.find_token import find_token
from flowfabric.engine.access.has_tokens import has_tokens
from flowfabric.engine.access.list_tokens import list_tokens
from flowfabric.engine.access.revoke_token import revoke_token
from flowfabric.engine.access.secret import digest, is_well_formed, new_secret
from flowfabric.errors import NotFound, ValidationError
from flowfabric.states import Role
from flowfabric.testing import Clock


async def test_only_the_hash_of_a_token_is_stored(db: Connection) -> None:
    made = await create_token(db, "shop", role="client", namespaces=["shop"])
    [row] = await db.fetch("SELECT * FROM ff.api_token")
    assert is_well_formed(made.token)
    assert row["token_hash"] == digest(made.token)
    assert made.token not in repr(made) + str(dict(row))


async def test_a_token_is_found_until_it_expires_or_is_revoked(
    db: Connection, clock: Clock
) -> None:
    made = await create_token(db, "a", role=Role.ADMIN, expires_in=60)
    other = await create_token(db, "b", role=Role.READER, hide_payloads=True)
    found = await find_token(db, digest(made.token))
    assert found is not None
    assert (found.role, found.namespaces) == (Role.ADMIN, ["*"])
    await clock.advance(timedelta(seconds=61))
    assert await find_token(db, digest(made.token)) is None
    assert (await revoke_token(db, other.token_id)).repeated is False
    assert (await revoke_token(db, other.token_id)).repeated is True
    assert await find_token(db, digest(other.token)) is None
    assert await find_token(db, digest(new_secret())) is None


async def test_one_operator_event_tells_who_made_a_token_and_who_revoked_it(
    db: Connection,
) -> None:
    made = await create_token(db, "shop", role="client", namespaces=["shop"], actor="ann")
    for _ in range(2):
        await revoke_token(db, made.token_id, actor="bob")
    rows = await db.fetch("SELECT * FROM ff.operator_event ORDER BY event_id")
    assert [(row["event_type"], row["actor"]) for row in rows] == [
        ("token_created", "ann"),
        ("token_revoked", "bob"),
    ]
    assert json.loads(rows[0]["details"]) == {
        "token_id": str(made.token_id),
        "label": "shop",
        "role": "client",
        "namespaces": ["shop"],
    }
    assert made.token not in str([dict(row) for row in rows])


async def test_the_last_use_is_noted_once_a_minute(db: Connection, clock: Clock) -> None:
    made = await create_token(db, "a", role=Role.READER)
    uses = []
    for seconds in (0, 30, 31):
        await clock.advance(timedelta(seconds=seconds))
        await find_token(db, digest(made.token))
        [token] = await list_tokens(db)
        assert token.last_used_at is not None
        uses.append(token.last_used_at)
    assert uses[1] - uses[0] == timedelta()
    assert uses[2] - uses[0] == timedelta(seconds=61)


async def test_there_are_tokens_until_the_last_one_is_revoked(db: Connection) -> None:
    assert not await has_tokens(db)
    made = await create_token(db, "a", role=Role.READER)
    assert await has_tokens(db)
    await revoke_token(db, made.token_id)
    assert not await has_tokens(db)
    with pytest.raises(NotFound):
        await revoke_token(db, uuid4())


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("label", {"label": ""}),
        ("role", {"role": "king"}),
        ("namespaces", {"namespaces": []}),
        ("expires_in", {"expires_in": 0}),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(
    db: Connection, field: str, wrong: dict[str, object]
) -> None:
    given: dict[str, object] = {"label": "a", "role": "reader", **wrong}
    with pytest.raises(ValidationError) as refused:
        await create_token(db, given.pop("label"), **given)  # pyright: ignore
    assert refused.value.field == field
    assert await list_tokens(db) == []
