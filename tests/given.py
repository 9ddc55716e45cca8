"""Where a test begins: executions in a known state, made by the operations themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, Claimed, claim
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, RetryPolicy
from flowfabric.states import PublicState
from tests.db.facts import is_blocked

T = TypeVar("T")

WORKER = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))
OTHER = Claimant(worker_id="w", worker_instance_id="w-2", lanes=("default",))


def new(**fields: Any) -> NewExecution:
    """An execution to create; everything has a default."""
    fields.setdefault("execution_kind", "job")
    if "execution_id" not in fields:
        fields["execution_id"] = ExecutionId.mint(
            namespace=fields.get("namespace", "default"),
            idempotency_key=fields.get("idempotency_key"),
        )
    return NewExecution(**fields)


def retrying(max_retries: int = 3, **fields: Any) -> ExecutionPolicy:
    """A policy with retries."""
    return ExecutionPolicy(retry_policy=RetryPolicy(max_retries=max_retries, **fields))


async def created(db: Connection, **fields: Any) -> ExecutionId:
    """One execution that waits (or whatever the fields make of it)."""
    [answer] = await create_execution(db, [new(**fields)])
    return answer.execution_id


async def claimed_task(db: Connection, *, ttl: float = 30, **fields: Any) -> Claimed:
    """One execution that worker w-1 holds."""
    execution_id = await created(db, **fields)
    [claimed] = await claim(db, WORKER, ttl=ttl)
    assert claimed.lease.execution_id == execution_id
    return claimed


async def claimed(db: Connection, *, ttl: float = 30, **fields: Any) -> Lease:
    """The lease of one execution that worker w-1 holds."""
    return (await claimed_task(db, ttl=ttl, **fields)).lease


async def row(db: Connection, execution_id: ExecutionId) -> dict[str, Any]:
    """The execution's stored row."""
    record = await db.fetchrow(
        "SELECT * FROM ff.execution WHERE (partition_key, execution_id) = ($1, $2)",
        execution_id.partition_key,
        execution_id.uuid,
    )
    assert record is not None
    return dict(record)


async def vector(db: Connection, execution_id: ExecutionId) -> tuple[str, ...]:
    """phase / eligibility / blocking_reason / outcome / attempt_state / public_state."""
    stored = await row(db, execution_id)
    return tuple(
        stored[name]
        for name in (
            "lifecycle_phase",
            "eligibility_state",
            "blocking_reason",
            "terminal_outcome",
            "attempt_state",
            "public_state",
        )
    )


async def public_state(db: Connection, execution_id: ExecutionId) -> PublicState:
    return PublicState((await row(db, execution_id))["public_state"])


async def attempts(db: Connection, execution_id: ExecutionId) -> list[dict[str, Any]]:
    """The ledger rows of an execution, by index."""
    return [
        dict(record)
        for record in await db.fetch(
            "SELECT * FROM ff.attempt WHERE (partition_key, execution_id) = ($1, $2)"
            " ORDER BY attempt_index",
            execution_id.partition_key,
            execution_id.uuid,
        )
    ]


async def lease_events(db: Connection, execution_id: ExecutionId) -> list[tuple[str, str | None]]:
    """(event_type, reason) of an execution's lease history."""
    return [
        (record["event_type"], record["reason"])
        for record in await db.fetch(
            "SELECT event_type, reason FROM ff.lease_event"
            " WHERE execution_id = $1 ORDER BY event_id",
            execution_id.uuid,
        )
    ]


async def completion_events(db: Connection, execution_id: ExecutionId) -> list[str]:
    """The outcomes told of an execution, in order."""
    return [
        record["outcome"]
        for record in await db.fetch(
            "SELECT outcome FROM ff.completion_event WHERE execution_id = $1 ORDER BY event_id",
            execution_id.uuid,
        )
    ]


async def standing(db: Connection, execution_id: ExecutionId) -> str:
    """The vector as the drawn state machine spells it: `phase/…/attempt_state → public_state`."""
    *dimensions, public = await vector(db, execution_id)
    return f"{'/'.join(dimensions)} → {public}"


async def lease_history(db: Connection, execution_id: ExecutionId) -> list[dict[str, Any]]:
    """The lease events of an execution, whole."""
    return [
        dict(record)
        for record in await db.fetch(
            "SELECT * FROM ff.lease_event WHERE execution_id = $1 ORDER BY event_id",
            execution_id.uuid,
        )
    ]


WRITTEN = (
    "exec_core",
    "ready",
    "lease",
    "exec_body",
    "exec_tag",
    "exec_idempotency",
    "attempt",
    "completion_event",
    "lease_event",
    "route",
    "lane_registry",
    "worker_registry",
    "worker_registry_event",
    "operator_event",
    "claim_grant",
    "waitpoint_hmac",
    "flow_core",
    "flow_summary",
    "edge",
    "edge_group",
    "pending_cancel_groups",
    "cancel_backlog",
    "cancel_backlog_member",
    "journal",
    "suspension_current",
    "waitpoint_pending",
    "suspend_dedup",
    "signal_dedup",
    "signal_inbox",
    "signal_event",
    "stream_frame",
    "stream_meta",
    "stream_summary",
)
EVERYTHING = " UNION ALL ".join(
    f"SELECT '{table}' AS place, t::text AS line FROM ff.{table} t" for table in WRITTEN
)


async def everything(db: Connection) -> list[tuple[str, str]]:
    """Every row of every table that operations write; equal before and after means unchanged."""
    return sorted((record["place"], record["line"]) for record in await db.fetch(EVERYTHING))


async def blocked(
    db: Connection, conn: Connection, call: Coroutine[Any, Any, T]
) -> asyncio.Task[T]:
    """`call`, started on `conn` and seen (from `db`) to wait for a lock that another one holds."""
    task = asyncio.create_task(call)
    async with asyncio.timeout(10):
        while not await is_blocked(db, conn):
            assert not task.done(), "it did not wait"
    return task
