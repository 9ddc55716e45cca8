"""Failures by cause."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.group_failures import group_failures, signature_of
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases


@all_cases(
    ("reason", "signature"),
    [
        (None, ""),
        ("", ""),
        ("KeyError: 'order 17'\nsecond line", "KeyError: <text>"),
        ("timed out after 30.5 s", "timed out after <n> s"),
        ("no row 0189aaaa-0000-7000-8000-00000000beef here", "no row <uuid> here"),
        ("at 0x7f3a, digest deadbeef01", "at <hex>, digest <hex>"),
        ("the facade defaced a cafe", "the facade defaced a cafe"),
    ],
)
def test_what_varies_between_errors_is_replaced(reason: str | None, signature: str) -> None:
    assert signature_of(reason) == signature


async def failed(db: Connection, reason: str, **fields: Any) -> ExecutionId:
    lease = await given.claimed(db, **fields)
    await fail(db, [Failure(lease=lease, reason=reason, category="app")])
    return lease.execution_id


async def test_failures_of_one_form_are_one_group(db: Connection, clock: Clock) -> None:
    old = await clock.now()
    await failed(db, "long ago")
    await clock.advance(timedelta(hours=2))
    began = await clock.now()
    await failed(db, "no order 1")
    await clock.advance(1)
    await failed(db, "cannot pay", execution_kind="pay")
    newest = await failed(db, "no order 2")
    await given.created(db, deadline=1)
    await clock.advance(2)
    await expire_executions(db, limit=10)

    found = await group_failures(db, window=3600)

    assert (found.looked_at, found.more) == (4, False)
    first, *others = found.groups
    assert (first.signature, first.count, first.sample) == ("no order <n>", 2, newest)
    assert (first.failure_category, first.lanes) == ("app", ["default"])
    assert (first.first_at, first.last_at) == (began, began + timedelta(seconds=1))
    assert first.sample_reason == "no order 2"
    assert sorted((each.execution_kind, each.public_state) for each in others) == [
        ("job", PublicState.EXPIRED),
        ("pay", PublicState.FAILED),
    ]
    alone = await group_failures(db, window=3600, execution_kind="pay")
    assert [each.count for each in alone.groups] == [1]
    assert (await group_failures(db, window=3600, namespace="other")).groups == []
    assert (await group_failures(db, window=3600, lane_id="other")).groups == []
    few = await group_failures(db, window=(await clock.now()) - old, newest=2)
    assert (few.looked_at, few.more) == (2, True)
    with pytest.raises(ValidationError, match="newest"):
        await group_failures(db, window=1, newest=0)
