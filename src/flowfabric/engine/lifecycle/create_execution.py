"""absent → runnable: executions exist, once for each id and for each live idempotency key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Literal, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import IdempotencyConflict, ValidationError, invalid_input
from flowfabric.ids import (
    ExecutionId,
    check_lane,
    check_name,
    check_partition,
    check_text,
    key_partition,
)
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import (
    DAY_MS,
    ExecutionPolicy,
    check_capabilities,
    clamp_priority,
    milliseconds,
)
from flowfabric.states import PublicState
from flowfabric.tags import check_tags

OnConflict = Literal["error", "return"]
MAX_PAYLOAD: Final = 64 * 1024 * 1024

CREATE_EXECUTION: Final[LiteralString] = """
-- lifecycle.create_execution
SELECT ordinal, partition_key, execution_id, created, public_state, differs
  FROM ff.create_execution(
       %(shape_namespace)s::text[], %(shape_lane_id)s::text[], %(shape_execution_kind)s::text[],
       %(shape_required_capabilities)s::text[], %(shape_payload_encoding)s::text[],
       %(shape_creator_identity)s::text[], %(shape_policy)s::text[]::jsonb[],
       %(partition_key)s::smallint[], %(execution_id)s::uuid[], %(shape)s::integer[],
       %(payload)s::bytea[], %(priority)s::integer[], %(delay_ms)s::bigint[],
       %(delay_until_ms)s::bigint[], %(deadline_ms)s::bigint[], %(deadline_at_ms)s::bigint[],
       %(idempotency_key)s::text[], %(dedup_window_ms)s::bigint[], %(tags)s::text[]::jsonb[],
       %(now_ms)s::bigint, %(flow_id)s::uuid[], %(hold)s::boolean[], %(member_name)s::text[])
"""


class NewExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution to create; valid once it is made.

    `delay` and `deadline` count from the database's clock. Raises `ValidationError` for a lane,
    kind, capability, tag key, text or instant that cannot be stored, and for a deadline that
    leaves no time.
    """

    execution_id: ExecutionId
    execution_kind: str
    lane_id: str = "default"
    namespace: str = "default"
    input_payload: bytes = b""
    payload_encoding: str | None = None
    priority: int = 0
    creator_identity: str | None = None
    idempotency_key: str | None = None
    idempotency_window: float | timedelta | None = None
    """How long the key is remembered; else the policy's `dedup_window`, else 24 hours."""
    on_conflict: OnConflict = "error"
    """The answer if the key has an execution of another kind or payload; `return`: that one."""
    tags: Mapping[str, str] = {}
    required_capabilities: tuple[str, ...] = ()
    policy: ExecutionPolicy | None = None
    delay: float | timedelta | None = None
    delay_until: datetime | None = None
    deadline: float | timedelta | None = None
    execution_deadline_at: datetime | None = None
    flow_id: UUID | None = None
    """The flow that it is a member of; the flow's own operations set it."""
    hold: bool | None = None
    """If true, not claimable until its join is satisfied or it is promoted."""
    member_name: str | None = None
    """Its name in the flow, by which other members read its result."""

    def __post_init__(self) -> None:
        if type(self.required_capabilities) is not tuple:
            self._keep_capabilities(self.required_capabilities)
        _check_shape(
            self.namespace,
            self.lane_id,
            self.execution_kind,
            self.required_capabilities,
            self.payload_encoding,
            self.creator_identity,
        )
        if type(self.priority) is not int:
            raise invalid_input("priority", self.priority, "must be a whole number")
        if type(self.input_payload) is not bytes:
            kind = type(self.input_payload).__name__
            raise invalid_input("input_payload", None, f"must be bytes, not {kind}")
        if len(self.input_payload) > MAX_PAYLOAD:
            size = f"{len(self.input_payload)} bytes"
            raise ValidationError(
                "payload_too_large", f"input_payload {size!r} is over {MAX_PAYLOAD}"
            )
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, field="idempotency_key", at_most=1024)
        if self.idempotency_window is not None:
            self._check_window(self.idempotency_window)
        if self.on_conflict != "error":
            check_on_conflict(self.on_conflict)
        if self.tags:
            check_tags(self.tags)
        for field in ("delay_until", "execution_deadline_at"):
            moment: datetime | None = getattr(self, field)
            if moment is not None:
                check_instant(moment, field=field)
        for field in ("delay", "deadline"):
            duration: float | timedelta | None = getattr(self, field)
            if duration is not None:
                milliseconds(duration, field=field)
        if self.delay is not None and milliseconds(self.delay) < 0:
            raise invalid_input("delay", self.delay, "must not be negative")
        if self.deadline is not None and milliseconds(self.deadline) < 1:
            raise invalid_input("deadline", self.deadline, "must be positive")

    def _keep_capabilities(self, given: object) -> None:
        """Store a list or a set of capabilities as a tuple: the shapes of a batch are compared."""
        kept = tuple(check_capabilities(given, side="required"))
        msgspec.structs.force_setattr(self, "required_capabilities", kept)

    def _check_window(self, window: float | timedelta) -> None:
        if milliseconds(window, field="idempotency_window") < 1:
            raise invalid_input("idempotency_window", window, "must be positive")
        if self.idempotency_key is None:
            raise invalid_input("idempotency_window", window, "needs an idempotency_key")


def check_on_conflict(given: object) -> None:
    """Raises `ValidationError(invalid_input)` unless it is one of `OnConflict`."""
    if given not in ("error", "return"):
        raise invalid_input("on_conflict", given, "must be 'error' or 'return'")


@lru_cache(maxsize=1024)
def _check_shape(
    namespace: str,
    lane_id: str,
    execution_kind: str,
    required_capabilities: tuple[str, ...],
    payload_encoding: str | None,
    creator_identity: str | None,
) -> None:
    """Raise unless the fields that a batch usually repeats are valid."""
    check_name(namespace, field="namespace")
    check_lane(lane_id)
    check_name(execution_kind, field="execution_kind")
    if payload_encoding is not None:
        check_name(payload_encoding, field="payload_encoding")
    if creator_identity is not None:
        check_text(creator_identity, field="creator_identity", at_most=1024)
    check_capabilities(required_capabilities, side="required")


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """This call created the execution."""

    execution_id: ExecutionId
    public_state: PublicState


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """The id or the idempotency key belongs to this execution already; nothing changed."""

    execution_id: ExecutionId


Creation = Created | Duplicate | IdempotencyConflict
"""The answer for one execution."""


class CreationRow(msgspec.Struct, frozen=True):
    """One answer row of the statement."""

    ordinal: int
    partition_key: int
    execution_id: UUID
    created: bool
    public_state: str
    differs: list[str] | None
    """What the earlier execution of the idempotency key has otherwise."""


async def create_execution(
    conn: Connection,
    executions: Sequence[NewExecution],
    *,
    partitions: int = 256,
    now: datetime | None = None,
) -> list[Creation]:
    """Every execution exists; answers in order, `Duplicate` for an id or key that existed before.

    If the execution of the key has another kind or payload, the answer is an `IdempotencyConflict`,
    unless `on_conflict` is `return`; the other executions of the batch are created.

    An id in a partition that does not exist, or not in the partition of its key, and a new
    execution whose deadline has passed raise `ValidationError`; a new execution for a lane that
    takes none raises `LaneNotAccepting`. Then nothing of the batch is created.
    """
    if not executions:
        return []
    batch = distinct(executions)
    rows = await fetch_all(
        conn,
        CREATE_EXECUTION,
        CreationRow,
        now_ms=None if now is None else epoch_ms(check_instant(now, field="now")),
        **creation_columns(batch, partitions=partitions),
    )
    return creation_answers(executions, rows)


def distinct(executions: Sequence[NewExecution]) -> Sequence[NewExecution]:
    """The executions, without those whose id comes before in the list."""
    ids = {new.execution_id for new in executions}
    if len(ids) == len(executions):
        return executions
    firsts: dict[ExecutionId, NewExecution] = {}
    for new in executions:
        firsts.setdefault(new.execution_id, new)
    return list(firsts.values())


def creation_answers(
    executions: Sequence[NewExecution], rows: Sequence[CreationRow]
) -> list[Creation]:
    """The answers in the order given; the second execution of one id is a duplicate too."""
    if not rows and distinct(executions) is executions:
        return [
            Created(execution_id=new.execution_id, public_state=PublicState.WAITING)
            for new in executions
        ]
    batch = distinct(executions)
    by_id = {batch[row.ordinal - 1].execution_id: row for row in rows}
    answered: set[ExecutionId] = set()
    answers: list[Creation] = []
    for new in executions:
        row = by_id.get(new.execution_id)
        if row is not None and not row.created:
            answers.append(_existing(new, row))
        elif new.execution_id in answered:
            answers.append(Duplicate(execution_id=new.execution_id))
        else:
            answered.add(new.execution_id)
            state = PublicState(PublicState.WAITING if row is None else row.public_state)
            answers.append(Created(execution_id=new.execution_id, public_state=state))
    return answers


def _existing(new: NewExecution, row: CreationRow) -> Duplicate | IdempotencyConflict:
    existing = ExecutionId(row.partition_key, row.execution_id)
    if row.differs and new.on_conflict == "error":
        key = new.idempotency_key or ""
        return IdempotencyConflict(key, execution_id=existing, differs=row.differs)
    return Duplicate(execution_id=existing)


def creation_columns(
    executions: Sequence[NewExecution], *, partitions: int = 256
) -> dict[str, object]:
    """The parameters: the distinct shapes of the batch, and one array for each other field."""
    shapes: dict[object, tuple[int, NewExecution]] = {}
    shape_numbers: list[int] = []
    for new in executions:
        _check_partition(new, partitions)
        key = (
            new.execution_kind,
            new.lane_id,
            new.namespace,
            new.required_capabilities,
            new.payload_encoding,
            new.creator_identity,
            id(new.policy),
        )
        if key not in shapes:
            shapes[key] = (len(shapes) + 1, new)
        shape_numbers.append(shapes[key][0])
    first = [new for _, new in shapes.values()]
    return {
        "shape_namespace": [new.namespace for new in first],
        "shape_lane_id": [new.lane_id for new in first],
        "shape_execution_kind": [new.execution_kind for new in first],
        "shape_required_capabilities": [
            ",".join(check_capabilities(_requirements(new), side="required")) for new in first
        ],
        "shape_payload_encoding": [new.payload_encoding for new in first],
        "shape_creator_identity": [new.creator_identity for new in first],
        "shape_policy": [
            None if new.policy is None else new.policy.as_json().decode() for new in first
        ],
        "partition_key": [new.execution_id.partition_key for new in executions],
        "execution_id": [new.execution_id.uuid for new in executions],
        "shape": shape_numbers,
        "payload": [new.input_payload for new in executions],
        "priority": _column(executions, "priority", clamp_priority),
        "delay_ms": _column(executions, "delay", milliseconds),
        "delay_until_ms": _delays_until(executions),
        "deadline_ms": _column(executions, "deadline", milliseconds),
        "deadline_at_ms": _column(executions, "execution_deadline_at", epoch_ms),
        "idempotency_key": (keys := _column(executions, "idempotency_key", str)),
        "dedup_window_ms": None if keys is None else [_dedup_window_ms(new) for new in executions],
        "tags": _tags(executions),
        "flow_id": _column(executions, "flow_id", _same),
        "hold": _column(executions, "hold", bool),
        "member_name": _column(executions, "member_name", str),
    }


def _same(value: object) -> object:
    return value


def _requirements(new: NewExecution) -> tuple[str, ...]:
    """The capabilities that the execution and its policy require."""
    if new.policy is None:
        return new.required_capabilities
    return (*new.required_capabilities, *new.policy.required_capabilities)


def _check_partition(new: NewExecution, partitions: int) -> None:
    found = new.execution_id.partition_key
    check_partition(new.execution_id, partitions)
    if new.idempotency_key is None:
        return
    home = key_partition(new.namespace, new.idempotency_key, partitions)
    if found != home:
        given = str(new.execution_id)
        raise invalid_input("execution_id", given, f"its idempotency key lives in {{fp:{home}}}")


def _column(
    executions: Sequence[NewExecution], field: str, stored: Callable[[Any], object]
) -> list[object] | None:
    """One value for each execution; None as a whole if no execution has the field."""
    values = list(map(attrgetter(field), executions))
    if all(value is None for value in values):
        return None
    return [None if value is None else stored(value) for value in values]


def _delays_until(executions: Sequence[NewExecution]) -> list[object] | None:
    """`delay_until`, else that of the policy unless a `delay` is given; None if there is none."""
    delays: list[object] = []
    for new in executions:
        if new.delay_until is not None:
            delays.append(epoch_ms(new.delay_until))
        else:
            named = None if new.policy is None or new.delay is not None else new.policy.delay_until
            delays.append(None if named is None else epoch_ms(named))
    return delays if any(delays) else None


def _tags(executions: Sequence[NewExecution]) -> list[object] | None:
    if not any(new.tags for new in executions):
        return None
    return [msgspec.json.encode(new.tags).decode() if new.tags else None for new in executions]


def _dedup_window_ms(new: NewExecution) -> int:
    if new.idempotency_window is not None:
        return milliseconds(new.idempotency_window)
    return DAY_MS if new.policy is None else milliseconds(new.policy.dedup_window)
