"""The drawn states: words of the enums only, and every arrow is one that the engine takes."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import resources
from typing import Any
from uuid import UUID

from flowfabric.conditions import AnyCondition, Single
from flowfabric.db.rows import Connection
from flowfabric.engine import grants, journal, lifecycle, operators, suspensions
from flowfabric.engine.budgets.create_budget import create_budget
from flowfabric.engine.budgets.report_usage_admin import report_usage_admin
from flowfabric.engine.grants.claim_execution import claim_execution
from flowfabric.engine.grants.claim_from_resume_grant import claim_from_resume_grant
from flowfabric.engine.grants.claim_resumed_execution import claim_resumed_execution
from flowfabric.engine.grants.issue_grant_and_claim import issue_grant_and_claim
from flowfabric.engine.grants.reclaim_execution import reclaim_execution
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.hold_dependents import hold_dependents
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import mark_lease_expired_if_due
from flowfabric.engine.lifecycle.park_members import park_members
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.promote_dependents import promote_dependents
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.release_after_trouble import (
    MAX_RELEASES,
    Trouble,
    release_after_trouble,
)
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.lifecycle.restart import restart
from flowfabric.engine.lifecycle.resume_waiting import resume_waiting
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.lifecycle.unblock_budgets import unblock_budgets
from flowfabric.engine.lifecycle.unblock_routes import unblock_routes
from flowfabric.engine.lifecycle.wait_children import ChildWait, wait_children
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.operators.override_complete import override_complete
from flowfabric.engine.operators.override_delay import override_delay
from flowfabric.engine.operators.override_fail import override_fail
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.resume_execution import resume_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.engine.operators.wake_execution import wake_execution
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.deliver_signal import deliver_signal
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendRequest, UsePending
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.states import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    PublicState,
    TerminalOutcome,
    TimeoutBehavior,
)
from flowfabric.testing import Clock
from tests import given
from tests.docs.pages import PAGES, blocks, name_of, quoted, rows, sections
from tests.engine.controls import execution
from tests.engine.grants import granted

STATES_PAGE = "docs/reference/states.md"
ARROW = re.compile(r"^ *(\S+) --> (\S+)(?: : (.+))?$", re.MULTILINE)
ENDS = "[*]"
STATE_DIAGRAM = "stateDiagram-v2"
STATES = {state.value for state in PublicState} | {ENDS}


def arrows(page: str = STATES_PAGE) -> list[tuple[str, str, str]]:
    """(from, to, operation) for each operation on each arrow of the page's state diagrams."""
    drawn = [each.text for each in blocks(page) if each.text.startswith(STATE_DIAGRAM)]
    return [
        (before, after, operation)
        for before, after, label in ARROW.findall("\n".join(drawn))
        for operation in (label.split(", ") if label else [""])
    ]


def operations() -> set[str]:
    """The coroutines of the packages that move executions."""
    modules = [
        importlib.import_module(f"{package.__name__}.{path.name.removesuffix('.py')}")
        for package in (lifecycle, operators, grants, suspensions, journal)
        for path in resources.files(package).iterdir()
        if path.name.endswith(".py") and not path.name.startswith("_")
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and value.__module__ == module.__name__
    }


def test_diagrams_use_only_words_of_the_enums() -> None:
    known = operations()
    for page in PAGES:
        for each in blocks(name_of(page)):
            if not each.text.startswith(STATE_DIAGRAM):
                continue
            for before, after, label in ARROW.findall(each.text):
                assert {before, after} <= STATES, each
                assert not label or set(label.split(", ")) <= known, each


def test_no_arrow_is_drawn_twice() -> None:
    assert len(arrows()) == len(set(arrows()))


def test_the_picture_for_newcomers_is_a_part_of_the_whole() -> None:
    picture = arrows("docs/concepts.md")

    assert len(picture) > 10
    assert set(picture) <= set(arrows())


def test_every_public_state_is_explained() -> None:
    listed = [quoted(cells[0])[0] for cells in rows(sections(STATES_PAGE, 2)["Public states"])]

    assert sorted({*listed, ENDS}) == sorted(STATES)


def test_every_state_is_drawn() -> None:
    assert {word for before, after, _ in arrows() for word in (before, after)} == STATES


def test_every_end_and_no_other_state_leads_to_nothing() -> None:
    drawn = {before for before, after, _ in arrows() if after == ENDS}

    assert drawn == {"completed", "failed", "cancelled", "expired", "skipped"}
    assert all(PublicState(state).is_terminal for state in drawn)


def test_the_vectors_use_only_words_of_the_enums() -> None:
    alphabets = [LifecyclePhase, EligibilityState, BlockingReason, TerminalOutcome, AttemptState]
    words = {word.value for alphabet in alphabets for word in alphabet}

    vectors = list(rows(sections(STATES_PAGE, 2)["Stored columns"]))
    assert len(vectors) == 26
    for _, vector in vectors:
        for alphabet, part in zip(alphabets, vector.split(" / "), strict=False):
            assert set(quoted(part)) <= words
            assert not quoted(part) or quoted(part)[0] in {word.value for word in alphabet}


# Every arrow is taken.

AT_ONCE = given.retrying(backoff=FixedBackoff(delay=0))
LATER = given.retrying(backoff=FixedBackoff(delay=60))
LIMIT = TimeoutPolicy(attempt_timeout=10)
HOLDER: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1"}


def limited(delay: float) -> ExecutionPolicy:
    backoff = FixedBackoff(delay=delay)
    return ExecutionPolicy(timeout_policy=LIMIT, retry_policy=RetryPolicy(backoff=backoff))


NO_RECLAIM = ExecutionPolicy(max_reclaim_count=0)
FLOW = UUID(int=7)

FIELDS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("active", "waiting", "fail"): {"policy": AT_ONCE},
    ("waiting", "rate_limited", "claim"): {"policy": ExecutionPolicy(budget_ids=("spent",))},
    ("rate_limited", "waiting", "unblock_budgets"): {
        "policy": ExecutionPolicy(budget_ids=("roomy",))
    },
    ("active", "delayed", "fail"): {"policy": LATER},
    ("active", "failed", "expire_leases"): {"policy": NO_RECLAIM},
    ("active", "failed", "mark_lease_expired_if_due"): {"policy": NO_RECLAIM},
    ("active", "expired", "expire_attempts"): {"policy": ExecutionPolicy(timeout_policy=LIMIT)},
    ("active", "waiting", "expire_attempts"): {"policy": limited(0)},
    ("active", "delayed", "expire_attempts"): {"policy": limited(60)},
    ("waiting_children", "delayed", "promote_dependents"): {"delay": 60},
}


async def running_child(db: Connection, lease: Lease) -> UUID:
    """The join of a child that runs."""
    return await db.fetchval(
        "INSERT INTO ff.edge_group"
        " (partition_key, flow_id, group_id, waiter_eid, waits_as, running_count)"
        " VALUES ($1, $2, gen_random_uuid(), $3, 'children', 1) RETURNING group_id",
        lease.execution_id.partition_key,
        FLOW,
        lease.execution_id.uuid,
    )


async def wait_for_a_child(db: Connection, lease: Lease) -> object:
    """The holder puts its attempt down until a child ends, which runs."""
    wait = await running_child(db, lease)
    return await wait_children(
        db, [ChildWait(lease=lease, groups=(GroupId(lease.execution_id.partition_key, wait),))]
    )


ON_TIMEOUT = {"failed": "fail", "cancelled": "cancel", "expired": "expire"}


async def suspend_for_anything(db: Connection, lease: Lease, after: str = "") -> object:
    """The holder waits for a signal, a waitpoint or a child; its timeout leads to `after`."""
    waitpoint = await create_waitpoint(db, lease, "door", expires_in=10**6)
    now = await db.fetchval("SELECT to_timestamp(ff.now_ms() / 1000.0)")
    request = SuspendRequest(
        lease=lease,
        bindings=(UsePending(waitpoint_id=waitpoint.waitpoint_id),),
        condition=AnyCondition((Single("door"),)),
        timeout_at=now + timedelta(seconds=60),
        timeout_behavior=TimeoutBehavior(ON_TIMEOUT.get(after, TimeoutBehavior.AUTO_RESUME)),
        keeps_waitpoints=True,
        awaits_signals=("go",),
        signals_read=0,
        awaits_joins=(await running_child(db, lease),),
    )
    return await suspend(db, [request])


async def signal_the_waitpoint(db: Connection, execution_id: ExecutionId) -> object:
    [row] = await db.fetch("SELECT waitpoint_id, token FROM ff.waitpoint_pending")
    return await deliver_signal(db, execution_id, row["waitpoint_id"], row["token"], "open")


async def decide_the_join(db: Connection, execution_id: ExecutionId) -> object:
    [row] = await db.fetch("SELECT group_id FROM ff.edge_group")
    return await resume_waiting(db, [(execution_id, row["group_id"])])


MOVES: dict[str, Callable[[Connection, Lease], Awaitable[object]]] = {
    "renew": lambda db, lease: renew(db, [lease], ttl=30),
    "progress": lambda db, lease: progress(db, lease, percent=1),
    "complete": lambda db, lease: complete(db, [Completion(lease)]),
    "fail": lambda db, lease: fail(db, [Failure(lease=lease, reason="why")]),
    "cancel": lambda db, lease: cancel(db, [Cancellation(lease, "why")]),
    "release": lambda db, lease: release(db, [lease]),
    "delay": lambda db, lease: delay(db, [DelayRequest(lease=lease, delay=60)]),
    "release_after_trouble": lambda db, lease: release_after_trouble(
        db, [Trouble(lease=lease, reason="why")]
    ),
    "wait_children": lambda db, lease: wait_for_a_child(db, lease),
    "suspend": lambda db, lease: suspend_for_anything(db, lease),
    "restart_execution": lambda db, lease: restart_execution(db, lease, payload=b"{}"),
}
CONTROLS: dict[str, Callable[[Connection, ExecutionId], Awaitable[object]]] = {
    "claim": lambda db, _: claim(db, given.WORKER, ttl=30),
    "cancel_execution": lambda db, each: cancel_execution(db, each, reason="why"),
    "revoke_lease": lambda db, each: revoke_lease(db, each, reason="why"),
    "override_complete": override_complete,
    "override_fail": lambda db, each: override_fail(db, each, reason="why"),
    "override_delay": lambda db, each: override_delay(db, each, delay=60),
    "change_priority": lambda db, each: change_priority(db, each, 7),
    "promote_dependents": lambda db, each: promote_dependents(db, [each]),
    "hold_dependents": lambda db, each: hold_dependents(db, [each]),
    "park_members": lambda db, each: park_members(db, [each], also_running=False),
    "terminalize": lambda db, each: terminalize(db, [each], outcome=TerminalOutcome.SKIPPED),
    "unblock_execution": unblock_execution,
    "wake_execution": wake_execution,
    "send_signal": lambda db, each: send_signal(db, NewSignal(execution_id=each, signal_name="go")),
    "deliver_signal": signal_the_waitpoint,
    "resume_waiting": decide_the_join,
    "mark_lease_expired_if_due": mark_lease_expired_if_due,
    "claim_execution": lambda db, each: claim_execution(
        db, each, **HOLDER, expected_attempt_index=0, lease_ttl=30
    ),
    "claim_resumed_execution": lambda db, each: claim_resumed_execution(
        db, each, **HOLDER, lease_ttl=30
    ),
    "claim_from_resume_grant": lambda db, each: claim_by_grant(db, each),
    "issue_grant_and_claim": lambda db, each: issue_grant_and_claim(
        db, each, lane_id="default", lease_ttl=30
    ),
}
SWEEPS = {
    "promote_due": (promote_due, 60),
    "expire_leases": (expire_leases, 30),
    "expire_attempts": (expire_attempts, 10),
    "expire_executions": (expire_executions, 3600),
    "expire_suspensions": (expire_suspensions, 60),
    "unblock_routes": (unblock_routes, 0),
    "unblock_budgets": (unblock_budgets, 0),
    "end_parked_members": (end_parked_members, 0),
}
HELD_BACK = {
    "unblock_execution": "paused_by_operator",
    "unblock_routes": "waiting_for_capable_worker",
}


async def begin(
    db: Connection, state: str, after: str = "", **fields: Any
) -> tuple[ExecutionId, Lease | None]:
    """An execution in that state, and its lease if it has one."""
    match state:
        case "suspended" | "resumable":
            lease = await given.claimed(db, **fields)
            await suspend_for_anything(db, lease, after)
            if state == "resumable":
                await resume_execution(db, lease.execution_id)
            return lease.execution_id, None
        case "active":
            lease = await given.claimed(db, **fields)
            return lease.execution_id, lease
        case "completed" | "failed" | "cancelled" | "expired":
            return await execution(db, state, **fields), None
        case "waiting_children":
            return await given.created(db, hold=True, flow_id=FLOW, **fields), None
        case "skipped":
            skipped = await given.created(db, hold=True, **fields)
            await terminalize(db, [skipped], outcome=TerminalOutcome.SKIPPED)
            return skipped, None
        case "delayed":
            return await given.created(db, delay=60, **fields), None
        case "rate_limited":
            limited_ = await given.created(db, **fields)
            why = "waiting_for_budget" if "policy" in fields else "waiting_for_quota"
            await block_execution_for_admission(db, limited_, why)
            return limited_, None
        case _:
            return await given.created(db, **fields), None


async def lost(db: Connection, clock: Clock, arrow: tuple[str, str, str]) -> ExecutionId:
    """An execution whose lease ran out, with the grant that the operation of the arrow needs."""
    before, _, operation = arrow
    lease = await granted.lost(db, clock, **FIELDS.get(arrow, {}))
    if before == "waiting":
        await expire_leases(db, limit=1)
    if operation == "claim_resumed_execution":
        await granted.claim_granted(db, lease.execution_id)
    if operation == "reclaim_execution":
        await granted.reclaim_granted(db, lease.execution_id)
    return lease.execution_id


async def claim_by_grant(db: Connection, execution_id: ExecutionId) -> None:
    """An interrupted attempt goes on with a grant, of the kind that its execution can have."""
    runs = await given.public_state(db, execution_id) == "active"
    grant = await (granted.reclaim_granted if runs else granted.claim_granted)(db, execution_id)
    await claim_from_resume_grant(db, grant, **HOLDER, lease_ttl=30)


async def stand(
    db: Connection, clock: Clock, arrow: tuple[str, str, str]
) -> tuple[ExecutionId, Lease | None]:
    """An execution from which the arrow can be taken, alone in the database."""
    for table in (
        *("exec_core", "exec_body", "attempt", "ready", "lease", "edge_group"),
        *("suspension_current", "waitpoint_pending"),
    ):
        await db.execute(f"DELETE FROM ff.{table}")
    before, after, operation = arrow
    if arrow == ("delayed", "resumable", "promote_due"):
        execution_id, _ = await begin(db, "suspended")
        await resume_execution(db, execution_id, delay=60)
        return execution_id, None
    if arrow == ("waiting", "resumable", "unblock_execution"):
        execution_id, _ = await begin(db, "resumable")
        await block_execution_for_admission(db, execution_id, HELD_BACK[operation])
        return execution_id, None
    if before == "resumable" and operation == "claim_resumed_execution":
        execution_id, _ = await begin(db, before)
        await granted.claim_granted(db, execution_id)
        return execution_id, None
    if before != "resumable" and operation in (
        *("claim_resumed_execution", "claim_from_resume_grant"),
        *("reclaim_execution", "mark_lease_expired_if_due"),
    ):
        return await lost(db, clock, arrow), None
    more: dict[str, Any] = {"deadline": 3600} if operation == "expire_executions" else {}
    if operation in ("park_members", "end_parked_members") and before != "waiting_children":
        more = {"flow_id": FLOW}
    execution_id, lease = await begin(db, before, after, **more, **FIELDS.get(arrow, {}))
    if arrow == ("active", "failed", "release_after_trouble"):
        await db.execute("UPDATE ff.exec_core SET infra_release_count = $1", MAX_RELEASES)
    if operation == "claim_execution":
        await granted.claim_granted(db, execution_id)
    if operation == "end_parked_members":
        await park_members(db, [execution_id], also_running=False)
    if operation in HELD_BACK and before == "waiting":
        await block_execution_for_admission(db, execution_id, HELD_BACK[operation])
    return execution_id, lease


async def take(db: Connection, clock: Clock, arrow: tuple[str, str, str]) -> str:
    """Where the operation of the arrow leads from where it begins."""
    before, after, operation = arrow
    if operation == "create_execution":
        execution_id, _ = await begin(db, after)
        return await given.public_state(db, execution_id)
    execution_id, lease = await stand(db, clock, arrow)
    assert await given.public_state(db, execution_id) == before

    if operation in SWEEPS:
        sweep, seconds = SWEEPS[operation]
        await clock.advance(seconds)
        assert await sweep(db, 10) == 1, arrow
    elif operation in CONTROLS:
        await CONTROLS[operation](db, execution_id)
    elif operation == "resume_execution":
        await resume_execution(db, execution_id, delay=60 if after == "delayed" else 0)
    elif operation == "replay_execution":
        if before == "skipped":  # as a member of a flow
            await restart(db, [execution_id], waiting={execution_id})
        else:
            await replay_execution(db, execution_id)
    elif operation == "block_execution_for_admission":
        why = "waiting_for_quota" if after == "rate_limited" else "paused_by_operator"
        await block_execution_for_admission(db, execution_id, why)
    elif operation == "reclaim_execution":
        cap = 0 if after == "failed" else None
        await reclaim_execution(db, execution_id, **HOLDER, lease_ttl=30, max_reclaim_count=cap)
    else:
        assert lease is not None
        await MOVES[operation](db, lease)
    return await given.public_state(db, execution_id)


async def test_every_arrow_is_what_the_engine_does(db: Connection, clock: Clock) -> None:
    drawn = [arrow for arrow in arrows() if arrow[1] != ENDS]
    await granted.keyed(db)
    await register_worker(
        db, worker_id="w", worker_instance_id="w-1", lanes=["default"], liveness_ttl=10**6
    )

    await create_budget(db, "spent", dimensions=["tokens"], hard_limits=[1], soft_limits=[0])
    await report_usage_admin(db, "spent", ["tokens"], [1])

    taken = [(arrow[0], await take(db, clock, arrow), arrow[2]) for arrow in drawn]

    assert taken == drawn
