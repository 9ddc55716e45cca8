"""Controls of one execution: cancel, replay, revoke, block, resume, priority and tags."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.operators.block_execution_for_admission import Blocked
from flowfabric.engine.operators.change_priority import PriorityChanged
from flowfabric.engine.operators.replay_execution import Replayed
from flowfabric.engine.operators.resume_execution import Resumed
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked
from flowfabric.engine.operators.unblock_execution import Unblocked
from flowfabric.engine.operators.wake_execution import Woken
from flowfabric.errors import NotFound
from flowfabric.server.call import ApiCall
from flowfabric.server.etags import seen_at
from flowfabric.server.routes.execution_reads import X, describe
from flowfabric.server.table import CONTROL, LARGE, NOTHING, Route, route
from flowfabric.states import Scope


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why the execution is cancelled."""

    reason: str = "cancelled over HTTP"


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where the execution begins again: after what succeeded, at the start, or at a step."""

    from_: Literal["failure", "start"] = msgspec.field(default="failure", name="from")
    from_step: str | None = None
    downstream: bool = True
    reason: str | None = None


class RevokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which lease is revoked; without conditions, the current one."""

    reason: str = "revoked over HTTP"
    worker_instance_id: str = ""
    expected_lease_id: UUID | None = None
    expected_lease_epoch: int | None = None


class BlockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why the execution is held back: a blocking reason."""

    reason: str
    detail: str | None = None


class UnblockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """For which reason the execution must be held back now."""

    expected_blocking_reason: str | None = None
    reason: str | None = None


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why a suspended execution goes on, and after how many seconds."""

    reason: str | None = None
    delay: float = 0.0


class WakeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why the wait of a handler ends now; `skip` ends a sleep or a wait for a signal."""

    skip: bool = False
    reason: str | None = None


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The result that an operator records."""

    result: bytes | None = None
    encoding: str | None = None
    reason: str | None = None


class FailRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why an operator ends the execution as failed."""

    reason: str


class DelayRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Until when an operator holds the execution back."""

    delay: float | None = None
    delay_until: datetime | None = None
    reason: str | None = None


class PriorityRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The new priority; a higher one is claimed first."""

    priority: int
    reason: str | None = None


class TagRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a tag, and why it changes."""

    value: str
    reason: str | None = None


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and its value."""

    key: str
    value: str


async def cancel_execution(call: ApiCall, body: CancelRequest) -> Cancelled:
    """End the execution as cancelled; a repeat answers the same."""
    return await call.engine.cancel_execution(
        call.named(),
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def replay_execution(call: ApiCall, body: ReplayRequest) -> Replayed:
    """Run an execution that has ended once more. With `If-Match` a repeat is refused by 412."""
    return await call.engine.replay_execution(
        call.named(),
        from_=body.from_,
        from_step=body.from_step,
        downstream=body.downstream,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def revoke_lease(call: ApiCall, body: RevokeRequest) -> LeaseRevoked | LeaseNotRevoked:
    """Take the execution away from its worker."""
    return await call.engine.revoke_lease(
        call.named(),
        reason=body.reason,
        actor=call.actor,
        worker_instance_id=body.worker_instance_id,
        expected_lease_id=body.expected_lease_id or "",
        expected_lease_epoch=body.expected_lease_epoch,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def block_execution_for_admission(call: ApiCall, body: BlockRequest) -> Blocked:
    """Hold the execution back."""
    return await call.engine.block_execution_for_admission(
        call.named(),
        body.reason,
        detail=body.detail,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def unblock_execution(call: ApiCall, body: UnblockRequest) -> Unblocked:
    """Let an execution go on that is held back."""
    return await call.engine.unblock_execution(
        call.named(),
        expected_blocking_reason=body.expected_blocking_reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def resume_execution(call: ApiCall, body: ResumeRequest) -> Resumed:
    """Let a suspended execution go on without its signal."""
    return await call.engine.resume_execution(
        call.named(),
        delay=body.delay,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def wake_execution(call: ApiCall, body: WakeRequest) -> Woken:
    """Let the handler look again at what it waits for."""
    return await call.engine.wake_execution(
        call.named(),
        skip=body.skip,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def override_complete(call: ApiCall, body: CompleteRequest) -> Completed:
    """End the execution as completed, with this result."""
    return await call.engine.override_complete(
        call.named(),
        result=body.result,
        encoding=body.encoding,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def override_fail(call: ApiCall, body: FailRequest) -> TerminalFailed:
    """End the execution as failed."""
    return await call.engine.override_fail(
        call.named(),
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def override_delay(call: ApiCall, body: DelayRequested) -> Delayed:
    """Hold the execution back for some time."""
    return await call.engine.override_delay(
        call.named(),
        delay=body.delay,
        delay_until=body.delay_until,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def change_priority(call: ApiCall, body: PriorityRequest) -> PriorityChanged:
    """Change the priority of an execution that waits."""
    return await call.engine.change_priority(
        call.named(),
        body.priority,
        reason=body.reason,
        actor=call.actor,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def set_execution_tag(call: ApiCall, body: TagRequest) -> None:
    """Set one tag."""
    await call.engine.set_execution_tag(
        call.named(),
        call.text("key"),
        body.value,
        actor=call.actor,
        reason=body.reason,
        namespaces=call.namespaces,
    )


async def get_execution_tag(call: ApiCall) -> Tag:
    """The value of one tag."""
    execution_id, key = (await describe(call)).execution_id, call.text("key")
    found = await call.engine.get_execution_tag(execution_id, key)
    if found is None:
        raise NotFound("tag", key)
    return Tag(key=key, value=found)


def _control(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"scope": Scope.OPERATE, "limit": CONTROL, "if_match": True, **more}
    return route("POST", X + path, handler, body=body, answers={200: answer}, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _control("/cancel", cancel_execution, CancelRequest, Cancelled, scope=Scope.WRITE),
    _control("/replay", replay_execution, ReplayRequest, Replayed),
    _control("/revoke-lease", revoke_lease, RevokeRequest, LeaseRevoked | LeaseNotRevoked),
    _control("/block", block_execution_for_admission, BlockRequest, Blocked),
    _control("/unblock", unblock_execution, UnblockRequest, Unblocked),
    _control("/resume", resume_execution, ResumeRequest, Resumed),
    _control("/wake", wake_execution, WakeRequest, Woken),
    _control("/complete", override_complete, CompleteRequest, Completed, limit=LARGE),
    _control("/fail", override_fail, FailRequest, TerminalFailed),
    _control("/delay", override_delay, DelayRequested, Delayed),
    route(
        "PUT",
        X + "/priority",
        change_priority,
        scope=Scope.OPERATE,
        limit=CONTROL,
        body=PriorityRequest,
        if_match=True,
        answers={200: PriorityChanged},
    ),
    route(
        "PUT",
        X + "/tags/{key}",
        set_execution_tag,
        scope=Scope.WRITE,
        limit=CONTROL,
        body=TagRequest,
        answers={204: NOTHING},
    ),
    route("GET", X + "/tags/{key}", get_execution_tag, scope=Scope.READ, answers={200: Tag}),
)
