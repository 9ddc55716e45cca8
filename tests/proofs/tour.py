"""A tour of every operation of `Engine`, in one namespace: what each reads, writes and is bound to.

An operation that is not on the tour fails the proofs that walk it: least privilege (`privileges`)
and namespaces (`isolation`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID, uuid4

import msgspec

from flowfabric.conditions import Single
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.flows.new_flow import NewFlow
from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.engine.lifecycle.wait_children import ChildWait
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    Suspended,
    Suspension,
    WaitpointDetails,
    require_suspended,
)
from flowfabric.ids import ExecutionId, PartitionKey, attempt_id, child_id, children_group_id
from flowfabric.joins import AllOf
from flowfabric.limits import QuotaLimits, quota_key_id, quota_policy_id
from flowfabric.schedules.spec import spec_of
from tests import given
from tests.engine.flows.graphs import member
from tests.engine.journal.journals import COMPENSATION, entry, refund
from tests.engine.streams.streams import frame, patch
from tests.engine.suspensions.parked import ask

LANE: Final = "default"
FROM_START: Final = encode_cursor(0)
LATER: Final = timedelta(days=2)
LIMIT: Final = "per-customer"
LIMITS: Final = QuotaLimits(max_concurrent=5)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in one namespace."""

    namespace: str
    waiting: ExecutionId
    """With a signal in its inbox, and `key`."""
    blocked: ExecutionId
    ended: ExecutionId
    lease: Lease
    """Of an execution that runs, with frames in its stream, as `ended` has."""
    suspended: Suspended
    """An execution that waits for a signal on one waitpoint."""
    flow_id: UUID
    lacking: UUID
    """Another flow, whose member was cancelled."""
    upstream: ExecutionId
    downstream: ExecutionId
    edge_id: UUID
    """Staged from upstream to downstream, and not applied."""
    stranger: ExecutionId
    """In the partition of the flow, and not a member of it."""
    instance: str
    """A worker process."""
    scheduled: ExecutionId
    """An execution of the schedule `hourly`."""

    @property
    def budget(self) -> str:
        """The name of a budget, of which `lease` has spent something."""
        return f"budget of {self.namespace}"

    @property
    def limit_key(self) -> str:
        """A key of the limit `per-customer`; `waiting` is admitted under it."""
        return f"customer of {self.namespace}"

    @property
    def quota_policy_id(self) -> UUID:
        return quota_policy_id(self.namespace, LIMIT)

    @property
    def key(self) -> str:
        """The idempotency key of `waiting`."""
        return f"key in {self.namespace}"

    @property
    def waitpoint(self) -> WaitpointDetails:
        return self.suspended.waitpoints[0]

    @property
    def claimant(self) -> Claimant:
        return Claimant(
            worker_id="w",
            worker_instance_id=self.instance,
            lanes=(LANE,),
            namespace=self.namespace,
        )

    @property
    def trim(self) -> Trim:
        return Trim(lane_id=LANE, retention=0, namespace=self.namespace)


async def settle(engine: Engine, namespace: str) -> Place:
    """Fill a namespace with one of everything; there is a key that signs tokens."""
    instance = f"{namespace}-{uuid4().hex[:8]}"
    await engine.register_worker(
        worker_id="w",
        worker_instance_id=instance,
        lanes=(LANE,),
        liveness_ttl=3600,
        namespace=namespace,
    )
    leases = await _claimed(engine, namespace, instance, 3)
    frames = [frame(f"secret of {namespace}"), patch({"secret": namespace})]
    await engine.append_frames([Append(lease=lease, frames=frames) for lease in leases[:2]])
    await engine.complete([Completion(leases[0], b"secret of " + namespace.encode())])
    suspended = require_suspended(await engine.try_suspend(ask(leases[2])))
    flow_id = uuid4()
    new = [
        given.new(namespace=namespace, idempotency_key=key) for key in (f"key in {namespace}", None)
    ]
    members = [member(flow_id, namespace=namespace) for _ in range(3)]
    await engine.create_execution([*new, members[2]])
    await engine.block_execution_for_admission(new[1].execution_id, "paused_by_operator")
    await engine.send_signal(NewSignal(execution_id=new[0].execution_id, signal_name="go"))
    await engine.submit_flow(
        NewFlow(flow_id=flow_id, flow_kind="pair", members=members[:2], namespace=namespace)
    )
    upstream, downstream, stranger = (each.execution_id for each in members)
    edge_id = uuid4()
    await engine.stage_dependency_edge(
        flow_id, edge_id, upstream, downstream, expected_graph_revision=2
    )
    cancelled = member(lacking := uuid4(), namespace=namespace)
    await engine.submit_flow(
        NewFlow(flow_id=lacking, flow_kind="one", members=[cancelled], namespace=namespace)
    )
    await engine.cancel_execution(cancelled.execution_id, reason="no")
    await engine.create_schedule(_scheduled(namespace))
    scheduled = (await engine.trigger_schedule("hourly", namespace=namespace)).execution_id
    assert scheduled is not None
    place = Place(
        namespace=namespace,
        waiting=new[0].execution_id,
        blocked=new[1].execution_id,
        ended=leases[0].execution_id,
        lease=leases[1],
        suspended=suspended,
        flow_id=flow_id,
        lacking=lacking,
        upstream=upstream,
        downstream=downstream,
        edge_id=edge_id,
        stranger=stranger,
        instance=instance,
        scheduled=scheduled,
    )
    await engine.create_quota_policy(LIMIT, LIMITS, namespace=namespace)
    await engine.check_admission(LIMIT, place.waiting, **_admitted(place))
    await engine.create_budget(place.budget, **_budgeted())
    await engine.record_spend(place.budget, place.lease.execution_id, {"tokens": 1})
    await engine.save_query("mine", "state=failed", owner="c", namespace=namespace)
    none = Search(namespace=namespace, execution_kind="none such")
    await engine.start_bulk_action("cancel", search=none, reason="x")
    return place


def _scheduled(namespace: str, name: str = "hourly", **fields: Any) -> ScheduleDefinition:
    """A schedule, whose payload is a secret of the namespace."""
    return ScheduleDefinition(
        name=name,
        namespace=namespace,
        spec=spec_of(cron="0 * * * *"),
        execution_kind="job",
        lane_id="schedules",
        input_payload=b"secret of " + namespace.encode(),
        **fields,
    )


async def _claimed(engine: Engine, namespace: str, instance: str, count: int) -> list[Lease]:
    await engine.create_execution(
        [given.new(namespace=namespace, priority=9000) for _ in range(count)]
    )
    claimant = Claimant(
        worker_id="w", worker_instance_id=instance, lanes=(LANE,), namespace=namespace
    )
    return [task.lease for task in await engine.claim(claimant, ttl=3600, limit=count)]


Bound = Literal["namespace", "id", "all"]
"""To the namespace that it is given; to an id, whatever its namespace; to nothing."""


class Stop(msgspec.Struct, frozen=True):
    """One operation: what it does to rows, what it is bound to, and a call of it."""

    access: Literal["read", "write"]
    bound: Bound
    call: Callable[[Engine, Place], Awaitable[Any]]


def reads(bound: Bound, call: Callable[[Engine, Place], Awaitable[Any]]) -> Stop:
    return Stop("read", bound, call)


def writes(bound: Bound, call: Callable[[Engine, Place], Awaitable[Any]]) -> Stop:
    return Stop("write", bound, call)


def later() -> datetime:
    return datetime.now(UTC) + LATER


async def first_events(opening: Awaitable[Subscription[Any]], within: float = 3.0) -> list[Any]:
    """The events that a subscription from the start gives, until none comes for a moment."""
    subscription, events = await opening, []
    async with subscription:
        try:
            while True:
                async with asyncio.timeout(within if not events else 0.5):
                    events.append(await anext(subscription))
        except TimeoutError:
            return events


def _spawned(place: Place) -> dict[str, Any]:
    parent = place.lease.execution_id
    child = given.new(execution_id=child_id(parent, 0, 0, kind="job"), namespace=place.namespace)
    return {"children": [child], "group": children_group_id(parent, 0)}


def _arming(place: Place) -> EntryWrite:
    return entry(place.lease, 2, "undo", kind=COMPENSATION)


def _triple(place: Place) -> dict[str, Any]:
    lease = place.lease
    return {
        "suspension": Suspension(bindings=(Fresh(waitpoint_key="a"),), condition=Single("a")),
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "attempt_id": attempt_id(lease.execution_id, lease.attempt_index),
    }


def _opened(place: Place) -> tuple[ExecutionId, UUID]:
    """Where an outsider finds the waitpoint."""
    return place.suspended.execution_id, place.waitpoint.waitpoint_id


def _signal(place: Place) -> NewSignal:
    return NewSignal(execution_id=place.suspended.execution_id, signal_name="go")


def _scheduler(place: Place) -> dict[str, Any]:
    return {"lane_id": LANE, "worker_id": "w", "worker_instance_id": place.instance}


def _worker(place: Place) -> dict[str, Any]:
    return {"worker_id": "w", "worker_instance_id": place.instance, "lease_ttl": 30}


async def _verify(engine: Engine, place: Place) -> Any:
    return await engine.verify_grant(
        await engine.issue_claim_grant(place.waiting, **_scheduler(place))
    )


async def _claim_from_grant(engine: Engine, place: Place) -> Any:
    grant = await engine.issue_claim_grant(place.waiting, **_scheduler(place))
    return await engine.claim_from_resume_grant(grant, **_worker(place))


def _admitted(place: Place) -> dict[str, Any]:
    return {"limit_key": place.limit_key, "namespace": place.namespace}


def _budgeted() -> dict[str, Any]:
    return {"dimensions": ["tokens"], "hard_limits": [10], "soft_limits": [0]}


async def _revoke(engine: Engine, place: Place) -> Any:
    made = await engine.create_token(f"of {place.namespace}", role="reader")
    return await engine.revoke_token(made.token_id)


async def _followed(engine: Engine, place: Place) -> Any:
    frames = await engine.follow_stream(place.lease.execution_id, follow=False)
    return [each async for each in frames]


async def _bulk_action(engine: Engine, place: Place) -> Any:
    return await engine.list_bulk_actions(namespace=place.namespace)


async def _started_bulk(engine: Engine, place: Place) -> Any:
    none = msgspec.structs.replace(_search(place), execution_kind="none such")
    return await engine.start_bulk_action("cancel", search=none, reason="x")


async def _stopped_bulk(engine: Engine, place: Place) -> Any:
    made = await _started_bulk(engine, place)
    return await engine.stop_bulk_action(made.bulk_id, namespace=place.namespace)


async def _forgotten_query(engine: Engine, place: Place) -> Any:
    made = await engine.save_query("gone", "b", owner="c", namespace=place.namespace)
    return await engine.forget_query(made.query_id, owner="c", namespace=place.namespace)


def _search(place: Place) -> Search:
    return Search(namespace=place.namespace)


TOUR: Final[Mapping[str, Stop]] = {
    # Submitters and workers.
    "create_execution": writes(
        "namespace", lambda e, p: e.create_execution([given.new(namespace=p.namespace)])
    ),
    "create_unique_execution": writes(
        "namespace", lambda e, p: e.create_unique_execution(unique(p.namespace, "unique"))
    ),
    "create_unique_executions": writes(
        "namespace", lambda e, p: e.create_unique_executions([unique(p.namespace, "several")])
    ),
    "debounce_execution": writes(
        "namespace", lambda e, p: e.debounce_execution(keyed(p.namespace, "debounced"), wait=60)
    ),
    "claim": writes("namespace", lambda e, p: e.claim(p.claimant, ttl=30)),
    "read_claimed": reads(
        "id",
        lambda e, p: e.read_claimed([p.lease.lease_id], worker_instance_id=p.instance),
    ),
    "renew": writes("id", lambda e, p: e.renew([p.lease], ttl=30)),
    "find_lost_leases": reads("id", lambda e, p: e.find_lost_leases([p.lease])),
    "progress": writes("id", lambda e, p: e.progress(p.lease, percent=1)),
    "complete": writes("id", lambda e, p: e.complete([Completion(p.lease)])),
    "fail": writes(
        "id", lambda e, p: e.fail([Failure(lease=p.lease, reason="x", category="permanent")])
    ),
    "delay": writes("id", lambda e, p: e.delay([DelayRequest(lease=p.lease, delay=60)])),
    "wait_children": writes(
        "id",
        lambda e, p: e.wait_children(
            [ChildWait(lease=p.lease, groups=(children_group_id(p.lease.execution_id, 0),))]
        ),
    ),
    "release": writes("id", lambda e, p: e.release([p.lease])),
    "release_after_trouble": writes(
        "id", lambda e, p: e.release_after_trouble([Trouble(lease=p.lease, reason="x")])
    ),
    "cancel": writes("id", lambda e, p: e.cancel([Cancellation(p.lease, "no")])),
    "mark_lease_expired_if_due": writes(
        "id", lambda e, p: e.mark_lease_expired_if_due(p.lease.execution_id)
    ),
    # Operators.
    "cancel_executions": writes("id", lambda e, p: e.cancel_executions([p.waiting], reason="no")),
    "cancel_execution": writes("id", lambda e, p: e.cancel_execution(p.waiting, reason="no")),
    "replay_executions": writes("id", lambda e, p: e.replay_executions([p.ended])),
    "replay_execution": writes("id", lambda e, p: e.replay_execution(p.ended)),
    "revoke_leases": writes(
        "id", lambda e, p: e.revoke_leases([p.lease.execution_id], reason="no")
    ),
    "revoke_lease": writes("id", lambda e, p: e.revoke_lease(p.lease.execution_id, reason="no")),
    "override_completes": writes("id", lambda e, p: e.override_completes([p.lease.execution_id])),
    "override_complete": writes("id", lambda e, p: e.override_complete(p.lease.execution_id)),
    "override_fails": writes(
        "id", lambda e, p: e.override_fails([p.lease.execution_id], reason="no")
    ),
    "override_fail": writes("id", lambda e, p: e.override_fail(p.lease.execution_id, reason="no")),
    "override_delays": writes(
        "id", lambda e, p: e.override_delays([p.lease.execution_id], delay=60)
    ),
    "override_delay": writes("id", lambda e, p: e.override_delay(p.lease.execution_id, delay=60)),
    "change_priorities": writes("id", lambda e, p: e.change_priorities([p.waiting], 7)),
    "change_priority": writes("id", lambda e, p: e.change_priority(p.waiting, 7)),
    "block_executions_for_admission": writes(
        "id", lambda e, p: e.block_executions_for_admission([p.waiting], "paused_by_operator")
    ),
    "block_execution_for_admission": writes(
        "id", lambda e, p: e.block_execution_for_admission(p.waiting, "paused_by_operator")
    ),
    "unblock_executions": writes("id", lambda e, p: e.unblock_executions([p.blocked])),
    "unblock_execution": writes("id", lambda e, p: e.unblock_execution(p.blocked)),
    "wake_executions": writes("id", lambda e, p: e.wake_executions([p.waiting])),
    "wake_execution": writes("id", lambda e, p: e.wake_execution(p.waiting)),
    "set_execution_tag": writes("id", lambda e, p: e.set_execution_tag(p.waiting, "a.b", "c")),
    "cancel_flow": writes("id", lambda e, p: e.cancel_flow(p.flow_id)),
    "replay_flow": writes("id", lambda e, p: e.replay_flow(p.lacking)),
    # Grants.
    "claim_for_worker": writes(
        "namespace", lambda e, p: e.claim_for_worker(**_scheduler(p), namespace=p.namespace)
    ),
    "issue_claim_grant": writes("id", lambda e, p: e.issue_claim_grant(p.waiting, **_scheduler(p))),
    "issue_reclaim_grant": writes(
        "id", lambda e, p: e.issue_reclaim_grant(p.lease.execution_id, **_scheduler(p))
    ),
    "issue_grant_and_claim": writes(
        "id", lambda e, p: e.issue_grant_and_claim(p.waiting, lane_id=LANE, lease_ttl=30)
    ),
    "verify_grant": writes("id", _verify),
    "claim_execution": writes(
        "id", lambda e, p: e.claim_execution(p.waiting, expected_attempt_index=0, **_worker(p))
    ),
    "claim_resumed_execution": writes(
        "id", lambda e, p: e.claim_resumed_execution(p.waiting, **_worker(p))
    ),
    "claim_from_resume_grant": writes("id", _claim_from_grant),
    "reclaim_execution": writes(
        "id", lambda e, p: e.reclaim_execution(p.lease.execution_id, **_worker(p))
    ),
    # Flows.
    "create_flow": writes(
        "namespace", lambda e, p: e.create_flow(uuid4(), flow_kind="x", namespace=p.namespace)
    ),
    "add_execution_to_flow": writes(
        "id", lambda e, p: e.add_execution_to_flow(p.flow_id, p.stranger)
    ),
    "submit_flows": writes("namespace", lambda e, p: e.submit_flows([new_flow(p.namespace)])),
    "submit_flow": writes("namespace", lambda e, p: e.submit_flow(new_flow(p.namespace))),
    "cancel_flow_header": writes("id", lambda e, p: e.cancel_flow_header(p.flow_id)),
    "ack_cancel_member": writes("id", lambda e, p: e.ack_cancel_member(p.flow_id, p.upstream)),
    "describe_flow": reads("id", lambda e, p: e.describe_flow(p.flow_id)),
    "get_flow_namespace": reads("id", lambda e, p: e.get_flow_namespace(p.flow_id)),
    "list_flows": reads("namespace", lambda e, p: e.list_flows(namespace=p.namespace)),
    "list_flow_members": reads("id", lambda e, p: e.list_flow_members(p.flow_id)),
    "read_flow_states": reads("id", lambda e, p: e.read_flow_states(p.flow_id)),
    "read_flow_outcomes": reads("id", lambda e, p: e.read_flow_outcomes([p.flow_id])),
    "describe_edge": reads("id", lambda e, p: e.describe_edge(p.flow_id, p.edge_id)),
    "list_edges": reads("id", lambda e, p: e.list_edges(p.flow_id, outgoing_from=p.upstream)),
    "project_flow_summary": writes("id", lambda e, p: e.project_flow_summary(p.flow_id)),
    "set_flow_tag": writes("id", lambda e, p: e.set_flow_tag(p.flow_id, "a.b", "c")),
    "get_flow_tag": reads("id", lambda e, p: e.get_flow_tag(p.flow_id, "a.b")),
    # Joins.
    "stage_dependency_edge": writes(
        "id",
        lambda e, p: e.stage_dependency_edge(
            p.flow_id, uuid4(), p.upstream, p.downstream, expected_graph_revision=3
        ),
    ),
    "apply_dependency_to_child": writes(
        "id", lambda e, p: e.apply_dependency_to_child(p.flow_id, p.edge_id)
    ),
    "set_edge_group_policy": writes(
        "id", lambda e, p: e.set_edge_group_policy(p.flow_id, p.downstream, AllOf())
    ),
    "evaluate_flow_eligibility": reads("id", lambda e, p: e.evaluate_flow_eligibility(p.upstream)),
    "promote_blocked_to_eligible": writes(
        "id", lambda e, p: e.promote_blocked_to_eligible(p.downstream)
    ),
    "dispatch": writes("all", lambda e, _: e.dispatch()),
    "read_upstream_results": reads("id", lambda e, p: e.read_upstream_results(p.downstream)),
    "spawn_children": writes("id", lambda e, p: e.spawn_children(p.lease, **_spawned(p))),
    "spawn_apart": writes(
        "id",
        lambda e, p: e.spawn_apart(p.lease, {_spawned(p)["group"]: _spawned(p)["children"][0]}),
    ),
    "read_join": reads("id", lambda e, p: e.read_join(children_group_id(p.waiting, 0))),
    "read_window": reads(  # but for a parent that was replayed, whose joins are reopened
        "id",
        lambda e, p: e.read_window(
            p.lease, {_spawned(p)["group"]: _spawned(p)["children"][0].execution_id}
        ),
    ),
    # The journal.
    "record_entries": writes("id", lambda e, p: e.record_entries([entry(p.lease, 1)])),
    "delay_with_entries": writes(
        "id",
        lambda e, p: e.delay_with_entries(
            [Sleeper(request=DelayRequest(lease=p.lease, delay=60), entries=[entry(p.lease, 1)])]
        ),
    ),
    "read_journal": reads("id", lambda e, p: e.read_journal([p.ended])),
    "wait_for_entries": writes("id", lambda e, p: e.wait_for_entries(p.lease)),
    "restart_execution": writes("id", lambda e, p: e.restart_execution(p.lease, payload=b"{}")),
    "arm_compensation": writes("id", lambda e, p: e.arm_compensation(_arming(p), refund())),
    "disarm_compensations": writes("id", lambda e, p: e.disarm_compensations(_arming(p))),
    "read_compensation": reads("id", lambda e, p: e.read_compensation(p.ended)),
    "list_steps": reads("id", lambda e, p: e.list_steps(p.ended)),
    # Streams.
    "append_frames": writes(
        "id", lambda e, p: e.append_frames([Append(lease=p.lease, frames=[frame()])])
    ),
    "append_frame": writes("id", lambda e, p: e.append_frame(p.lease, frame())),
    "read_stream": reads("id", lambda e, p: e.read_stream(p.lease.execution_id, 0)),
    "tail_stream": reads("id", lambda e, p: e.tail_stream(p.lease.execution_id, 0)),
    "follow_stream": reads("id", _followed),
    "read_summary": reads("id", lambda e, p: e.read_summary(p.lease.execution_id, 0)),
    "read_state": reads("id", lambda e, p: e.read_state(p.lease.execution_id)),
    # Suspensions, and signals by name.
    "suspend": writes("id", lambda e, p: e.suspend([ask(p.lease)])),
    "try_suspend": writes("id", lambda e, p: e.try_suspend(ask(p.lease))),
    "suspend_by_triple": writes(
        "id", lambda e, p: e.suspend_by_triple(p.lease.execution_id, **_triple(p))
    ),
    "expire_suspension": writes("id", lambda e, p: e.expire_suspension(p.suspended.execution_id)),
    "resume_executions": writes("id", lambda e, p: e.resume_executions([p.suspended.execution_id])),
    "resume_execution": writes("id", lambda e, p: e.resume_execution(p.suspended.execution_id)),
    "list_suspended": reads(
        "all",
        lambda e, p: e.list_suspended(PartitionKey("fp", p.suspended.execution_id.partition_key)),
    ),
    "observe_signals": reads("id", lambda e, p: e.observe_signals(p.lease)),
    "send_signals": writes("id", lambda e, p: e.send_signals([_signal(p)])),
    "send_signal": writes("id", lambda e, p: e.send_signal(_signal(p))),
    "read_inbox": reads("id", lambda e, p: e.read_inbox([p.waiting])),
    # Waitpoints, and the signals that outsiders deliver to them.
    "create_waitpoint": writes("id", lambda e, p: e.create_waitpoint(p.lease, "a", expires_in=60)),
    "close_waitpoints": writes(
        "id",
        lambda e, p: e.close_waitpoints(p.suspended.execution_id, [p.waitpoint.waitpoint_id]),
    ),
    "close_waitpoint": writes("id", lambda e, p: e.close_waitpoint(*_opened(p))),
    "deliver_signal": writes(
        "id", lambda e, p: e.deliver_signal(*_opened(p), p.waitpoint.token, "go")
    ),
    "deliver_approval_signal": writes(
        "id",
        lambda e, p: e.deliver_approval_signal(
            *_opened(p), "approved", lane_id=LANE, idempotency_suffix="x"
        ),
    ),
    "read_waitpoints": reads(
        "id",
        lambda e, p: e.read_waitpoints(p.suspended.execution_id, [p.waitpoint.waitpoint_id]),
    ),
    "read_waitpoint_token": reads("id", lambda e, p: e.read_waitpoint_token(*_opened(p))),
    "read_question": writes(  # of a wrong token it keeps the time
        "id", lambda e, p: e.read_question(*_opened(p), p.waitpoint.token)
    ),
    "list_pending_waitpoints": reads(
        "id", lambda e, p: e.list_pending_waitpoints(p.suspended.execution_id)
    ),
    "list_open_waitpoints": reads(
        "namespace", lambda e, p: e.list_open_waitpoints(namespace=p.namespace)
    ),
    # Reads of executions.
    "describe_execution": reads("id", lambda e, p: e.describe_execution(p.ended)),
    "read_execution_state": reads("id", lambda e, p: e.read_execution_state(p.ended)),
    "read_execution_info": reads("id", lambda e, p: e.read_execution_info(p.ended)),
    "read_execution_context": reads("id", lambda e, p: e.read_execution_context(p.ended)),
    "get_execution_result": reads("id", lambda e, p: e.get_execution_result(p.ended)),
    "read_outcomes": reads("id", lambda e, p: e.read_outcomes([p.ended])),
    "look_at_waits": reads("id", lambda e, p: e.look_at_waits([p.suspended.execution_id])),
    "list_attempts": reads("id", lambda e, p: e.list_attempts(p.ended)),
    "list_executions": reads(
        "all", lambda e, p: e.list_executions(PartitionKey("fp", p.ended.partition_key))
    ),
    "list_unserved_routes": reads(
        "namespace", lambda e, p: e.list_unserved_routes(namespace=p.namespace)
    ),
    "list_events_of": reads(
        "namespace",
        lambda e, p: e.list_events_of(
            ["operator", "lease"], filter=EventFilter(namespace=p.namespace)
        ),
    ),
    "read_activity": reads(
        "namespace", lambda e, p: e.read_activity(window=3600, namespace=p.namespace)
    ),
    "count_ended": reads(
        "namespace", lambda e, p: e.count_ended(window=3600, namespace=p.namespace)
    ),
    "read_lane_activity": reads(
        "namespace", lambda e, p: e.read_lane_activity(window=3600, namespace=p.namespace)
    ),
    "start_bulk_action": writes("namespace", _started_bulk),
    "preview_bulk_action": reads(
        "namespace", lambda e, p: e.preview_bulk_action("cancel", _search(p))
    ),
    "read_bulk_action": reads("namespace", _bulk_action),
    "list_bulk_actions": reads(
        "namespace", lambda e, p: e.list_bulk_actions(namespace=p.namespace)
    ),
    "list_bulk_targets": reads("id", lambda e, _: e.list_bulk_targets(uuid4())),
    "stop_bulk_action": writes("namespace", _stopped_bulk),
    "save_query": writes(
        "namespace", lambda e, p: e.save_query("a", "b", owner="c", namespace=p.namespace)
    ),
    "list_queries": reads(
        "namespace", lambda e, p: e.list_queries(owner="c", namespace=p.namespace)
    ),
    "forget_query": writes("namespace", _forgotten_query),
    "list_signals": reads("id", lambda e, p: e.list_signals(p.waiting)),
    "list_closed_waitpoints": reads(
        "namespace", lambda e, p: e.list_closed_waitpoints("expired", namespace=p.namespace)
    ),
    "list_reviews": reads("namespace", lambda e, p: e.list_reviews(namespace=p.namespace)),
    "list_spend": reads("id", lambda e, p: e.list_spend(p.budget)),
    "list_own_spend": reads("id", lambda e, p: e.list_own_spend(p.ended)),
    "list_held_back": reads("id", lambda e, p: e.list_held_back(p.budget)),
    "read_attached": reads("id", lambda e, p: e.read_attached(p.budget)),
    "read_budget_history": reads("id", lambda e, p: e.read_budget_history(p.budget, window=3600)),
    "read_policy": reads("id", lambda e, p: e.read_policy(p.ended)),
    "count_waitpoints_by_kid": reads("all", lambda e, _: e.count_waitpoints_by_kid()),
    "count_matching": reads("namespace", lambda e, p: e.count_matching(_search(p))),
    "group_failures": reads(
        "namespace", lambda e, p: e.group_failures(window=3600, namespace=p.namespace)
    ),
    "find_execution": reads(
        "namespace", lambda e, p: e.find_execution(p.waiting.uuid, namespace=p.namespace)
    ),
    "search_executions": reads("namespace", lambda e, p: e.search_executions(_search(p))),
    "locate_executions": reads(
        "namespace",
        lambda e, p: e.locate_executions([p.ended.uuid], namespace=p.namespace),
    ),
    "locate_execution_by_key": reads(
        "namespace", lambda e, p: e.locate_execution_by_key(p.namespace, p.key)
    ),
    "explain_execution": reads("id", lambda e, p: e.explain_execution(p.waiting)),
    "read_current_attempt_index": reads("id", lambda e, p: e.read_current_attempt_index(p.ended)),
    "read_total_attempt_count": reads("id", lambda e, p: e.read_total_attempt_count(p.ended)),
    "get_execution_tag": reads("id", lambda e, p: e.get_execution_tag(p.ended, "a.b")),
    "read_namespaces": reads("id", lambda e, p: e.read_namespaces([p.ended])),
    "get_execution_namespace": reads("id", lambda e, p: e.get_execution_namespace(p.ended)),
    "resolve_execution_flow_id": reads("id", lambda e, p: e.resolve_execution_flow_id(p.upstream)),
    "read_exec_core_fields": reads(
        "id",
        lambda e, p: e.read_exec_core_fields(
            PartitionKey("fp", p.ended.partition_key), p.ended, ["public_state"]
        ),
    ),
    "list_expired_leases": reads(
        "namespace", lambda e, p: e.list_expired_leases(as_of=later(), namespace=p.namespace)
    ),
    "count_claimable": reads("namespace", lambda e, p: e.count_claimable(p.claimant)),
    "count_expiring_leases": reads(
        "namespace", lambda e, p: e.count_expiring_leases(p.claimant, within=LATER)
    ),
    # Events.
    "subscribe_completions": reads(
        "namespace",
        lambda e, p: first_events(e.subscribe_completions(FROM_START, EventFilter(p.namespace))),
    ),
    "subscribe_lease_history": reads(
        "namespace",
        lambda e, p: first_events(e.subscribe_lease_history(FROM_START, EventFilter(p.namespace))),
    ),
    "subscribe_operator_events": reads(
        "namespace",
        lambda e, p: first_events(
            e.subscribe_operator_events(FROM_START, EventFilter(p.namespace))
        ),
    ),
    "subscribe_signal_delivery": reads(
        "namespace",
        lambda e, p: first_events(
            e.subscribe_signal_delivery(FROM_START, EventFilter(p.namespace))
        ),
    ),
    "list_events": reads(
        "namespace",
        lambda e, p: e.list_events("lease", filter=EventFilter(p.namespace)),
    ),
    "list_ended_leases": reads(
        "namespace", lambda e, p: e.list_ended_leases("nobody", namespace=p.namespace)
    ),
    "read_lease_expiries": reads("id", lambda e, p: e.read_lease_expiries([p.ended])),
    "read_history": reads("id", lambda e, p: e.read_history(p.ended)),
    # Lanes, workers, retention, keys.
    "register_lanes": writes("all", lambda e, _: e.register_lanes(["new"], registered_by="x")),
    "list_lanes": reads("all", lambda e, _: e.list_lanes()),
    "read_gauges": reads("all", lambda e, _: e.read_gauges()),
    "read_usual_times": reads("all", lambda e, _: e.read_usual_times(["a"])),
    "count_by_state": reads("all", lambda e, _: e.count_by_state()),
    "count_by_lane": reads("all", lambda e, _: e.count_by_lane()),
    "list_namespaces": reads("all", lambda e, _: e.list_namespaces()),
    "set_lane_state": writes("all", lambda e, _: e.set_lane_state("aside", "paused")),
    "set_lane_retention": writes("all", lambda e, _: e.set_lane_retention("aside", 60)),
    "register_worker": writes(
        "namespace",
        lambda e, p: e.register_worker(
            worker_id="w",
            worker_instance_id=p.instance,
            lanes=(LANE,),
            liveness_ttl=60,
            namespace=p.namespace,
        ),
    ),
    "heartbeat_worker": writes(
        "namespace", lambda e, p: e.heartbeat_worker(p.instance, namespace=p.namespace)
    ),
    "mark_worker_dead": writes(
        "namespace",
        lambda e, p: e.mark_worker_dead(p.instance, reason="x", namespace=p.namespace),
    ),
    "find_unserved": reads("all", lambda e, p: e.find_unserved(p.namespace, [("job", LANE)])),
    "list_workers": reads("namespace", lambda e, p: e.list_workers(p.namespace)),
    "list_worker_events": reads("namespace", lambda e, p: e.list_worker_events(p.namespace)),
    "trim_retention": writes("namespace", lambda e, p: e.trim_retention(p.trim, now=later())),
    "count_trimmable": reads("namespace", lambda e, p: e.count_trimmable(p.trim, now=later())),
    "seed_waitpoint_hmac_secret": writes(
        "all", lambda e, _: e.seed_waitpoint_hmac_secret("k1", "ab" * 32)
    ),
    "rotate_waitpoint_hmac_secret_all": writes(
        "all", lambda e, _: e.rotate_waitpoint_hmac_secret_all("k2", "cd" * 32, 3600)
    ),
    "list_waitpoint_hmac_kids": reads("all", lambda e, _: e.list_waitpoint_hmac_kids()),
    "create_schedules": writes(
        "namespace", lambda e, p: e.create_schedules([_scheduled(p.namespace, "other")])
    ),
    "create_schedule": writes(
        "namespace", lambda e, p: e.create_schedule(_scheduled(p.namespace, "another"))
    ),
    "update_schedule": writes(
        "namespace", lambda e, p: e.update_schedule(_scheduled(p.namespace, catch_up=2))
    ),
    "pause_schedule": writes(
        "namespace", lambda e, p: e.pause_schedule("hourly", namespace=p.namespace)
    ),
    "resume_schedule": writes(
        "namespace", lambda e, p: e.resume_schedule("hourly", namespace=p.namespace)
    ),
    "trigger_schedule": writes(
        "namespace", lambda e, p: e.trigger_schedule("hourly", namespace=p.namespace)
    ),
    "backfill_schedule": writes(
        "namespace",
        lambda e, p: e.backfill_schedule(
            "hourly", later() - LATER - timedelta(hours=2), later() - LATER, namespace=p.namespace
        ),
    ),
    "sync_schedules": writes(
        "namespace",
        lambda e, p: e.sync_schedules(
            [_scheduled(p.namespace, "synced")], namespace=p.namespace, prune=True
        ),
    ),
    "diff_schedules": reads(
        "namespace",
        lambda e, p: e.diff_schedules(
            [_scheduled(p.namespace, f"missing in {p.namespace}")], namespace=p.namespace
        ),
    ),
    "get_schedule": reads(
        "namespace", lambda e, p: e.get_schedule("hourly", namespace=p.namespace)
    ),
    "list_schedules": reads("namespace", lambda e, p: e.list_schedules(namespace=p.namespace)),
    "count_schedules": reads("namespace", lambda e, p: e.count_schedules(namespace=p.namespace)),
    "list_schedule_fires": reads(
        "namespace", lambda e, p: e.list_schedule_fires("hourly", namespace=p.namespace)
    ),
    "preview_schedule": reads(
        "namespace", lambda e, p: e.preview_schedule("hourly", namespace=p.namespace)
    ),
    "explain_schedule": reads(
        "namespace", lambda e, p: e.explain_schedule("hourly", namespace=p.namespace)
    ),
    "delete_schedule": writes(
        "namespace", lambda e, p: e.delete_schedule("hourly", namespace=p.namespace)
    ),
    # Limits.
    "create_quota_policy": writes(
        "namespace", lambda e, p: e.create_quota_policy("other", LIMITS, namespace=p.namespace)
    ),
    "update_quota_policy": writes(
        "namespace", lambda e, p: e.update_quota_policy(LIMIT, LIMITS, namespace=p.namespace)
    ),
    "delete_quota_policy": writes(
        "namespace", lambda e, p: e.delete_quota_policy(LIMIT, namespace=p.namespace)
    ),
    "get_quota_policy": reads(
        "namespace", lambda e, p: e.get_quota_policy(LIMIT, namespace=p.namespace)
    ),
    "read_quota_policy_limits": reads(
        "namespace", lambda e, p: e.read_quota_policy_limits(LIMIT, namespace=p.namespace)
    ),
    "list_quota_policies": reads(
        "namespace", lambda e, p: e.list_quota_policies(namespace=p.namespace)
    ),
    "list_busiest_keys": reads(
        "namespace", lambda e, p: e.list_busiest_keys(LIMIT, namespace=p.namespace)
    ),
    "list_quota_keys": reads(
        "namespace", lambda e, p: e.list_quota_keys(LIMIT, namespace=p.namespace)
    ),
    "check_admission": writes(
        "namespace", lambda e, p: e.check_admission(LIMIT, p.blocked, **_admitted(p))
    ),
    "release_admission": writes(
        "namespace", lambda e, p: e.release_admission(LIMIT, p.waiting, namespace=p.namespace)
    ),
    "unblock_keys_of": writes("id", lambda e, p: e.unblock_keys_of([p.waiting])),
    "unblock_keys": writes(
        "id", lambda e, p: e.unblock_keys([quota_key_id(p.quota_policy_id, p.limit_key)])
    ),
    # Budgets, which all namespaces share.
    "create_budget": writes("all", lambda e, _: e.create_budget(uuid4(), **_budgeted())),
    "update_budget_limits": writes(
        "id", lambda e, p: e.update_budget_limits(p.budget, hard_limits={"tokens": 20})
    ),
    "reset_budget": writes("id", lambda e, p: e.reset_budget(p.budget)),
    "report_usage": writes("id", lambda e, p: e.report_usage(p.lease, p.budget, {"tokens": 1})),
    "report_usage_admin": writes(
        "id", lambda e, p: e.report_usage_admin(p.budget, ["tokens"], [1])
    ),
    "record_spend": writes("id", lambda e, p: e.record_spend(p.budget, p.waiting, {"tokens": 1})),
    "release_budget": writes("id", lambda e, p: e.release_budget(p.budget, p.lease.execution_id)),
    "give_back": writes("id", lambda e, p: e.give_back(p.budget, p.lease.execution_id)),
    "get_budget_status": reads("id", lambda e, p: e.get_budget_status(p.budget)),
    "read_budget_usage_and_limits": reads(
        "id", lambda e, p: e.read_budget_usage_and_limits(p.budget)
    ),
    "list_budgets": reads("all", lambda e, _: e.list_budgets()),
    # Tokens of the server.
    "create_token": writes("all", lambda e, _: e.create_token("a", role="reader")),
    "revoke_token": writes("all", _revoke),
    "find_token": writes("all", lambda e, _: e.find_token(bytes(32))),  # notes when it was used
    "has_tokens": reads("all", lambda e, _: e.has_tokens()),
    "list_tokens": reads("all", lambda e, _: e.list_tokens()),
    "open_session": writes("all", lambda e, _: e.open_session(bytes(32))),
    "read_session": writes("all", lambda e, _: e.read_session("a")),  # notes when it was used
    "list_sessions": reads("all", lambda e, _: e.list_sessions(bytes(32))),
    "close_session": writes("all", lambda e, _: e.close_session(uuid4(), token_hash=bytes(32))),
}


def keyed(namespace: str, key: str, **fields: Any) -> NewExecution:
    return given.new(namespace=namespace, idempotency_key=key, **fields)


def unique(namespace: str, key: str) -> NewExecution:
    """The key is its own until it has ended."""
    return keyed(namespace, key, unique_until="ended")


def new_flow(namespace: str) -> NewFlow:
    """A flow of one member that does not exist yet."""
    flow_id = uuid4()
    only = member(flow_id, namespace=namespace)
    return NewFlow(flow_id=flow_id, flow_kind="x", members=[only], namespace=namespace)


def unclassified() -> set[str]:
    """The operations of `Engine` that are not on the tour, and stops that are none of them."""
    operations = {
        name
        for name, method in inspect.getmembers_static(Engine)
        if hasattr(method, "__wrapped__") and not isinstance(method, classmethod)
    }
    return operations ^ TOUR.keys()
