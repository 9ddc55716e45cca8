"""Executions that are alike are created as if each had been given by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, Pattern
from flowfabric.engine.lifecycle.create_execution import (
    MAX_PAYLOAD,
    Created,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, new_uuids
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import PublicState
from tests.all_cases import all_cases

PAYLOADS = [b"1", b"", b"3"]


def first(**more: Any) -> NewExecution:
    return NewExecution(
        execution_id=ExecutionId.mint(), execution_kind="job", input_payload=b"0", **more
    )


def alike(new: NewExecution, payloads: Sequence[bytes] = PAYLOADS) -> AlikeBatch:
    own, count = new.execution_id, len(payloads)
    return AlikeBatch(
        Pattern(new),
        [own.partition_key, *[3] * count],
        [own.uuid, *new_uuids(count)],
        [new.input_payload, *payloads],
    )


@all_cases(
    "more",
    [
        {},
        {"priority": 7, "tags": {"a.b": "c"}, "delay": timedelta(seconds=5), "deadline": 60.0},
        {"policy": ExecutionPolicy(), "creator_identity": "me", "hold": True, "member_name": "m"},
        {"required_capabilities": ("gpu",), "payload_encoding": "json", "lane_id": "slow"},
    ],
)
@all_cases("fresh", [False, True])
def test_their_columns_are_those_of_the_same_executions_one_by_one(
    more: dict[str, Any], fresh: bool
) -> None:
    batch = alike(first(**more))
    one_by_one = [batch[at] for at in range(len(batch))]

    assert creation_columns(batch, fresh=fresh) == creation_columns(one_by_one, fresh=fresh)
    assert [each.input_payload for each in one_by_one] == [b"0", *PAYLOADS]
    assert [each.execution_id for each in one_by_one] == batch.execution_ids
    assert list(batch[1:]) == one_by_one[1:]


def test_the_second_batch_of_a_pattern_shares_its_columns_and_nothing_else() -> None:
    one = alike(first(priority=7))
    two = AlikeBatch(one.pattern, [5, 6], new_uuids(2), [b"x", b"y"])
    before = creation_columns(one, fresh=True)

    columns = creation_columns(two)

    assert columns == creation_columns(list(two))
    assert creation_columns(one, fresh=True) == before


async def test_all_are_created_and_the_second_time_found(db: Connection) -> None:
    batch = alike(first())

    created = await create_execution(db, batch, fresh=True)
    again = await create_execution(db, batch)

    waiting = PublicState.WAITING
    ids = batch.execution_ids
    assert created == [Created(execution_id=each, public_state=waiting) for each in ids]
    assert [type(each) for each in again] == [Duplicate] * 4


async def test_an_id_that_is_there_twice_is_created_once(db: Connection) -> None:
    new = first()
    own = new.execution_id
    batch = AlikeBatch(Pattern(new), [own.partition_key] * 2, [own.uuid] * 2, [b"0", b"1"])

    answers = await create_execution(db, batch)

    assert [type(each) for each in answers] == [Created, Duplicate]


def test_what_they_cannot_share_or_store_is_refused() -> None:
    keyed = NewExecution(
        execution_id=ExecutionId.mint(idempotency_key="k"),
        execution_kind="job",
        idempotency_key="k",
    )
    with pytest.raises(ValidationError, match="no key"):
        alike(keyed)
    with pytest.raises(ValidationError, match="over"):
        alike(first(), [b"", bytes(MAX_PAYLOAD + 1)])
    unknown = AlikeBatch(Pattern(first()), [256], new_uuids(1), [b""])
    with pytest.raises(ValidationError, match="partition"):
        creation_columns(unknown, partitions=256)
