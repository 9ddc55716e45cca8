"""Controls of flows: cancelled, and replayed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.operators.replay_flow import ReplayedFlow
from flowfabric.errors import FlowCancelPending
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.etags import seen_at
from flowfabric.server.routes.flows import F
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import CancellationPolicy, Scope


class FlowCancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why, how, and how many seconds the answer waits for the members."""

    reason: str = ""
    policy: CancellationPolicy = CancellationPolicy.CANCEL_ALL
    grace: float = 30.0
    wait: float = 0.0


class FlowReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why; `preview` only tells what would run again."""

    preview: bool = False
    reason: str | None = None


async def cancel_flow(
    call: ApiCall, body: FlowCancelRequest
) -> FlowCancelAccepted | FlowAlreadyCancelled | Reply:
    """Cancel the flow and, as the policy says, its members.

    Members that other transactions have locked end later: with `wait` the answer waits for them,
    and is 202 if they have not ended by then.
    """
    flow_id, seconds = call.uuid("flow_id"), call.seconds(body.wait)
    asked: dict[str, Any] = {
        "reason": body.reason,
        "policy": body.policy,
        "grace": body.grace,
        "requester": call.actor,
        "expected_last_mutation_at": seen_at(call),
        "namespaces": call.namespaces,
    }
    try:
        return await call.engine.cancel_flow(flow_id, **asked, wait=seconds)
    except FlowCancelPending:
        del asked["expected_last_mutation_at"]  # which the cancel itself has passed
    cancelled = await call.engine.cancel_flow(flow_id, **asked, wait=None)
    return Reply(value=cancelled, status=202) if seconds else cancelled


async def replay_flow(call: ApiCall, body: FlowReplayRequest) -> ReplayedFlow:
    """Let the members run again that keep the flow from being completed."""
    return await call.engine.replay_flow(
        call.uuid("flow_id"),
        preview=body.preview,
        reason=body.reason,
        expected_last_mutation_at=seen_at(call),
        actor=call.actor,
        namespaces=call.namespaces,
    )


def _control(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"scope": Scope.OPERATE, "limit": CONTROL, "if_match": True, **more}
    answers = {200: answer, **settings.pop("answers", {})}
    return route("POST", F + path, handler, body=body, answers=answers, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _control(
        "/cancel",
        cancel_flow,
        FlowCancelRequest,
        FlowCancelAccepted | FlowAlreadyCancelled,
        answers={202: FlowCancelAccepted | FlowAlreadyCancelled},
        waits=True,
    ),
    _control("/replay", replay_flow, FlowReplayRequest, ReplayedFlow),
)
