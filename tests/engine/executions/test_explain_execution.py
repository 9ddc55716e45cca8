"""Why an execution that waits for a worker has none."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.executions.explained import at, only, whys, worker

GRANT = """
INSERT INTO ff.claim_grant (
       partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, lane_id,
       worker_capabilities, grant_ttl_ms, issued_at_ms, expires_at_ms, lease_epoch)
SELECT $1, 'g', $2, $3, 'chosen', 'chosen-1', 'default', '{}', 60000, ff.now_ms(),
       ff.now_ms() + $4, 0
"""


async def granted(
    db: Connection, execution_id: ExecutionId, *, kind: str = "claim", ms: int = 60_000
) -> None:
    await db.execute(GRANT, execution_id.partition_key, execution_id.uuid, kind, ms)


async def test_what_is_not_there_has_no_reason(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await explain_execution(db, ExecutionId.mint())

    assert raised.value.entity == "execution"


async def test_an_explanation_says_where_the_execution_stands(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    execution_id = await given.created(
        db, lane_id="mail", execution_kind="send", required_capabilities=("gpu", "arm")
    )
    since = await clock.now()
    await worker(db, "able", lanes=["mail"], capabilities=["gpu", "arm"])
    await worker(db, "other")
    await clock.advance(5)
    before = await given.everything(db)

    told = await ff_engine.explain_execution(execution_id)

    assert (told.execution_id, told.public_state) == (execution_id, PublicState.WAITING)
    assert (told.lane_id, told.execution_kind) == ("mail", "send")
    assert told.required_capabilities == ["arm", "gpu"]
    assert (told.since, told.live_workers, told.able_workers) == (since, 2, 1)
    assert told.summary == told.reasons[0].message
    assert await given.everything(db) == before


async def test_there_is_no_worker(db: Connection) -> None:
    execution_id = await given.created(db)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.NO_WORKER,
        message="no live worker on lane 'default' in namespace 'default'",
        remedy="start one: ff worker MODULE:APP --lane default",
    )


async def test_the_workers_are_on_other_lanes(db: Connection) -> None:
    execution_id = await given.created(db)
    await worker(db, "w-1", lanes=["mail"])
    await worker(db, "w-2", lanes=["reports"])

    reason = await only(db, execution_id)

    assert reason.why is ReasonCode.NO_WORKER
    assert reason.message == (
        "no live worker on lane 'default' in namespace 'default' (2 on other lanes)"
    )


@pytest.mark.parametrize(
    "fields", [{"namespace": "acme"}, {"liveness_ttl": 5}], ids=["another namespace", "silent"]
)
async def test_a_worker_of_another_namespace_or_a_silent_one_is_none(
    db: Connection, clock: Clock, fields: dict[str, Any]
) -> None:
    execution_id = await given.created(db)
    await worker(db, **fields)
    await clock.advance(5)

    told = await explain_execution(db, execution_id)

    assert [reason.why for reason in told.reasons] == [ReasonCode.NO_WORKER]
    assert (told.live_workers, told.able_workers) == (0, 0)


async def test_no_worker_knows_the_kind(db: Connection) -> None:
    execution_id = await given.created(db, execution_kind="send")
    await worker(db, "w-1", kinds=["job"])
    await worker(db, "w-2", kinds=["job", "print"])

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.NO_WORKER_FOR_KIND,
        message="2 live workers on lane 'default' in namespace 'default', "
        "none with a task of kind 'send'",
        remedy="deploy the code that registers this kind",
    )


async def test_a_worker_that_names_no_kinds_knows_them_all(db: Connection) -> None:
    execution_id = await given.created(db, execution_kind="send")
    await worker(db, kinds=[])

    assert await whys(db, execution_id) == [ReasonCode.ABOUT_TO_START]


async def test_no_worker_offers_a_capability(db: Connection) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu", "arm", "big"))
    await worker(db, capabilities=["arm"])

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.NO_CAPABLE_WORKER,
        message="it requires 'arm', 'big', 'gpu': 1 live worker on lane 'default' "
        "in namespace 'default', none offers 'big', 'gpu'",
        remedy="start a worker there that offers 'arm', 'big', 'gpu'",
    )


async def test_every_capability_is_offered_but_not_by_one_worker(db: Connection) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu", "arm"))
    await worker(db, "w-1", capabilities=["arm"])
    await worker(db, "w-2", capabilities=["gpu"])

    reason = await only(db, execution_id)

    assert reason.why is ReasonCode.NO_CAPABLE_WORKER
    assert reason.message == (
        "it requires 'arm', 'gpu': 2 live workers on lane 'default' in namespace 'default', "
        "none offers all of that at once"
    )


async def test_its_lane_drains_so_it_is_about_to_start_and_takes_no_replay_once_it_has_ended(
    db: Connection,
) -> None:
    ended = await controls.execution(db, "failed")
    queued = await given.created(db)
    await worker(db)
    await set_lane_state(db, "default", "draining")

    assert await whys(db, queued) == [ReasonCode.ABOUT_TO_START]
    assert (await only(db, ended)).remedy == (
        "lane 'default' is draining: ff lanes resume default; "
        f"then run it again (10 replays left): ff executions replay '{ended}'"
    )


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_its_lane_rests_since_somebody_said_so(
    db: Connection, clock: Clock, state: str
) -> None:
    execution_id = await given.created(db)
    await worker(db)
    await set_lane_state(db, "default", state, actor="alice", reason="a deployment")

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.LANE_NOT_ACTIVE,
        message=f"lane 'default' is {state} by alice since {at(await clock.now())}: a deployment",
        remedy="make it active again: ff lanes resume default",
    )


async def test_its_lane_rests_and_there_is_no_worker_either(db: Connection) -> None:
    execution_id = await given.created(db)
    await set_lane_state(db, "default", "paused")

    assert await whys(db, execution_id) == [ReasonCode.LANE_NOT_ACTIVE, ReasonCode.NO_WORKER]


async def test_it_is_promised_to_a_worker(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await worker(db)
    await granted(db, execution_id)
    until = await clock.now() + timedelta(minutes=1)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.RESERVED,
        message=f"reserved for worker 'chosen' by a claim grant until {at(until)}",
        remedy="that worker claims it, or the grant expires",
        clears_at=until,
    )


@pytest.mark.parametrize("grant", [{"ms": 0}, {"kind": "reclaim"}], ids=["run out", "reclaim"])
async def test_a_grant_that_ran_out_or_is_for_a_reclaim_promises_nothing(
    db: Connection, clock: Clock, grant: dict[str, Any]
) -> None:
    execution_id = await given.created(db)
    await worker(db)
    await granted(db, execution_id, **grant)

    assert await whys(db, execution_id) == [ReasonCode.ABOUT_TO_START]


async def test_others_like_it_are_claimed_before_it(db: Connection, clock: Clock) -> None:
    await given.created(db, priority=5)
    await given.created(db, priority=4)
    await clock.advance(1)
    execution_id = await given.created(db, priority=4)
    await clock.advance(1)
    await given.created(db, priority=4)
    await given.created(db, priority=9, execution_kind="another")
    await given.created(db, priority=9, delay=60)
    await worker(db, concurrency=8)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.BEHIND_OTHERS,
        message="2 like it are claimed before it (priority 4); "
        "1 live worker with 0 of 8 slots in use",
        remedy="more workers or slots, or a higher priority: ff executions priority",
    )


async def test_of_one_instant_and_priority_the_lower_id_is_claimed_first(
    db: Connection, clock: Clock
) -> None:
    executions = [await given.created(db) for _ in range(3)]
    await worker(db)

    told = [await only(db, each) for each in sorted(executions, key=lambda each: each.uuid)]

    assert [reason.message.split()[0] for reason in told] == ["next", "1", "2"]


async def test_a_place_far_behind_is_not_counted_to_its_end(db: Connection) -> None:
    await create_execution(db, [given.new() for _ in range(1001)])
    execution_id = await given.created(db)
    await worker(db)

    reason = await only(db, execution_id)

    assert reason.message.startswith("1000 or more like it are claimed before it")


async def test_every_worker_that_could_take_it_is_busy(db: Connection) -> None:
    await worker(db, "w-1", concurrency=1)
    await worker(db, "w-2", concurrency=1)
    await worker(db, "w-3", lanes=["mail"], concurrency=9)
    await given.created(db)
    await given.created(db)
    await claim(db, given.WORKER, ttl=30)
    await claim(db, given.OTHER, ttl=30)
    execution_id = await given.created(db)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.WORKERS_BUSY,
        message="next in its queue; 2 live workers with 2 of 2 slots in use",
        remedy="it starts when a slot is free; more workers or slots make that sooner",
    )


async def test_nothing_stands_in_its_way(db: Connection, clock: Clock) -> None:
    await worker(db, concurrency=2, liveness_ttl=60)
    await given.claimed(db)
    execution_id = await given.created(db)
    await clock.advance(45)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.ABOUT_TO_START,
        message="next in its queue for 45 s; 1 live worker with 1 of 2 slots in use",
        remedy="nothing stands in its way; if it stays so, look at the workers' logs",
    )


async def test_what_a_namesake_in_another_namespace_holds_is_none_of_its_slots(
    db: Connection,
) -> None:
    await worker(db, concurrency=1)
    await worker(db, concurrency=1, namespace="acme")
    await given.created(db, namespace="acme")
    acme = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",), namespace="acme")
    await claim(db, acme, ttl=30)
    execution_id = await given.created(db)

    assert await whys(db, execution_id) == [ReasonCode.ABOUT_TO_START]


async def test_a_deadline_is_told_beside_the_reason(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, deadline=60)
    until = await clock.now() + timedelta(minutes=1)

    no_worker, deadline = (await explain_execution(db, execution_id)).reasons

    assert no_worker.why is ReasonCode.NO_WORKER
    assert deadline == ExplanationReason(
        why=ReasonCode.DEADLINE,
        message=f"it expires at {at(until)} unless it has ended by then",
        remedy="nothing extends a deadline; a replay after it grants the same time again",
        clears_at=until,
    )


async def test_a_deadline_that_has_passed_is_the_only_reason(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, deadline=60)
    until = await clock.now() + timedelta(minutes=1)
    await clock.advance(61)

    [deadline] = (await explain_execution(db, execution_id)).reasons

    assert deadline.why is ReasonCode.DEADLINE
    assert f"passed at {at(until)}" in deadline.message


async def test_every_obstacle_is_told_in_the_order_in_which_it_is_met(db: Connection) -> None:
    execution_id = await given.created(db, deadline=60)
    await block_execution_for_admission(db, execution_id, "paused_by_operator")
    await set_lane_state(db, "default", "paused")
    await granted(db, execution_id)

    assert await whys(db, execution_id) == [
        ReasonCode.BLOCKED,
        ReasonCode.LANE_NOT_ACTIVE,
        ReasonCode.RESERVED,
        ReasonCode.NO_WORKER,
        ReasonCode.DEADLINE,
    ]
