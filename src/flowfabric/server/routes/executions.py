"""Executions: submitted, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal
from uuid import UUID

import msgspec

from flowfabric.api.packed_ids import unpack_ids
from flowfabric.client.create_in_chunks import create_all_or_none
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, Pattern
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Creation,
    Duplicate,
    NewExecution,
)
from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.problems import invalid
from flowfabric.server.routes.submit_options import (
    DebounceOption,
    LimitOption,
    UniqueOption,
    submit_keyed,
    with_budgets,
    with_key,
    with_limit,
)
from flowfabric.server.table import BATCH, CONTROL, LARGE, Route, route
from flowfabric.states import PublicState, Scope
from flowfabric.tracing import with_context

MAX_BATCH: Final = 1000
_public_state: Final = attrgetter("public_state")


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An execution to create. Without an id the server makes one."""

    execution_kind: str
    execution_id: ExecutionId | None = None
    namespace: str | None = None
    lane_id: str = "default"
    input_payload: bytes = b""
    payload_encoding: str | None = None
    priority: int = 0
    creator_identity: str | None = None
    idempotency_key: str | None = None
    idempotency_window: float | None = None
    on_conflict: Literal["error", "return"] = "error"
    tags: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    required_capabilities: tuple[str, ...] = ()
    policy: ExecutionPolicy | None = None
    limit: LimitOption | None = None
    budget: list[str] = msgspec.field(default_factory=list[str])
    """Budgets by name: the execution is held back while one of them is spent."""
    unique: UniqueOption | None = None
    """One execution of the key at a time; of a request for one execution."""
    debounce: DebounceOption | None = None
    """Requests of the key that follow soon become one execution; of a request for one execution."""
    delay: float | None = None
    delay_until: datetime | None = None
    deadline: float | None = None
    execution_deadline_at: datetime | None = None
    flow_id: UUID | None = None
    hold: bool | None = None
    member_name: str | None = None
    quota_policy_id: UUID | None = None
    unique_until: Literal["started", "ended"] | None = None
    limit_key: str | None = None


class AlikeExecutions(msgspec.Struct, frozen=True, kw_only=True):
    """Further executions, which differ from the last of `executions` by id and input only.

    `ids_base64` has 18 bytes for each: its partition, the most significant byte first, and its
    UUID. The inputs are encoded as that of the execution which they follow.
    """

    ids_base64: bytes
    inputs_base64: list[bytes]


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Up to 1,000 executions; all are created, or none, unless `apart`.

    `alike` are further ones like the last of `executions`, so that what they share is said once.
    With `apart` an execution whose key belongs to another one is refused in its place. `fresh`
    says that the ids were made for this request, and that it was not sent before. With `brief`
    the answer has no results if all were created and wait to be claimed.
    """

    executions: list[SubmitRequest]
    alike: AlikeExecutions | None = None
    apart: bool = False
    fresh: bool = False
    brief: bool = False


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request.

    `all_created` instead of results: all were created and wait to be claimed.
    """

    results: list[Created | Duplicate | IdempotencyConflict]
    all_created: bool = False


class UniqueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of which one exists at a time for each key; `cancel_old` supersede theirs."""

    executions: list[SubmitRequest]
    cancel_old: list[ExecutionId] = []


class DebounceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that begins `wait` seconds after the last request with its key."""

    execution: SubmitRequest
    wait: float
    max_wait: float | None = None
    payload: Literal["first", "last"] = "last"


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The idempotency key that an execution was submitted with."""

    idempotency_key: str
    namespace: str | None = None


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """The execution of a key."""

    execution_id: ExecutionId


class OutcomesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose outcomes: answered when one or more have ended, or after `wait` seconds."""

    execution_ids: list[ExecutionId]
    wait: float = 0.0


class OutcomesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of those that have ended."""

    outcomes: list[ExecutionOutcome]


def new_execution(call: ApiCall, given: SubmitRequest, *, alone: bool = False) -> NewExecution:
    """The execution that the request describes, in a namespace of the caller."""
    fields = msgspec.structs.asdict(given)
    fields["namespace"] = namespace = call.namespace(given.namespace)
    if alone:
        fields["idempotency_key"] = call.idempotency_key(given.idempotency_key)
    for option in ("limit", "budget", "unique", "debounce"):
        del fields[option]
    if not alone and (given.unique or given.debounce) is not None:
        raise invalid("unique", "and debounce are for a request of one execution")
    with_key(fields, given.unique, given.debounce)
    if given.budget:
        with_budgets(fields, given.policy, given.budget)
    with_limit(fields, given.limit, call.engine.partitions)
    if fields["execution_id"] is None:
        fields["execution_id"] = ExecutionId.mint(
            namespace=namespace,
            idempotency_key=fields["idempotency_key"],
            partitions=call.engine.partitions,
        )
    fields["creator_identity"] = given.creator_identity or call.actor
    trace = call.header("traceparent")
    if trace is not None:
        fields["tags"] = with_context(given.tags, trace)
    return NewExecution(**fields)


def new_executions(call: ApiCall, given: Sequence[SubmitRequest]) -> list[NewExecution]:
    """The executions that the requests describe."""
    return [new_execution(call, each) for each in given]


def _with_alike(new: Sequence[NewExecution], given: AlikeExecutions) -> Sequence[NewExecution]:
    """The executions, and after them those like the last."""
    homes, uuids = unpack_ids(given.ids_base64)
    inputs, last = given.inputs_base64, new[-1]
    if len(uuids) != len(inputs):
        raise invalid("alike.inputs_base64", f"must be as many as the ids: {len(uuids)}")
    if len(new) == 1 and last.idempotency_key is None:
        own = last.execution_id
        return AlikeBatch(
            Pattern(last),
            [own.partition_key, *homes],
            [own.uuid, *uuids],
            [last.input_payload, *inputs],
        )
    ids = map(ExecutionId, homes, uuids)
    return [*new, *map(last.like, ids, inputs)]


def location(execution_id: ExecutionId) -> dict[str, str]:
    """Where the execution is."""
    partition = execution_id.partition_key
    return {"location": f"/v1/executions/%7Bfp:{partition}%7D:{execution_id.uuid}"}


async def create_execution(call: ApiCall, body: SubmitRequest) -> Reply:
    """Submit one execution.

    201 if it was created, 200 if an execution with the same id or key was there before. The header
    `Idempotency-Key` is another way to give `idempotency_key`.
    """
    new = new_execution(call, body, alone=True)
    await check_flows(call, [new])
    minted = body.execution_id is None
    answer = await submit_keyed(call, new, body.unique, body.debounce, minted=minted)
    if isinstance(answer, Duplicate):
        await call.check_executions([answer.execution_id])
    status = 201 if isinstance(answer, Created) else 200
    return Reply(value=answer, status=status, headers=location(answer.execution_id))


async def check_flow(call: ApiCall, flow_id: UUID) -> None:
    """Raise `NotFound` for a flow that the caller must not see."""
    if not call.principal.everywhere:
        namespace = await call.engine.get_flow_namespace(flow_id)
        if namespace is None or not call.principal.sees(namespace):
            raise NotFound("flow", flow_id)


async def check_flows(call: ApiCall, new: Sequence[NewExecution]) -> None:
    """Raise `NotFound` for a flow of these that the caller must not see."""
    for flow_id in {each.flow_id for each in new if each.flow_id is not None}:
        await check_flow(call, flow_id)


async def create_executions(call: ApiCall, body: BatchRequest) -> BatchAnswer:
    """Submit up to 1,000 executions: all are created, or none."""
    more = [] if body.alike is None else body.alike.inputs_base64
    if not body.executions or len(body.executions) + len(more) > MAX_BATCH:
        raise invalid("executions", f"must be 1 to {MAX_BATCH}")
    described = new_executions(call, body.executions)
    await check_flows(call, described)
    new = described if body.alike is None else _with_alike(described, body.alike)
    has_keys = any(each.idempotency_key for each in described)  # those alike have the key of one
    results = await _created(call, body, new, has_keys=has_keys)
    if body.brief and set(map(type, results)) == {Created}:
        states = list(map(_public_state, results))
        if states.count(PublicState.WAITING) == len(states):
            return BatchAnswer(results=[], all_created=True)
    return BatchAnswer(results=results)


async def _created(
    call: ApiCall, body: BatchRequest, new: Sequence[NewExecution], *, has_keys: bool
) -> list[Creation]:
    if body.apart:
        return await call.engine.create_execution(new, fresh=body.fresh)
    if body.fresh and not has_keys:
        return await call.engine.create_execution(new, fresh=True)
    return await create_all_or_none(call.engine, new)


async def create_unique_executions(call: ApiCall, body: UniqueRequest) -> BatchAnswer:
    """Submit executions of which one exists at a time for each key: all are created, or none."""
    if not 1 <= len(body.executions) <= MAX_BATCH:
        raise invalid("executions", f"must be 1 to {MAX_BATCH}")
    new = new_executions(call, body.executions)
    await check_flows(call, new)
    found = await call.engine.create_unique_executions(new, cancel_old=body.cancel_old)
    return BatchAnswer(results=found)


async def debounce_execution(
    call: ApiCall, body: DebounceRequest
) -> Created | Duplicate | IdempotencyConflict:
    """Submit an execution that requests which follow soon with its key put off."""
    new = new_execution(call, body.execution)
    await check_flows(call, [new])
    return await call.engine.debounce_execution(
        new,
        wait=body.wait,
        max_wait=body.max_wait,
        payload=body.payload,
    )


async def locate_execution_by_key(call: ApiCall, query: KeyQuery) -> Located:
    """The execution that was submitted with a key."""
    namespace = call.namespace(query.namespace)
    found = await call.engine.locate_execution_by_key(namespace, query.idempotency_key)
    if found is None:
        raise NotFound("execution", f"with key {query.idempotency_key!r}")
    return Located(execution_id=found)


async def read_outcomes(call: ApiCall, body: OutcomesRequest) -> OutcomesAnswer:
    """The outcomes of up to 1,000 executions: as soon as one or more have ended."""
    if not 1 <= len(body.execution_ids) <= MAX_BATCH:
        raise invalid("execution_ids", f"must be 1 to {MAX_BATCH}")
    seen = await call.visible(body.execution_ids)
    asked = [each for each in body.execution_ids if each in seen]
    seconds = call.seconds(body.wait)
    found = await call.services.first_outcomes(asked, seconds)
    return OutcomesAnswer(outcomes=[call.without_result(each) for each in found])


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/executions",
        create_execution,
        scope=Scope.WRITE,
        limit=LARGE,
        body=SubmitRequest,
        idempotency_key=True,
        answers={201: Created | Duplicate, 200: Created | Duplicate},
    ),
    route(
        "POST",
        "/v1/executions/batch",
        create_executions,
        scope=Scope.WRITE,
        limit=BATCH,
        body=BatchRequest,
        answers={200: BatchAnswer},
    ),
    route(
        "POST",
        "/v1/executions/unique",
        create_unique_executions,
        scope=Scope.WRITE,
        limit=BATCH,
        body=UniqueRequest,
        answers={200: BatchAnswer},
    ),
    route(
        "POST",
        "/v1/executions/debounced",
        debounce_execution,
        scope=Scope.WRITE,
        limit=LARGE,
        body=DebounceRequest,
        answers={200: Created | Duplicate | IdempotencyConflict},
    ),
    route(
        "GET",
        "/v1/executions/by-key",
        locate_execution_by_key,
        scope=Scope.READ,
        query=KeyQuery,
        answers={200: Located},
    ),
    route(
        "POST",
        "/v1/outcomes",
        read_outcomes,
        scope=Scope.READ,
        limit=CONTROL,
        body=OutcomesRequest,
        answers={200: OutcomesAnswer},
        waits=True,
    ),
)
