"""A call is armed or disarmed by the holder of the lease."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.compensation import (
    CompensationCall,
)
from flowfabric.engine.journal.disarm_compensations import disarm_compensations
from flowfabric.errors import StaleLease, ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.journal.compensating import compensates
from tests.engine.journal.journals import (
    COMPENSATION,
    DONE,
    OPEN,
    entry,
    journal,
    lost,
    refund,
    rows,
)


async def test_an_armed_call_is_an_entry_and_marks_the_execution(db: Connection) -> None:
    lease = await given.claimed(db)
    call = CompensationCall(
        execution_kind="refund",
        payload=b'"c-1"',
        payload_encoding="json",
        lane_id="payments",
        priority=7,
        required_capabilities=("bank",),
        policy={"max_reclaim_count": 2},
    )

    async with db.transaction():
        await arm_compensation(db, entry(lease, 1, "undo", kind=COMPENSATION), call)

    [row] = await rows(db, lease.execution_id)
    assert (row["kind"], row["state"], row["encoding"]) == ("compensation", "done", "json")
    assert msgspec.json.decode(row["value"], type=CompensationCall) == call
    assert await compensates(db, lease.execution_id)


async def test_arming_twice_is_arming_once(db: Connection) -> None:
    lease = await given.claimed(db)
    write = entry(lease, 1, "undo", kind=COMPENSATION)
    for _ in range(2):
        async with db.transaction():
            await arm_compensation(db, write, refund())

    assert await journal(db, lease.execution_id) == ["1 undo done"]


async def test_nothing_is_armed_under_a_lease_that_is_not_held(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await lost(db, clock, lease)
    before = await given.everything(db)
    write = entry(lease, 1, "undo", kind=COMPENSATION)

    async with db.transaction():
        armed = await arm_compensation(db, write, refund())
        disarmed = await disarm_compensations(db, write)

    assert isinstance(armed, StaleLease)
    assert isinstance(disarmed, StaleLease)
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("fields", "named"),
    [({}, "kind"), ({"kind": COMPENSATION, "state": OPEN}, "state"), ({"value": b"1"}, "value")],
)
async def test_only_a_fitting_entry_arms_or_disarms(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    lease = await given.claimed(db)
    if named == "value":
        fields = {"kind": COMPENSATION, "state": DONE, **fields}
    write = entry(lease, 1, "undo", **fields)

    with pytest.raises(ValidationError, match=named):
        await arm_compensation(db, write, refund())
    with pytest.raises(ValidationError, match=named):
        await disarm_compensations(db, write)
    assert await journal(db, lease.execution_id) == []


@all_cases(
    ("fields", "named"),
    [
        ({"execution_kind": ""}, "execution_kind"),
        ({"lane_id": ""}, "lane_id"),
        ({"payload": "text"}, "payload"),
        ({"priority": "high"}, "priority"),
        ({"payload_encoding": ""}, "payload_encoding"),
        ({"required_capabilities": ("a,b",)}, "capabilities"),
        ({"policy": {"max_reclaim_count": -1}}, "max_reclaim_count"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused(fields: dict[str, Any], named: str) -> None:
    whole: dict[str, Any] = {"execution_kind": "refund", "payload": b""} | fields
    with pytest.raises(ValidationError, match=named):
        CompensationCall(**whole)
