"""Signals and waitpoints: what executions wait for, and how outsiders answer."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpoint
from flowfabric.engine.suspensions.list_pending_waitpoints import PendingWaitpoint
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import EngineError, NotFound
from flowfabric.ids import ExecutionId, new_uuid, parse_uuid
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import (
    NamespacePageQuery,
    PageQuery,
    check_limit,
    page,
    page_of,
)
from flowfabric.server.problems import invalid
from flowfabric.server.routes.execution_reads import X, describe
from flowfabric.server.routes.work import many
from flowfabric.server.table import BATCH, CONTROL, MEDIUM, Route, route
from flowfabric.states import Scope
from flowfabric.states.waits import PROACTIVE_CLOSE

Answer = SignalAccepted | SignalDuplicate


class OpenWaitpointsQuery(
    NamespacePageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Open waitpoints of one namespace, and of one lane if it is given."""

    lane: str | None = None


class SignalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A signal by name, from a trusted caller."""

    signal_name: str
    payload: bytes | None = None
    encoding: str | None = None
    source_type: str = "external"
    source_identity: str | None = None
    correlation_id: str = ""
    idempotency_key: str | None = None
    signal_id: UUID | None = None


class KeyedSignalRequest(SignalRequest, frozen=True, kw_only=True):
    """A signal for the execution with this id, or submitted with this idempotency key."""

    execution_id: ExecutionId | None = None
    execution_key: str | None = None


class SignalsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Up to 1,000 signals."""

    signals: list[KeyedSignalRequest]
    namespace: str | None = None


class SignalsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[SignalAccepted | SignalDuplicate | EngineError]


class DeliveryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A signal from outside, which the token of the waitpoint allows."""

    waitpoint_token: str
    signal_name: str
    payload: bytes | None = None
    encoding: str | None = None
    signal_category: str = "signal"
    source_type: str = "external"
    source_identity: str = ""
    correlation_id: str = ""
    idempotency_key: str | None = None
    signal_id: UUID | None = None


class AnswerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an operator: `approved`, `rejected` or another signal name."""

    signal_name: str
    idempotency_suffix: str
    reason: str | None = None


class CloseWaitpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why the waitpoint takes no more signals; a handler that waits for it learns the reason."""

    reason: str = PROACTIVE_CLOSE


class WaitpointSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The token that allows signals to one waitpoint."""

    execution_id: ExecutionId
    waitpoint_id: UUID
    waitpoint_token: str

    def __repr__(self) -> str:
        return f"WaitpointSecret({self.execution_id}, {self.waitpoint_id})"


async def list_pending_waitpoints(call: ApiCall, query: PageQuery) -> Reply:
    """The open waitpoints of the execution."""
    execution_id = (await describe(call)).execution_id
    after = None if query.cursor is None else parse_uuid(query.cursor, field="cursor")
    found = await call.engine.list_pending_waitpoints(
        execution_id, after=after, limit=check_limit(query.limit)
    )
    return page(call, PendingWaitpoint, found.waitpoints, found.next_cursor, query)


async def list_open_waitpoints(call: ApiCall, query: OpenWaitpointsQuery) -> Reply:
    """What waits for an answer from outside."""
    found = await call.engine.list_open_waitpoints(
        namespace=call.only(query.namespace),
        lane_id=query.lane,
        cursor=query.cursor,
        limit=check_limit(query.limit),
    )
    return page(call, OpenWaitpoint, found.waitpoints, found.next_cursor, query)


async def read_waitpoint_token(call: ApiCall) -> Reply:
    """The token of a waitpoint; each read is in the audit log."""
    execution_id, waitpoint_id = call.named(), call.uuid("waitpoint_id")
    found = await call.engine.read_waitpoint_token(
        execution_id, waitpoint_id, namespaces=call.namespaces
    )
    if found is None:
        raise NotFound("waitpoint", waitpoint_id)
    secret = WaitpointSecret(
        execution_id=execution_id, waitpoint_id=waitpoint_id, waitpoint_token=found.reveal()
    )
    return Reply(value=secret, headers={"cache-control": "no-store"})


def _signal(call: ApiCall, execution_id: ExecutionId, given: SignalRequest) -> NewSignal:
    return NewSignal(
        execution_id=execution_id,
        signal_name=given.signal_name,
        payload=given.payload,
        encoding=given.encoding,
        source_type=given.source_type,
        source_identity=given.source_identity or call.actor,
        correlation_id=given.correlation_id,
        idempotency_key=given.idempotency_key,
        signal_id=given.signal_id or new_uuid(),
    )


async def send_signal(call: ApiCall, body: SignalRequest) -> Answer:
    """Send a signal by name to the execution."""
    execution_id = await call.execution_id()
    key = call.idempotency_key(body.idempotency_key)
    body = msgspec.structs.replace(body, idempotency_key=key)
    return await call.engine.send_signal(_signal(call, execution_id, body))


async def send_signals(call: ApiCall, body: SignalsRequest) -> SignalsAnswer:
    """Send up to 1,000 signals, to executions by their ids or idempotency keys."""
    many("signals", body.signals)
    namespace = call.namespace(body.namespace)
    targets: list[ExecutionId | NotFound] = []
    for number, each in enumerate(body.signals):
        targets.append(await _target(call, namespace, number, each))
    ids = [each for each in targets if isinstance(each, ExecutionId)]
    seen = await call.visible(ids)
    wanted = [
        (number, _signal(call, target, body.signals[number]))
        for number, target in enumerate(targets)
        if isinstance(target, ExecutionId) and target in seen
    ]
    results: list[Any] = [
        each if isinstance(each, NotFound) else NotFound("execution", each) for each in targets
    ]
    if wanted:
        answers = await call.engine.send_signals([signal for _, signal in wanted])
        for (number, _), answer in zip(wanted, answers, strict=True):
            results[number] = answer
    return SignalsAnswer(results=results)


async def _target(
    call: ApiCall, namespace: str, number: int, given: KeyedSignalRequest
) -> ExecutionId | NotFound:
    if (given.execution_id is None) == (given.execution_key is None):
        raise invalid(f"signals[{number}]", "must have an execution_id or an execution_key")
    if given.execution_id is not None:
        return given.execution_id
    key = given.execution_key or ""
    found = await call.engine.locate_execution_by_key(namespace, key)
    return NotFound("execution", f"with key {key!r}") if found is None else found


async def deliver_signal(call: ApiCall, body: DeliveryRequest) -> Answer:
    """Deliver a signal to a waitpoint, with its token."""
    return await call.engine.deliver_signal(
        await call.execution_id(),
        call.uuid("waitpoint_id"),
        body.waitpoint_token,
        body.signal_name,
        signal_id=body.signal_id,
        signal_category=body.signal_category,
        source_type=body.source_type,
        source_identity=body.source_identity,
        payload=body.payload,
        encoding=body.encoding,
        correlation_id=body.correlation_id,
        idempotency_key=body.idempotency_key,
    )


async def deliver_approval_signal(call: ApiCall, body: AnswerRequest) -> Answer:
    """Answer a waitpoint as an operator, without its token."""
    found = await describe(call)
    return await call.engine.deliver_approval_signal(
        found.execution_id,
        call.uuid("waitpoint_id"),
        body.signal_name,
        lane_id=found.lane_id,
        idempotency_suffix=body.idempotency_suffix,
        operator_identity=call.actor,
        reason=body.reason,
    )


async def close_waitpoint(call: ApiCall, body: CloseWaitpointRequest) -> ClosedWaitpoint:
    """Close a waitpoint; a handler that waits for it goes on. A repeat answers the same."""
    return await call.engine.close_waitpoint(
        await call.execution_id(), call.uuid("waitpoint_id"), reason=body.reason, actor=call.actor
    )


def _post(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"scope": Scope.WRITE, "limit": MEDIUM, **more}
    return route("POST", path, handler, body=body, answers={200: answer}, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "GET",
        X + "/waitpoints",
        list_pending_waitpoints,
        scope=Scope.READ,
        query=PageQuery,
        answers={200: page_of(PendingWaitpoint)},
    ),
    route(
        "GET",
        "/v1/waitpoints",
        list_open_waitpoints,
        scope=Scope.READ,
        query=OpenWaitpointsQuery,
        answers={200: page_of(OpenWaitpoint)},
    ),
    route(
        "GET",
        X + "/waitpoints/{waitpoint_id}/token",
        read_waitpoint_token,
        scope=Scope.OPERATE,
        answers={200: WaitpointSecret},
    ),
    _post(X + "/signals", send_signal, SignalRequest, Answer, idempotency_key=True),
    _post("/v1/signals", send_signals, SignalsRequest, SignalsAnswer, limit=BATCH),
    _post(X + "/waitpoints/{waitpoint_id}/signals", deliver_signal, DeliveryRequest, Answer),
    _post(
        X + "/waitpoints/{waitpoint_id}/answer",
        deliver_approval_signal,
        AnswerRequest,
        Answer,
        scope=Scope.OPERATE,
    ),
    _post(
        X + "/waitpoints/{waitpoint_id}/close",
        close_waitpoint,
        CloseWaitpointRequest,
        ClosedWaitpoint,
        scope=Scope.OPERATE,
        limit=CONTROL,
    ),
)
