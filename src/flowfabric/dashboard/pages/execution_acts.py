"""What can be done to one execution, each act with its dialog."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.pages.review_acts import is_stopped_alone
from flowfabric.dashboard.pages.versions import now, seen, versioned
from flowfabric.dashboard.problems import FormProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, JournalState, PublicState, Scope

HELD: Final = (
    BlockingReason.PAUSED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY,
    BlockingReason.WAITING_FOR_BUDGET,
    BlockingReason.WAITING_FOR_QUOTA,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER,
)
_MOST_PRIORITY: Final = 9000
_STEPS: Final = 1000


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An act: its path and words, and why it is not possible now."""

    path: str
    label: str
    why_not: str = ""
    danger: bool = False


def why_not(name: str, found: ExecutionSnapshot) -> str:
    """Why the act is not possible in the state of the execution; empty if it is."""
    state, blocked = found.public_state, found.blocking_reason
    ended = state.is_terminal
    match name:
        case "cancel" | "signal":
            return f"it has ended as {state}" if ended else ""
        case "replay":
            return "" if ended else "it has not ended"
        case "revoke":
            return "" if state is PublicState.ACTIVE else "nobody holds it"
        case "resume":
            return "" if state is PublicState.SUSPENDED else "it is not suspended"
        case "priority" | "block":
            waits = state in (PublicState.WAITING, PublicState.RESUMABLE) and blocked not in HELD
            return "" if waits else "it does not wait for a worker"
        case "unblock":
            return "" if blocked in HELD and not ended else "nothing holds it back"
        case _:
            return ""


_OFFERS: Final = (
    ("replay", "Replay", Scope.OPERATE),
    ("resume", "Resume", Scope.OPERATE),
    ("signal", "Send signal", Scope.WRITE),
    ("unblock", "Unblock", Scope.OPERATE),
    ("block", "Block", Scope.OPERATE),
    ("priority", "Change priority", Scope.OPERATE),
    ("revoke", "Revoke lease", Scope.OPERATE),
    ("tag", "Set tag", Scope.WRITE),
    ("cancel", "Cancel", Scope.WRITE),
)


def offered(visit: Visit, found: ExecutionSnapshot) -> list[Offer]:
    """The acts that the person may do, with why some are not possible now."""
    again = is_stopped_alone(found)
    return [
        Offer(
            path=name,
            label=label,
            why_not="" if name == "replay" and again else why_not(name, found),
            danger=name == "cancel",
        )
        for name, label, scope in _OFFERS
        if visit.may(scope)
    ]


def back(execution_id: ExecutionId) -> str:
    """The path of the page of the execution."""
    return f"/executions/{execution_id.partition_key}.{execution_id.uuid}"


def _dialog(
    found: ExecutionSnapshot, question: str, effect: str, button: str, **more: object
) -> Dialog:
    given: dict[str, object] = {"seen": seen(found), **more}
    return Dialog(
        question=question,
        effect=effect,
        button=button,
        back=back(found.execution_id),
        compared=False,
        now=now(found),
        **given,  # pyright: ignore[reportArgumentType]
    )


def _done(found_id: ExecutionId, message: str) -> ActDone:
    return ActDone(
        message=message, link=f"/events?execution={found_id.partition_key}.{found_id.uuid}"
    )


async def ask_cancel(visit: Visit) -> Dialog:
    found = await visit.execution()
    running = found.public_state is PublicState.ACTIVE
    told = ", and its handler is told to stop" if running else ""
    effect = f"It ends as cancelled{told}. What its handler has done so far stays done."
    question = f"Cancel this {found.execution_kind}?"
    return _dialog(found, question, effect, "Cancel execution", danger=True)


async def do_cancel(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    await visit.engine.cancel_execution(
        found.execution_id,
        reason=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=form.seen_at(),
    )
    return _done(found.execution_id, "The execution was cancelled.")


async def _replay_fields(visit: Visit, found: ExecutionSnapshot) -> list[DialogField]:
    """Where it may begin, and what runs again then; nothing for a handler without a journal."""
    try:
        steps = (await visit.engine.list_steps(found.execution_id, limit=_STEPS)).steps
    except EngineError:
        return []
    if not steps:
        return []
    done = sum(each.state is JournalState.DONE for each in steps)
    first = {each.name: place for place, each in reversed(list(enumerate(steps)))}
    again = [
        (name, f"{name}: {len(steps) - place} of {len(steps)} calls are made again")
        for name, place in sorted(first.items(), key=lambda each: each[1])
    ]
    return [
        DialogField(
            name="from",
            label="Begin",
            kind="select",
            value="failure",
            choices=(
                ("failure", f"after what succeeded: {done} of {len(steps)} calls stay done"),
                ("start", f"at the start: all {len(steps)} calls are made again"),
                ("step", "at the call chosen below"),
            ),
        ),
        DialogField(
            name="from_step",
            label="Call",
            kind="select",
            choices=[("", "\N{EN DASH}"), *again],
            hint="Only if it begins at a call.",
        ),
    ]


async def ask_replay(visit: Visit) -> Dialog:
    found = await visit.execution()
    question = f"Replay this {found.execution_kind}?"
    effect = "It is claimable again, with fresh retries. Members of its flow that were skipped"
    effect += " because of it wait again."
    if is_stopped_alone(found):
        effect = "It ends as cancelled, and is claimable again at once, with fresh retries."
    try:
        left = (await visit.engine.read_policy(found.execution_id)).replays_left
        effect += f" It can be replayed {left} more {'time' if left == 1 else 'times'}."
    except EngineError:
        pass  # it was deleted between two statements
    fields = await _replay_fields(visit, found)
    return _dialog(found, question, effect, "Replay execution", fields=fields)


async def do_replay(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    begin = form.text("from", "failure")
    step = form.text("from_step").strip() or None
    if begin not in ("failure", "start", "step"):
        raise FormProblem("from", "must be one of the choices")
    if (begin == "step") != (step is not None):
        raise FormProblem("from_step", "is needed to begin at a step, and only then")
    seen_at = form.seen_at()
    if is_stopped_alone(found):  # only what has ended can run again
        await visit.engine.cancel_execution(
            found.execution_id,
            reason=form.reason(),
            actor=visit.actor,
            expected_last_mutation_at=seen_at,
        )
        seen_at = None
    await visit.engine.replay_execution(
        found.execution_id,
        from_="start" if begin == "start" else "failure",
        from_step=step,
        reason=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=seen_at,
    )
    return _done(found.execution_id, "The execution runs again.")


async def ask_revoke(visit: Visit) -> Dialog:
    found = await visit.execution()
    lease = found.current_lease
    holder = "nobody" if lease is None else lease.worker_instance_id
    question = f"Revoke the lease of {holder}?"
    effect = "The execution is claimable again at once, and what the holder still writes is"
    effect += " refused. Its handler is told to stop."
    return _dialog(found, question, effect, "Revoke lease", danger=True)


async def do_revoke(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    answer = await visit.engine.revoke_lease(
        found.execution_id,
        reason=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=form.seen_at(),
    )
    if isinstance(answer, LeaseNotRevoked):
        return _done(found.execution_id, f"Nothing was revoked: {answer.reason}.")
    return _done(found.execution_id, f"The lease of {answer.worker_instance_id} was revoked.")


async def ask_priority(visit: Visit) -> Dialog:
    found = await visit.execution()
    field = DialogField(
        name="priority",
        label="Priority",
        kind="number",
        value=str(found.priority),
        hint=f"0 to {_MOST_PRIORITY:,}; a higher one is claimed first.",
        required=True,
    )
    question = f"Change the priority of this {found.execution_kind}?"
    effect = "Workers claim it before those with a lower priority on the same lane."
    return _dialog(found, question, effect, "Change priority", fields=[field])


async def do_priority(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    wanted = form.whole("priority", low=0, high=_MOST_PRIORITY)
    answer = await visit.engine.change_priority(
        found.execution_id,
        wanted,
        reason=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=form.seen_at(),
    )
    return _done(found.execution_id, f"The priority is {answer.priority}.")


async def ask_block(visit: Visit) -> Dialog:
    found = await visit.execution()
    question = f"Hold back this {found.execution_kind}?"
    effect = "No worker claims it until somebody unblocks it."
    return _dialog(found, question, effect, "Block execution")


async def do_block(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    await visit.engine.block_execution_for_admission(
        found.execution_id,
        BlockingReason.PAUSED_BY_OPERATOR.value,
        detail=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=form.seen_at(),
    )
    return _done(found.execution_id, "The execution is held back.")


async def ask_unblock(visit: Visit) -> Dialog:
    found = await visit.execution()
    question = f"Unblock this {found.execution_kind}?"
    effect = "It is claimable again, whatever held it back."
    return _dialog(found, question, effect, "Unblock execution")


async def do_unblock(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    form.reason()
    await visit.engine.unblock_execution(
        found.execution_id, actor=visit.actor, expected_last_mutation_at=form.seen_at()
    )
    return _done(found.execution_id, "The execution is claimable again.")


async def ask_resume(visit: Visit) -> Dialog:
    found = await visit.execution()
    question = f"Resume this {found.execution_kind}?"
    effect = "It goes on with the next claim, without what it waits for."
    return _dialog(found, question, effect, "Resume execution")


async def do_resume(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    await visit.engine.resume_execution(
        found.execution_id,
        reason=form.reason(),
        actor=visit.actor,
        expected_last_mutation_at=form.seen_at(),
    )
    return _done(found.execution_id, "The execution goes on.")


async def ask_tag(visit: Visit) -> Dialog:
    found = await visit.execution()
    fields = [
        DialogField(name="key", label="Key", hint="Such as shop.tenant.", required=True),
        DialogField(name="value", label="Value"),
    ]
    question = f"Set a tag of this {found.execution_kind}?"
    effect = "The tag has this value, whatever it had."
    return _dialog(found, question, effect, "Set tag", fields=fields, reason=False, seen="")


async def do_tag(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    key, value = form.text("key").strip(), form.text("value").strip()
    await visit.engine.set_execution_tag(found.execution_id, key, value)
    return _done(found.execution_id, f"{key} is {value}.")


async def ask_signal(visit: Visit) -> Dialog:
    found = await visit.execution()
    suspended = found.current_suspension
    names = [] if suspended is None else suspended.awaits_signals
    fields = [
        DialogField(name="name", label="Signal", value=names[0] if names else "", required=True),
        DialogField(name="payload", label="Payload", kind="area", hint="JSON, or nothing."),
    ]
    question = f"Send a signal to this {found.execution_kind}?"
    effect = "A handler that waits for a signal of this name goes on."
    return _dialog(found, question, effect, "Send signal", fields=fields, seen="")


async def do_signal(visit: Visit, form: SentForm) -> ActDone:
    found = await visit.execution()
    payload = json_field(form, "payload")
    name = form.text("name").strip()
    form.reason()
    answer = await visit.engine.send_signal(
        NewSignal(
            execution_id=found.execution_id,
            signal_name=name,
            payload=payload,
            encoding=None if payload is None else "json",
            source_type="operator",
            source_identity=visit.actor,
        )
    )
    went_on = ", and the execution goes on" if answer.resumed else ""
    return _done(found.execution_id, f"The signal {name} arrived{went_on}.")


def json_field(form: SentForm, name: str) -> bytes | None:
    """The JSON of a field as it was typed; None if it is empty. Raises `FormProblem`."""
    text = form.text(name).strip()
    if not text:
        return None
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise FormProblem(name, f"is not JSON: {error}") from None
    return text.encode()


_X: Final = "/executions/{execution_id}"
ROUTES: Final = (
    act(f"{_X}/cancel", ask_cancel, versioned(do_cancel), Scope.WRITE),
    act(f"{_X}/replay", ask_replay, versioned(do_replay)),
    act(f"{_X}/revoke", ask_revoke, versioned(do_revoke)),
    act(f"{_X}/priority", ask_priority, versioned(do_priority)),
    act(f"{_X}/block", ask_block, versioned(do_block)),
    act(f"{_X}/unblock", ask_unblock, versioned(do_unblock)),
    act(f"{_X}/resume", ask_resume, versioned(do_resume)),
    act(f"{_X}/tag", ask_tag, do_tag, Scope.WRITE),
    act(f"{_X}/signal", ask_signal, do_signal, Scope.WRITE),
)
