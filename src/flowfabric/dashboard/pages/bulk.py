"""One act for many executions: those that were selected in a list, or all that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, cast

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.pages.bulk_matching import ALL, ask_matching, do_matching
from flowfabric.dashboard.pages.execution_acts import why_not
from flowfabric.dashboard.problems import FormProblem, PageProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, Scope

MOST: Final = 100
WORDS: Final = {
    "cancel": ("Cancel", "end as cancelled", "Cancel executions"),
    "replay": ("Replay", "are claimable again, with fresh retries", "Replay executions"),
    "priority": ("Change the priority of", "have the new priority", "Change priorities"),
    "block": ("Hold back", "are not claimed until somebody unblocks them", "Block executions"),
    "unblock": ("Unblock", "are claimable again", "Unblock executions"),
    "tag": ("Tag", "have the tag", "Set tags"),
}


def _word(visit: Visit) -> str:
    given = visit.query("do")
    if given not in WORDS:
        raise PageProblem(404, f"{given!r} is nothing that can be done to many.", kind="not_found")
    return given


async def _chosen(visit: Visit) -> list[ExecutionSnapshot]:
    """The executions that were selected and can be seen."""
    given = list(dict.fromkeys(visit.queries("id")))
    if not given or len(given) > MOST:
        raise PageProblem(422, f"Select 1 to {MOST} executions.", kind="invalid_input")
    found: list[ExecutionSnapshot] = []
    for text in given:
        try:
            snapshot = await visit.engine.describe_execution(parse_execution_id(text))
        except EngineError:
            snapshot = None
        if snapshot is not None and visit.principal.sees(snapshot.namespace):
            found.append(snapshot)
    return found


def _fields(word: str) -> list[DialogField]:
    """What the act needs beside the executions."""
    if word == "priority":
        return [
            DialogField(name="priority", label="Priority", kind="number", value="0", required=True)
        ]
    if word == "tag":
        return [
            DialogField(name="key", label="Key", hint="Such as shop.tenant.", required=True),
            DialogField(name="value", label="Value"),
        ]
    return []


async def ask(visit: Visit) -> Dialog:
    word = _word(visit)
    if visit.query(ALL):
        return await ask_matching(visit, word, WORDS[word], _fields(word))
    chosen = await _chosen(visit)
    refused = Counter(filter(None, (why_not(word, each) for each in chosen)))
    able = len(chosen) - sum(refused.values())
    verb, effect, button = WORDS[word]
    warning = "; ".join(f"{count} will not change: {why}" for why, count in refused.items())
    noun = "execution" if len(chosen) == 1 else "executions"
    return Dialog(
        question=f"{verb} {len(chosen)} {noun}?",
        effect=f"{able} of them {effect}.",
        button=button,
        back="/executions",
        fields=_fields(word),
        reason=word != "tag",
        danger=word == "cancel",
        warning=warning,
        listed=[
            f"{each.execution_kind} …{str(each.execution_id)[-8:]}, {each.public_state}"
            for each in chosen[:5]
        ]
        + ([f"and {len(chosen) - 5} more"] if len(chosen) > 5 else []),
    )


async def do(visit: Visit, form: SentForm) -> ActDone:
    word = _word(visit)
    if visit.query(ALL):
        return await do_matching(visit, word, form)
    ids = [each.execution_id for each in await _chosen(visit)]
    answers = await _answers(visit, word, ids, form)
    refused = Counter(each.code for each in answers if isinstance(each, EngineError))
    changed = len(answers) - sum(refused.values())
    text = f"{changed} of {len(ids)} executions changed"
    if refused:
        text += "; refused: " + ", ".join(f"{n} {code}" for code, n in refused.items())
    return ActDone(message=f"{text}.")


async def _answers(
    visit: Visit, word: str, ids: Sequence[ExecutionId], form: SentForm
) -> Sequence[object]:
    engine, actor = visit.engine, visit.actor
    if word == "tag":
        return await _tagged(visit, ids, form)
    reason = form.reason()
    match word:
        case "cancel":
            return await engine.cancel_executions(ids, reason=reason, actor=actor)
        case "replay":
            return await engine.replay_executions(ids, reason=reason, actor=actor)
        case "priority":
            priority = form.whole("priority", low=0, high=9000)
            return await engine.change_priorities(ids, priority, reason=reason, actor=actor)
        case "block":
            paused = BlockingReason.PAUSED_BY_OPERATOR.value
            return await engine.block_executions_for_admission(
                ids, paused, detail=reason, actor=actor
            )
        case _:
            return await engine.unblock_executions(ids, actor=actor)


async def _tagged(visit: Visit, ids: Sequence[ExecutionId], form: SentForm) -> Sequence[object]:
    key, value = form.text("key").strip(), form.text("value").strip()
    answers: list[object] = []
    for each in ids:
        try:
            answers.append(await visit.engine.set_execution_tag(each, key, value))
        except EngineError as error:
            if not answers and error.code == "invalid_input":
                raise FormProblem("key", cast("str", error.args[0])) from None
            answers.append(error)
    return answers


ROUTES: Final = (act("/executions/bulk", ask, do, Scope.OPERATE),)
