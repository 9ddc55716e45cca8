"""The log of what operators do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flowfabric import Client
from flowfabric.audit import acting_for, audit
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine import Engine
from flowfabric.errors import RotationConflict
from tests import given

KEY = "ab" * 32


def told(records: list[logging.LogRecord]) -> list[dict[str, Any]]:
    fields = ("event", "actor", "reason", "execution_id", "principal", "request_id", "new_kid")
    return [
        {name: vars(each)[name] for name in fields if name in vars(each)}
        for each in dict.fromkeys(records)
        if each.name == "flowfabric.audit"
    ]


async def test_a_control_is_recorded_with_its_actor_and_its_request(
    ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    new = given.new()
    async with await Client.connect(ff_dsn) as client:
        engine: Engine = on_database(client.engine)
        await engine.create_execution([new])
        with acting_for("token ci", "req_1"):
            await engine.change_priority(new.execution_id, 5, actor="ann", reason="urgent")
        await engine.cancel_execution(new.execution_id, reason="not wanted", actor="bob")

    own = {"execution_id": str(new.execution_id)}
    assert told(caplog.records) == [
        {"event": "priority_changed", "actor": "ann", "reason": "urgent", **own}
        | {"principal": "token ci", "request_id": "req_1"},
        {"event": "cancelled", "actor": "bob", "reason": "not wanted", **own},
    ]


async def test_rotations_are_recorded_without_their_secrets(
    ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Client.connect(ff_dsn) as client:
        await on_database(client.engine).seed_waitpoint_hmac_secret("k1", KEY)
        await client.engine.rotate_waitpoint_hmac_secret_all("k2", "cd" * 32, 60)
        with pytest.raises(RotationConflict):
            await client.engine.rotate_waitpoint_hmac_secret_all("k2", KEY, 60)

    assert [each["event"] for each in told(caplog.records)] == [
        "waitpoint_hmac_rotation_complete",
        "waitpoint_hmac_rotation_failed",
    ]
    assert "cd" * 32 not in caplog.text
    assert KEY not in caplog.text


async def test_what_is_rolled_back_is_not_recorded(
    ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_conn: Connection) -> None:
        audit("cancelled", actor="ann")
        raise KeyError("x")

    async with await Client.connect(ff_dsn) as client:
        with pytest.raises(KeyError):
            await transact(on_database(client.engine).pool, "fails", fails)

    assert told(caplog.records) == []
