"""Operations on executions, lanes and workers, and what is right when one is called again."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from flowfabric import App, Client, Ctx
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled
from flowfabric.engine.lifecycle.claim import Claimed
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Duplicate
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.lifecycle.release_after_trouble import ReleasedAfterTrouble, Trouble
from flowfabric.engine.lifecycle.wait_children import ChildWait, WaitingChildren
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked
from flowfabric.engine.workers.register_worker import WorkerRefreshed
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotTerminal,
)
from flowfabric.ids import children_group_id
from flowfabric.states import OperatorEventType
from flowfabric.worker.outcome_recorder import OutcomeRecorder
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from tests.proofs.lost_ack import subjects
from tests.proofs.lost_ack.operation import (
    Operation,
    again,
    ends,
    executions,
    given_back,
    of,
    only,
    put_down,
    refusal,
    rows,
    told,
)

app = App()


@app.task("job")
def job(ctx: Ctx) -> None:
    """Nobody runs it."""


async def _submit(engine: Engine, number: int) -> Any:
    return await Client(engine).submit(job.call(), idempotency_key=f"key {number}")


async def _submit_keyless(engine: Engine, _: int) -> Any:
    return await Client(engine).submit(job.call())


async def _submit_many(engine: Engine, _: int) -> Any:
    return await Client(engine).submit_many([job.call(), job.call(), job.call()])


async def _start(engine: Engine, _: int) -> Any:
    flow = app.flow("pair")
    flow.add(job.call())
    flow.add(job.call())
    return await Client(engine).start(flow)


async def _recorded(engine: Engine, claimed: Claimed, outcome: DelayRequest | Lease) -> Any:
    """Record the outcome as a worker does, which repeats the call until it is answered."""
    recorder = OutcomeRecorder(engine, HeldLeases())
    answer = asyncio.get_running_loop().create_future()
    recording = asyncio.create_task(recorder.run())
    try:
        recorder.put(RunningAttempt(claimed, time.monotonic()), outcome, answer)
        return await answer
    finally:
        recording.cancel()


OF_EXECUTIONS: Final = (
    Operation(
        name="create_execution",
        begin=subjects.new,
        call=lambda engine, new: engine.create_execution([new]),
        right=lambda answer, new: answer == [Duplicate(execution_id=new.execution_id)],
        effects=executions("waiting"),
    ),
    Operation(
        name="create_execution with a key",
        begin=subjects.keyed,
        call=lambda engine, new: engine.create_execution([new]),
        right=lambda answer, new: answer == [Duplicate(execution_id=new.execution_id)],
        effects=executions("waiting"),
    ),
    Operation(
        name="client.submit",
        begin=subjects.numbers,
        call=_submit,
        right=lambda handle, _: handle.created,
        effects=executions("waiting"),
        repeats=True,
    ),
    Operation(
        name="client.submit without a key",
        begin=subjects.numbers,
        call=_submit_keyless,
        right=lambda handle, _: handle.created,
        effects=executions("waiting"),
        repeats=True,
    ),
    Operation(
        name="client.submit_many",
        begin=subjects.numbers,
        call=_submit_many,
        right=lambda handles, _: all(handle.created for handle in handles),
        effects=executions("waiting"),
        each=3,
        repeats=True,
    ),
    Operation(
        name="client.start",
        begin=subjects.numbers,
        call=_start,
        right=lambda handle, _: not isinstance(handle, Exception),
        effects=rows("flow_core"),
        repeats=True,
    ),
    Operation(  # what the lost answer took comes back when its lease runs out
        name="claim",
        begin=subjects.for_two_claims_each,
        call=lambda engine, _: engine.claim(subjects.WORKER, ttl=3600),
        right=lambda answer, _: len(answer) == 1 and isinstance(answer[0], Claimed),
        effects="SELECT count(DISTINCT lease_id) FROM ff.execution WHERE public_state = 'active'",
        adds=1,
        writes=True,
    ),
    Operation(
        name="renew",
        begin=subjects.held,
        call=lambda engine, lease: engine.renew([lease], ttl=7200),
        right=lambda answer, _: answer == [None],
        effects=rows("lease", "lease_expires_at_ms > ff.now_ms() + 3600000"),
        writes=True,
    ),
    Operation(
        name="progress",
        begin=subjects.held,
        call=lambda engine, lease: engine.progress(lease, percent=50),
        right=lambda answer, _: answer is None,
        effects=rows("exec_core", "progress_pct = 50"),
        writes=True,
    ),
    Operation(
        name="complete",
        begin=subjects.held,
        call=lambda engine, lease: engine.complete([Completion(lease, b"1")]),
        right=again(Completed),
        effects=ends("success"),
    ),
    Operation(
        name="fail, for good",
        begin=subjects.held,
        call=lambda engine, lease: engine.fail([Failure(lease=lease, reason="boom")]),
        right=again(TerminalFailed),
        effects=ends("failed"),
    ),
    Operation(
        name="fail, with a retry",
        begin=subjects.held_with_retries,
        call=lambda engine, lease: engine.fail([Failure(lease=lease, reason="boom")]),
        right=again(RetryScheduled),
        effects="SELECT sum(retry_count) FROM ff.execution",
    ),
    Operation(
        name="delay",
        begin=subjects.held,
        call=lambda engine, lease: engine.delay([DelayRequest(lease=lease, delay=3600)]),
        right=put_down(0),
        refused=True,
        effects=given_back("delay"),
    ),
    Operation(
        name="release",
        begin=subjects.held,
        call=lambda engine, lease: engine.release([lease]),
        right=put_down(1),
        refused=True,
        effects=given_back("released"),
    ),
    Operation(
        name="release_after_trouble",
        begin=subjects.held,
        call=lambda engine, lease: engine.release_after_trouble(
            [Trouble(lease=lease, reason="no room")]
        ),
        right=again(ReleasedAfterTrouble),
        effects="SELECT sum(infra_release_count) FROM ff.execution",
    ),
    Operation(
        name="task.delay",
        begin=subjects.claimed,
        call=lambda engine, each: _recorded(
            engine, each, DelayRequest(lease=each.lease, delay=3600)
        ),
        right=of(Delayed),
        effects=given_back("delay"),
        repeats=True,
    ),
    Operation(
        name="task.release",
        begin=subjects.claimed,
        call=lambda engine, each: _recorded(engine, each, each.lease),
        right=of(Released),
        effects=given_back("released"),
        repeats=True,
    ),
    Operation(
        name="cancel, by the holder",
        begin=subjects.held,
        call=lambda engine, lease: engine.cancel([Cancellation(lease, "no")]),
        right=again(Cancelled),
        effects=ends("cancelled"),
    ),
    Operation(
        name="spawn_children",
        begin=subjects.held,
        call=subjects.spawn,
        right=lambda wait, _: wait.group_state == "pending" and len(wait.children) == 1,
        effects=rows("exec_core", "flow_id IS NOT NULL"),
        each=2,
    ),
    Operation(
        name="wait_children",
        begin=subjects.held_with_children,
        call=lambda engine, lease: engine.wait_children(
            [ChildWait(lease=lease, groups=(children_group_id(lease.execution_id, 0),))]
        ),
        right=only(WaitingChildren),
        effects=given_back("waiting_children"),
    ),
    Operation(
        name="cancel_execution",
        begin=subjects.waiting,
        call=lambda engine, each: engine.cancel_execution(each, reason="no"),
        right=lambda answer, _: answer.repeated,
        effects=told(OperatorEventType.CANCELLED),
    ),
    Operation(
        name="override_complete",
        begin=subjects.held,
        call=lambda engine, lease: engine.override_complete(lease.execution_id, result=b"1"),
        right=lambda answer, _: answer.repeated,
        effects=told(OperatorEventType.COMPLETED),
    ),
    Operation(
        name="override_fail",
        begin=subjects.held,
        call=lambda engine, lease: engine.override_fail(lease.execution_id, reason="stuck"),
        right=lambda answer, _: answer.repeated,
        effects=told(OperatorEventType.FAILED),
    ),
    Operation(  # "keeps 1-2" (executions.md 7): what is not active any more refuses it
        name="override_delay",
        begin=subjects.held,
        call=lambda engine, lease: engine.override_delay(lease.execution_id, delay=60),
        right=of(ExecutionNotActive),
        effects=told(OperatorEventType.DELAYED),
    ),
    Operation(
        name="revoke_lease",
        begin=subjects.held,
        call=lambda engine, lease: engine.revoke_lease(
            lease.execution_id, reason="stuck", expected_lease_id=lease.lease_id
        ),
        right=of(LeaseNotRevoked),
        effects=told(OperatorEventType.LEASE_REVOKED),
    ),
    Operation(  # "setting the same value still emits" (executions.md 8.14)
        name="change_priority",
        begin=subjects.waiting,
        call=lambda engine, each: engine.change_priority(each, 7),
        right=lambda answer, _: answer.priority == 7,
        effects=told(OperatorEventType.PRIORITY_CHANGED),
        adds=1,
        writes=True,
    ),
    Operation(  # "each call is a new replay" (flows.md 11): what has not ended refuses it
        name="replay_execution",
        begin=subjects.ended,
        call=lambda engine, each: engine.replay_execution(each),
        right=refusal(ExecutionNotTerminal, "waiting"),
        refused=True,
        effects=told(OperatorEventType.REPLAYED),
    ),
    Operation(  # what does not wait for a worker refuses it, and says what it waits for
        name="block_execution_for_admission",
        begin=subjects.waiting,
        call=subjects.block,
        right=refusal(ExecutionNotEligible, "blocked_by_operator"),
        refused=True,
        effects=told(OperatorEventType.BLOCKED),
    ),
    Operation(  # what is not held back refuses it (executions.md 8.3)
        name="unblock_execution",
        begin=subjects.blocked,
        call=lambda engine, each: engine.unblock_execution(each),
        right=refusal(ExecutionNotEligible, "waiting"),
        refused=True,
        effects=told(OperatorEventType.UNBLOCKED),
    ),
    Operation(
        name="set_execution_tag",
        begin=subjects.waiting,
        call=lambda engine, each: engine.set_execution_tag(each, "proof.cut", "1"),
        right=lambda answer, _: answer is None,
        effects=rows("exec_tag"),
        writes=True,
    ),
    Operation(
        name="set_lane_state",
        begin=subjects.lanes,
        call=lambda engine, lane: engine.set_lane_state(lane, "paused"),
        right=lambda answer, _: answer.old_state == answer.lane_state == "paused",
        effects=told(OperatorEventType.LANE_STATE_CHANGED),
    ),
    Operation(
        name="register_worker",
        begin=subjects.numbers,
        call=lambda engine, number: engine.register_worker(
            worker_id="w", worker_instance_id=f"w-{number}", lanes=["default"], liveness_ttl=60
        ),
        right=of(WorkerRefreshed),
        effects=rows("worker_registry"),
        writes=True,
    ),
)
