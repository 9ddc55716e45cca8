"""A control of somebody who has seen an earlier version changes nothing."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.engine.engine import Engine
from flowfabric.errors import StaleView
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given


async def seen(engine: Engine, execution_id: ExecutionId) -> dict[str, Any]:
    found = await engine.describe_execution(execution_id)
    assert found is not None
    return {"expected_last_mutation_at": found.last_mutation_at}


async def test_what_has_changed_since_it_was_read_stays_as_it_is(
    ff_engine: Engine, clock: Clock
) -> None:
    [made] = await ff_engine.create_execution([given.new()])
    one = made.execution_id
    view = await seen(ff_engine, one)
    await clock.advance(1)
    await ff_engine.change_priority(one, 3, **view)
    later = await seen(ff_engine, one)
    [claimed] = await ff_engine.claim(given.WORKER, ttl=30)
    await clock.advance(1)

    controls: list[Any] = [
        ff_engine.cancel_execution(one, reason="x", **view),
        ff_engine.change_priority(one, 4, **view),
        ff_engine.revoke_lease(one, reason="x", **view),
        ff_engine.block_execution_for_admission(one, "paused_by_operator", **view),
        ff_engine.unblock_execution(one, **view),
        ff_engine.resume_execution(one, **view),
        ff_engine.wake_execution(one, **view),
        ff_engine.override_complete(one, **view),
        ff_engine.override_fail(one, reason="x", **view),
        ff_engine.override_delay(one, delay=1, **view),
        ff_engine.replay_execution(one, **view),
    ]
    for control in controls:
        with pytest.raises(StaleView) as refused:
            await control
        assert refused.value.name == one
        assert refused.value.changed_at > view["expected_last_mutation_at"]
    assert await ff_engine.read_execution_state(one) is PublicState.ACTIVE
    now = await seen(ff_engine, one)
    await clock.advance(timedelta(seconds=5))
    await ff_engine.renew([claimed.lease], ttl=30)
    [refusal] = await ff_engine.cancel_executions([one], reason="x", **view)
    assert isinstance(refusal, StaleView)
    assert later["expected_last_mutation_at"] <= now["expected_last_mutation_at"]
    await ff_engine.cancel_execution(one, reason="x", **now)  # a renewal is no change
    assert await ff_engine.read_execution_state(one) is PublicState.CANCELLED
