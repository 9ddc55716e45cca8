"""absent → runnable: executions exist, once for each id and for each live idempotency key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import (
    ExecutionId,
    check_lane,
    check_tag_key,
    check_text,
    key_partition,
    storable_text,
)
from flowfabric.instants import epoch_ms
from flowfabric.policy import (
    DAY_MS,
    ExecutionPolicy,
    check_capabilities,
    clamp_priority,
    milliseconds,
)
from flowfabric.states import PublicState

MAX_PAYLOAD: Final = 64 * 1024 * 1024

CREATE_EXECUTION: Final[LiteralString] = """
-- lifecycle.create_execution
SELECT ordinal, partition_key, execution_id, created, public_state
  FROM ff.create_execution(
       %(shape_namespace)s::text[], %(shape_lane_id)s::text[], %(shape_execution_kind)s::text[],
       %(shape_required_capabilities)s::text[], %(shape_payload_encoding)s::text[],
       %(shape_creator_identity)s::text[], %(shape_policy)s::jsonb[],
       %(partition_key)s::smallint[], %(execution_id)s::uuid[], %(shape)s::integer[],
       %(payload)s::bytea[], %(priority)s::integer[], %(delay_ms)s::bigint[],
       %(delay_until_ms)s::bigint[], %(deadline_ms)s::bigint[], %(deadline_at_ms)s::bigint[],
       %(idempotency_key)s::text[], %(dedup_window_ms)s::bigint[], %(tags)s::jsonb[],
       %(now_ms)s::bigint)
"""


class NewExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution to create. `delay` and `deadline` count from the database's clock."""

    execution_id: ExecutionId
    execution_kind: str
    lane_id: str = "default"
    namespace: str = "default"
    input_payload: bytes = b""
    payload_encoding: str | None = None
    priority: int = 0
    creator_identity: str | None = None
    idempotency_key: str | None = None
    tags: Mapping[str, str] = {}
    required_capabilities: tuple[str, ...] = ()
    policy: ExecutionPolicy | None = None
    delay: float | timedelta | None = None
    delay_until: datetime | None = None
    deadline: float | timedelta | None = None
    execution_deadline_at: datetime | None = None


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The execution exists since this call."""

    execution_id: ExecutionId
    public_state: PublicState


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """The id, or the key, was taken: this is the execution that has it. Nothing was changed."""

    execution_id: ExecutionId


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    partition_key: int
    execution_id: UUID
    created: bool
    public_state: str | None


async def create_execution(
    conn: Connection,
    executions: Sequence[NewExecution],
    *,
    partitions: int = 256,
    now: datetime | None = None,
) -> list[Created | Duplicate]:
    """Create what is new, in the order given; the same key or id again answers `Duplicate`.

    Everything is validated before anything is written: a bad id, lane, policy, capability, tag key
    or text raises `ValidationError` and no execution of the batch exists.
    """
    if not executions:
        return []
    columns = creation_columns(executions, partitions=partitions)
    rows = await fetch_all(
        conn, CREATE_EXECUTION, _Row, now_ms=None if now is None else epoch_ms(now), **columns
    )
    return creation_answers(rows)


def creation_answers(rows: Sequence[_Row]) -> list[Created | Duplicate]:
    """The answers in the order of the request; a repeat within the batch is a duplicate too."""
    answers: list[Created | Duplicate] = []
    created: set[UUID] = set()
    for row in sorted(rows, key=_ordinal):
        execution_id = ExecutionId(row.partition_key, row.execution_id)
        if row.created and row.execution_id not in created:
            created.add(row.execution_id)
            state = PublicState.DELAYED if row.public_state == "delayed" else PublicState.WAITING
            answers.append(Created(execution_id=execution_id, public_state=state))
        else:
            answers.append(Duplicate(execution_id=execution_id))
    return answers


def _ordinal(row: _Row) -> int:
    return row.ordinal


def creation_columns(
    executions: Sequence[NewExecution], *, partitions: int = 256
) -> dict[str, object]:
    """The parameters of the statement: what a batch repeats once, the rest as parallel arrays."""
    shapes: dict[tuple[object, ...], int] = {}
    of_row: list[int] = []
    for new in executions:
        key = (
            new.namespace,
            new.lane_id,
            new.execution_kind,
            new.required_capabilities,
            new.payload_encoding,
            new.creator_identity,
            new.policy,
        )
        number = shapes.get(key)
        if number is None:
            number = shapes[key] = len(shapes) + 1
        of_row.append(number)
    checked = [_checked_shape(*key) for key in shapes]  # pyright: ignore[reportArgumentType]  the tuple above, field by field
    for new in executions:
        _check_row(new, partitions)
    return {
        "shape_namespace": [shape.namespace for shape in checked],
        "shape_lane_id": [shape.lane_id for shape in checked],
        "shape_execution_kind": [shape.execution_kind for shape in checked],
        "shape_required_capabilities": [shape.required_capabilities for shape in checked],
        "shape_payload_encoding": [shape.payload_encoding for shape in checked],
        "shape_creator_identity": [shape.creator_identity for shape in checked],
        "shape_policy": [shape.policy for shape in checked],
        "partition_key": [new.execution_id.partition_key for new in executions],
        "execution_id": [new.execution_id.uuid for new in executions],
        "shape": of_row,
        "payload": [new.input_payload for new in executions],
        "priority": _column(executions, lambda new: clamp_priority(new.priority) or None),
        "delay_ms": _column(executions, lambda new: _duration(new.delay)),
        "delay_until_ms": _column(executions, _delay_until_ms),
        "deadline_ms": _column(executions, lambda new: _duration(new.deadline)),
        "deadline_at_ms": _column(executions, lambda new: _instant(new.execution_deadline_at)),
        "idempotency_key": _column(executions, lambda new: new.idempotency_key),
        "dedup_window_ms": _column(executions, _dedup_window_ms),
        "tags": _column(executions, _tags),
    }


class _Shape(msgspec.Struct, frozen=True):
    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: str
    payload_encoding: str | None
    creator_identity: str | None
    policy: str | None


def _checked_shape(
    namespace: str,
    lane_id: str,
    execution_kind: str,
    required_capabilities: tuple[str, ...],
    payload_encoding: str | None,
    creator_identity: str | None,
    policy: ExecutionPolicy | None,
) -> _Shape:
    check_text(namespace, field="namespace")
    check_lane(lane_id)
    check_text(execution_kind, field="execution_kind")
    if payload_encoding is not None:
        check_text(payload_encoding, field="payload_encoding")
    if creator_identity is not None:
        check_text(creator_identity, field="creator_identity", at_most=1024)
    return _Shape(
        namespace,
        lane_id,
        execution_kind,
        ",".join(check_capabilities(required_capabilities, side="required")),
        payload_encoding,
        creator_identity,
        None if policy is None else ExecutionPolicy.parse(policy).as_json().decode(),
    )


def _check_row(new: NewExecution, partitions: int) -> None:
    partition_key = new.execution_id.partition_key
    if not 0 <= partition_key < partitions:
        raise invalid_input(
            "execution_id", str(new.execution_id), f"partition must be below {partitions}"
        )
    if new.idempotency_key is not None:
        check_text(new.idempotency_key, field="idempotency_key", at_most=1024)
        home = key_partition(new.namespace, new.idempotency_key, partitions)
        if partition_key != home:
            raise invalid_input(
                "execution_id", str(new.execution_id), f"its idempotency key lives in {{fp:{home}}}"
            )
    for key, value in new.tags.items():
        check_tag_key(key)
        storable_text(value, field=f"tag {key}")
    if len(new.input_payload) > MAX_PAYLOAD:
        raise invalid_input("input_payload", f"{len(new.input_payload)} bytes", "is too large")
    for field, instant in (
        ("delay_until", new.delay_until),
        ("execution_deadline_at", new.execution_deadline_at),
    ):
        if instant is not None and instant.tzinfo is None:
            raise invalid_input(field, instant.isoformat(), "must carry a time zone")


def _column(
    executions: Sequence[NewExecution], value: Callable[[NewExecution], object]
) -> list[object] | None:
    """One value a row; None as a whole where no row has one."""
    column = [value(new) for new in executions]
    return column if any(item is not None for item in column) else None


def _duration(given: float | timedelta | None) -> int | None:
    return None if given is None else milliseconds(given)


def _instant(given: datetime | None) -> int | None:
    return None if given is None else epoch_ms(given)


def _delay_until_ms(new: NewExecution) -> int | None:
    if new.delay_until is not None or new.delay is not None:
        return _instant(new.delay_until)
    return None if new.policy is None else new.policy.delay_until


def _dedup_window_ms(new: NewExecution) -> int | None:
    if new.idempotency_key is None:
        return None
    return DAY_MS if new.policy is None else new.policy.dedup_window_ms


def _tags(new: NewExecution) -> str | None:
    return msgspec.json.encode(new.tags).decode() if new.tags else None
