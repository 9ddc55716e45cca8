"""What one execution is and where it stands."""

from datetime import datetime, timedelta

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import ExecutionBody, describe_execution
from flowfabric.engine.executions.read_execution_info import read_execution_info
from flowfabric.engine.executions.read_execution_state import read_execution_state
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.instants import instant
from flowfabric.policy import FixedBackoff
from flowfabric.states import BlockingReason, PublicState
from flowfabric.testing import Clock
from tests import given


async def test_what_is_not_there_is_none(db: Connection) -> None:
    missing = ExecutionId.mint()

    assert await describe_execution(db, missing) is None
    assert await read_execution_info(db, missing) is None
    assert await read_execution_state(db, missing) is None


async def test_the_right_uuid_in_another_partition_is_not_there(db: Connection) -> None:
    made = await given.created(db)
    elsewhere = ExecutionId((made.partition_key + 1) % 256, made.uuid)

    assert await describe_execution(db, elsewhere) is None
    assert await read_execution_state(db, elsewhere) is None


async def test_a_new_execution_is_described(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(
        db,
        execution_kind="send",
        lane_id="mail",
        namespace="acme",
        required_capabilities=("gpu",),
        priority=7,
        tags={"z.last": "1", "a.first": "2"},
        idempotency_key="k",
        creator_identity="alice",
        delay=60,
        deadline=90,
    )
    now = await clock.now_ms()

    snapshot = await describe_execution(db, execution_id)

    assert snapshot is not None
    assert msgspec.structs.asdict(snapshot) == {
        "execution_id": execution_id,
        "flow_id": None,
        "namespace": "acme",
        "lane_id": "mail",
        "execution_kind": "send",
        "required_capabilities": ["gpu"],
        "priority": 7,
        "public_state": PublicState.DELAYED,
        "blocking_reason": BlockingReason.WAITING_FOR_DELAY,
        "blocking_detail": None,
        "current_attempt": None,
        "current_lease": None,
        "current_suspension": None,
        "total_attempt_count": 0,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "infra_release_count": 0,
        "created_at": instant(now),
        "started_at": None,
        "terminal_at": None,
        "delay_until": instant(now + 60_000),
        "deadline_at": instant(now + 90_000),
        "last_mutation_at": instant(now),
        "progress_pct": None,
        "progress_message": None,
        "failure_reason": None,
        "failure_category": None,
        "cancellation_reason": None,
        "cancelled_by": None,
        "idempotency_key": "k",
        "creator_identity": "alice",
        "tags": {"a.first": "2", "z.last": "1"},
        "body": None,
    }
    assert list(snapshot.tags) == ["a.first", "z.last"]


async def test_a_running_execution_is_described_with_its_lease(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    claimed_at = await clock.now_ms()
    await clock.advance(5)
    await progress(db, lease, percent=40, message="on it")

    snapshot = await describe_execution(db, lease.execution_id)

    assert snapshot is not None
    assert snapshot.public_state is PublicState.ACTIVE
    assert snapshot.blocking_reason is None
    assert snapshot.current_attempt is not None
    assert snapshot.current_attempt.attempt_index == 0
    assert snapshot.current_attempt.attempt_id == attempt_id(lease.execution_id, 0)
    assert snapshot.current_lease is not None
    assert msgspec.structs.asdict(snapshot.current_lease) == {
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "expires_at": instant(claimed_at + 30_000),
        "attempt_index": 0,
    }
    assert snapshot.started_at == instant(claimed_at)
    assert snapshot.last_mutation_at == instant(claimed_at + 5000)
    assert (snapshot.progress_pct, snapshot.progress_message) == (40, "on it")
    assert snapshot.total_attempt_count == 1


async def test_a_lease_is_shown_only_while_it_is_held(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(31)
    lapsed = await describe_execution(db, lease.execution_id)
    await expire_leases(db, limit=10)

    swept = await describe_execution(db, lease.execution_id)

    assert lapsed is not None
    assert lapsed.current_lease is not None  # nobody has taken it away yet
    assert swept is not None
    assert swept.current_lease is None
    assert swept.current_attempt is not None
    assert swept.current_attempt.attempt_index == 0


async def test_payload_result_and_traceback_are_read_on_request(db: Connection) -> None:
    async def body(lease: Lease) -> ExecutionBody:
        snapshot = await describe_execution(db, lease.execution_id, with_body=True)
        assert snapshot is not None
        assert snapshot.body is not None
        return snapshot.body

    lease = await given.claimed(
        db,
        input_payload=b"\x01",
        payload_encoding="msgpack",
        policy=given.retrying(backoff=FixedBackoff(delay=0)),
    )
    submitted = ExecutionBody(
        payload=b"\x01",
        payload_encoding="msgpack",
        result=None,
        result_encoding="msgpack",
        traceback=None,
    )
    assert await body(lease) == submitted

    await fail(db, [Failure(lease=lease, reason="boom", detail="Traceback …")])
    assert await body(lease) == msgspec.structs.replace(submitted, traceback="Traceback …")

    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease, b"done", "bytes")])
    assert await body(lease) == msgspec.structs.replace(
        submitted, result=b"done", result_encoding="bytes"
    )

    await replay_execution(db, lease.execution_id)
    assert (await body(lease)).result is None


async def test_a_retry_that_waits_has_no_attempt_yet(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await fail(db, [Failure(lease=lease, reason="boom", category="flaky")])

    snapshot = await describe_execution(db, lease.execution_id)

    assert snapshot is not None
    assert snapshot.current_attempt is None
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_RETRY_BACKOFF
    assert (snapshot.failure_reason, snapshot.failure_category) == ("boom", "flaky")
    assert (snapshot.total_attempt_count, snapshot.retry_count) == (1, 1)


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
async def test_an_ended_execution_is_described_with_its_end(
    db: Connection, clock: Clock, end: str
) -> None:
    lease = await given.claimed(db)
    await clock.advance(5)
    match end:
        case "complete":
            await complete(db, [Completion(lease)])
        case "fail":
            await fail(db, [Failure(lease=lease, reason="boom")])
        case _:
            await cancel_execution(db, lease.execution_id, reason="no")

    snapshot = await describe_execution(db, lease.execution_id)

    assert snapshot is not None
    assert snapshot.terminal_at == await clock.now()
    assert snapshot.current_lease is None
    assert snapshot.blocking_reason is None
    assert {
        "complete": (PublicState.COMPLETED, None, None, None),
        "fail": (PublicState.FAILED, "boom", None, None),
        "cancel": (PublicState.CANCELLED, None, "no", "operator_override"),
    }[end] == (
        snapshot.public_state,
        snapshot.failure_reason,
        snapshot.cancellation_reason,
        snapshot.cancelled_by,
    )


async def test_the_info_carries_the_whole_vector_and_the_dates(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, priority=3)
    claimed_at = await clock.now()
    await clock.advance(5)
    await complete(db, [Completion(lease)])

    info = await read_execution_info(db, lease.execution_id)

    assert info is not None
    assert msgspec.to_builtins(info, builtin_types=(datetime,)) == {
        "execution_id": msgspec.to_builtins(lease.execution_id),
        "namespace": "default",
        "lane_id": "default",
        "priority": 3,
        "execution_kind": "job",
        "state_vector": {
            "lifecycle_phase": "terminal",
            "ownership_state": "unowned",
            "eligibility_state": "not_applicable",
            "blocking_reason": "none",
            "terminal_outcome": "success",
            "attempt_state": "attempt_terminal",
            "public_state": "completed",
        },
        "public_state": "completed",
        "created_at": claimed_at,
        "current_attempt_index": 0,
        "blocking_detail": "",
        "started_at": claimed_at,
        "completed_at": claimed_at + timedelta(seconds=5),
        "flow_id": None,
    }


async def test_times_that_are_not_yet_are_null(db: Connection) -> None:
    info = await read_execution_info(db, await given.created(db))

    assert info is not None
    assert (info.started_at, info.completed_at, info.flow_id) == (None, None, None)


async def test_the_first_claim_is_the_start_for_ever(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    started = await clock.now()
    await clock.advance(5)
    await fail(db, [Failure(lease=lease, reason="boom")])
    await claim(db, given.WORKER, ttl=30)

    info = await read_execution_info(db, lease.execution_id)

    assert info is not None
    assert (info.started_at, info.current_attempt_index) == (started, 1)


async def test_the_state_follows_the_execution(db: Connection) -> None:
    execution_id = await given.created(db)
    states = [await read_execution_state(db, execution_id)]
    [task] = await claim(db, given.WORKER, ttl=30)
    states.append(await read_execution_state(db, execution_id))
    await release(db, [task.lease])
    states.append(await read_execution_state(db, execution_id))
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])
    states.append(await read_execution_state(db, execution_id))

    assert states == ["waiting", "active", "waiting", "completed"]


async def test_reading_changes_nothing(db: Connection) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    await describe_execution(db, lease.execution_id)
    await read_execution_info(db, lease.execution_id)
    await read_execution_state(db, lease.execution_id)

    assert await given.everything(db) == before
