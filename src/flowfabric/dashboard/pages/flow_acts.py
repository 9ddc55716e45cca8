"""Acts on a flow: cancel it, replay what failed, tag it."""

from __future__ import annotations

from typing import Final

from flowfabric.dashboard.pages.flow import read_flow
from flowfabric.dashboard.problems import FormProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled
from flowfabric.engine.operators.plan_replay import ReplayMember
from flowfabric.errors import FlowCancelPending
from flowfabric.states import CancellationPolicy, Scope

_WAITS: Final = 5.0
"""Seconds that a cancel waits for its last members."""
_SAMPLES: Final = 5


def _path(visit: Visit) -> str:
    return f"/flows/{visit.uuid('flow_id')}"


async def ask_cancel(visit: Visit) -> Dialog:
    """Which members end with the flow?"""
    read = await read_flow(visit)
    counts = read.flow.members
    ended = counts.completed + counts.failed + counts.cancelled + counts.expired + counts.skipped
    left, running = counts.total - ended, counts.active
    return Dialog(
        question=f"Cancel the flow {read.flow.flow_kind}?",
        effect=f"{left:,} of its {counts.total:,} members have not ended, {running:,} of them run.",
        button="Cancel flow",
        back=_path(visit),
        danger=True,
        fields=[
            DialogField(
                name="policy",
                label="Members",
                kind="select",
                value=CancellationPolicy.CANCEL_ALL.value,
                choices=[
                    (
                        CancellationPolicy.CANCEL_ALL.value,
                        f"Cancel all {left:,}, also the {running:,} that run",
                    ),
                    (
                        CancellationPolicy.CANCEL_PENDING.value,
                        f"Cancel the {left - running:,} that do not run; the others end by"
                        " themselves",
                    ),
                    (
                        CancellationPolicy.CANCEL_FLOW_ONLY.value,
                        "Cancel none; the flow takes no new members",
                    ),
                ],
            )
        ],
        seen=read.flow.public_flow_state.value,
        now="The flow is cancelled already.",
    )


async def do_cancel(visit: Visit, form: SentForm) -> ActDone:
    """The flow is cancelled."""
    flow_id = (await read_flow(visit)).flow.flow_id
    given = form.text("policy", CancellationPolicy.CANCEL_ALL.value)
    if given not in CancellationPolicy.__members__.values():
        raise FormProblem("policy", "must be one of the choices")
    try:
        answer = await visit.engine.cancel_flow(
            flow_id, reason=form.reason(), policy=given, requester=visit.actor, wait=_WAITS
        )
    except FlowCancelPending:
        return ActDone(message="The flow is cancelled; its last members end shortly.")
    finally:
        visit.site.flows.forget(flow_id)
    if isinstance(answer, FlowAlreadyCancelled):
        return ActDone(message="The flow was cancelled already.")
    count = len(answer.member_execution_ids)
    return ActDone(message=f"The flow is cancelled with {count:,} members.")


async def ask_replay(visit: Visit) -> Dialog:
    """What would run again?"""
    read = await read_flow(visit)
    plan = await visit.engine.replay_flow(read.flow.flow_id, preview=True)
    runs, waits = len(plan.run_again), len(plan.wait_again)
    stays = f" {len(plan.stay):,} stay as they ended." if plan.stay else ""
    warning = "" if runs or waits else "Nothing keeps this flow from being completed."
    return Dialog(
        question=f"Replay what failed of {read.flow.flow_kind}?",
        effect=f"{_members(runs)} again at once, {waits:,} again after them.{stays}"
        " What succeeded is not run again.",
        button="Replay flow",
        back=_path(visit),
        listed=[*(_named(each) for each in plan.run_again[:_SAMPLES]), *_rest(runs)],
        warning=warning,
    )


async def do_replay(visit: Visit, form: SentForm) -> ActDone:
    """What failed runs again."""
    flow_id = (await read_flow(visit)).flow.flow_id
    try:
        done = await visit.engine.replay_flow(flow_id, actor=visit.actor, reason=form.reason())
    finally:
        visit.site.flows.forget(flow_id)
    runs, waits = len(done.run_again), len(done.wait_again)
    if not runs and not waits:
        return ActDone(message="There was nothing to replay.")
    return ActDone(message=f"{_members(runs)} again, {waits:,} wait for them.")


async def ask_tag(visit: Visit) -> Dialog:
    """Which tag?"""
    read = await read_flow(visit)
    return Dialog(
        question=f"Tag the flow {read.flow.flow_kind}?",
        effect="Flows are found by their tags.",
        button="Set tag",
        back=_path(visit),
        reason=False,
        fields=[
            DialogField(
                name="key",
                label="Key",
                value=visit.query("key"),
                hint="Lower case, with a dot: app.name",
                required=True,
            ),
            DialogField(name="value", label="Value", required=True),
        ],
    )


async def do_tag(visit: Visit, form: SentForm) -> ActDone:
    """The tag has this value."""
    flow_id = (await read_flow(visit)).flow.flow_id
    key = form.text("key").strip()
    await visit.engine.set_flow_tag(flow_id, key, form.text("value"), actor=visit.actor)
    visit.site.flows.forget(flow_id)
    return ActDone(message=f"The tag {key} was set.")


def _members(count: int) -> str:
    return f"{count:,} member runs" if count == 1 else f"{count:,} members run"


def _named(member: ReplayMember) -> str:
    return f"{member.name or member.execution_kind}: {member.public_state.value}"


def _rest(count: int) -> list[str]:
    return [f"and {count - _SAMPLES:,} more"] if count > _SAMPLES else []


ROUTES: Final = (
    act("/flows/{flow_id}/cancel", ask_cancel, do_cancel, Scope.OPERATE),
    act("/flows/{flow_id}/replay", ask_replay, do_replay, Scope.OPERATE),
    act("/flows/{flow_id}/tag", ask_tag, do_tag, Scope.OPERATE),
)
