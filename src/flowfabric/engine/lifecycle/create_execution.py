"""absent → runnable: executions exist, once for each id and for each live idempotency key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Final, Literal, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, ids_of
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.errors import IdempotencyConflict, ValidationError, invalid_input
from flowfabric.ids import (
    ExecutionId,
    check_lane,
    check_name,
    check_text,
)
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.limits import check_limit_key
from flowfabric.policy import (
    ExecutionPolicy,
    check_capabilities,
    milliseconds,
)
from flowfabric.states import PublicState
from flowfabric.tags import check_tags

# The structs with gc=False are made by the thousand and never refer to one another. The garbage
# collector would visit each of them several times while a bulk call runs.

OnConflict = Literal["error", "return"]
MAX_PAYLOAD: Final = 64 * 1024 * 1024
_copied: Final = methodcaller("__copy__")  # what `copy.copy` finds by a detour

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
       %(now_ms)s::bigint, %(flow_id)s::uuid[], %(hold)s::boolean[], %(member_name)s::text[],
       %(fresh)s::boolean, %(quota_policy_id)s::uuid[], %(quota_dimension)s::text[],
       %(unique_scope)s::text[])
"""


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    quota_policy_id: UUID | None = None
    """The limit that counts it; `quota_policy_id(namespace, name)` for a limit with a name."""
    unique_until: Literal["started", "ended"] | None = None
    """The idempotency key belongs to the execution until then, instead of for a window."""
    limit_key: str | None = None
    """The key that the limit counts it under; None: the same for all."""

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
        check_payload(self.input_payload)
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, field="idempotency_key", at_most=1024)
        if self.idempotency_window is not None:
            self._check_window(self.idempotency_window)
        if self.unique_until is not None:
            self._check_unique(self.unique_until)
        if self.on_conflict != "error":
            check_on_conflict(self.on_conflict)
        if self.tags:
            check_tags(self.tags)
        if self.limit_key is not None:
            self._check_limit(self.limit_key)
        if self.delay_until is not None:
            check_instant(self.delay_until, field="delay_until")
        if self.execution_deadline_at is not None:
            check_instant(self.execution_deadline_at, field="execution_deadline_at")
        if self.delay is not None and milliseconds(self.delay, field="delay") < 0:
            raise invalid_input("delay", self.delay, "must not be negative")
        if self.deadline is not None and milliseconds(self.deadline, field="deadline") < 1:
            raise invalid_input("deadline", self.deadline, "must be positive")

    def like(self, execution_id: ExecutionId, input_payload: bytes) -> NewExecution:
        """The same with another id and payload; of its fields only the payload is checked again.

        Raises `ValidationError` for a payload that cannot be stored.
        """
        check_payload(input_payload)
        new: NewExecution = _copied(self)
        msgspec.structs.force_setattr(new, "execution_id", execution_id)
        msgspec.structs.force_setattr(new, "input_payload", input_payload)
        return new

    def _check_unique(self, until: object) -> None:
        if until not in ("started", "ended"):
            raise invalid_input("unique_until", until, "must be 'started' or 'ended'")
        if self.idempotency_key is None or self.idempotency_window is not None:
            why = "needs an idempotency_key, and no window"
            raise invalid_input("unique_until", until, why)

    def _check_limit(self, limit_key: str) -> None:
        check_limit_key(limit_key)
        if self.quota_policy_id is None:
            raise invalid_input("limit_key", limit_key, "needs a limit")

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


def check_payload(given: object) -> None:
    """Raises `ValidationError` for a payload that cannot be stored."""
    if type(given) is not bytes:
        kind = type(given).__name__
        raise invalid_input("input_payload", None, f"must be bytes, not {kind}")
    if len(given) > MAX_PAYLOAD:
        size = f"{len(given)} bytes"
        raise ValidationError("payload_too_large", f"input_payload {size!r} is over {MAX_PAYLOAD}")


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


_uuid_number: Final = attrgetter("execution_id.uuid.int")


class Created(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    fresh: bool = False,
) -> list[Creation]:
    """Every execution exists; answers in order, `Duplicate` for an id or key that existed before.

    If the execution of the key has another kind or payload, the answer is an `IdempotencyConflict`,
    unless `on_conflict` is `return`; the other executions of the batch are created.

    An id in a partition that does not exist, or not in the partition of its key, and a new
    execution whose deadline has passed raise `ValidationError`; a new execution for a lane that
    takes none raises `LaneNotAccepting`. Then nothing of the batch is created.

    `fresh` promises that the ids were made for this call and were never sent before: their rows are
    inserted without a search for earlier ones.
    """
    if not executions:
        return []
    columns = creation_columns(distinct(executions), partitions=partitions, fresh=fresh)
    return creation_answers(executions, await send_columns(conn, columns, now=now))


async def send_columns(
    conn: Connection, columns: Mapping[str, object], *, now: datetime | None = None
) -> list[CreationRow]:
    """Run the statement with the columns of a batch; its rows are for `creation_answers`."""
    now_ms = None if now is None else epoch_ms(check_instant(now, field="now"))
    return await fetch_all(conn, CREATE_EXECUTION, CreationRow, now_ms=now_ms, **columns)


def distinct(executions: Sequence[NewExecution]) -> Sequence[NewExecution]:
    """The executions, without those whose id comes before in the list."""
    if type(executions) is AlikeBatch and executions.are_distinct:
        return executions
    if len(set(map(_uuid_number, executions))) == len(executions):
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
        waiting = PublicState.WAITING  # once: an enum looks its members up by Python code
        return [Created(execution_id=each, public_state=waiting) for each in ids_of(executions)]
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
