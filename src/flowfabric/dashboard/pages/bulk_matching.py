"""One act for everything that matches a filter: previewed, and then carried on in the database."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.pages.filters import filter_of
from flowfabric.dashboard.problems import FormProblem, PageProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import SEEN, SentForm, Visit
from flowfabric.engine.bulk.action import ELIGIBLE, BulkArguments
from flowfabric.engine.bulk.preview_bulk_action import COUNTED, BulkPreview
from flowfabric.engine.bulk.start_bulk_action import MOST
from flowfabric.engine.executions.search import Search, states_of
from flowfabric.errors import EngineError
from flowfabric.states import BulkActionKind, PublicState

ALL: Final = "matching"
"""The parameter that asks for everything that matches."""
TYPED_ABOVE: Final = 100
"""With more executions than that the number must be typed."""
_ANY: Final = BulkArguments(priority=0, tag_key="preview.key", tag_value="preview")


def _eligible(word: str, search: Search) -> Search:
    """The search without the states in which the act is refused; raises a `PageProblem`."""
    able = ELIGIBLE[BulkActionKind(word)]
    wanted = (PublicState.SUSPENDED,) if search.divergent else states_of(search)
    states = tuple(each for each in wanted or PublicState if each in able)
    if not states:
        words = ", ".join(state_word(each) for each in wanted)
        detail = f"{word.capitalize()} changes nothing that is {words}."
        raise PageProblem(422, detail, kind="invalid_input")
    return msgspec.structs.replace(search, public_state=None, public_states=states, sort="new")


async def _preview(visit: Visit, word: str, search: Search) -> BulkPreview:
    try:
        return await visit.engine.preview_bulk_action(word, search, arguments=_ANY)
    except EngineError as error:
        raise PageProblem(422, str(error), kind=error.code) from None


def _count(counts: dict[PublicState, int]) -> str:
    more = any(each >= COUNTED for each in counts.values())
    return f"{sum(counts.values()):,}{' or more' if more else ''}"


async def ask_matching(
    visit: Visit, word: str, words: tuple[str, str, str], fields: list[DialogField]
) -> Dialog:
    """The dialog: how many would change, how many would not, and some of them."""
    wanted = filter_of(visit)
    search = wanted.search(visit)
    _eligible(word, search)
    found = await _preview(visit, word, search)
    verb, effect, button = words
    able = sum(found.eligible.values())
    if able > TYPED_ABOVE:
        hint = f"Type {able} to say that you mean so many."
        fields = [*fields, DialogField(name="count", label="How many", hint=hint, required=True)]
    warnings = [
        f"{count:,}{' or more' if count >= COUNTED else ''} {state_word(state)} will not change"
        for state, count in found.refused.items()
    ]
    if able >= COUNTED:
        warnings.append(f"at most {MOST:,} are changed by one action")
    samples = [each for each in found.samples if each.public_state in found.eligible]
    return Dialog(
        question=f"{verb} {_count(found.eligible)} execution{'' if able == 1 else 's'}?",
        effect=f"Everything that matches ({wanted.in_words(visit)}): {_count(found.eligible)} of"
        f" {_count({**found.eligible, **found.refused})} {effect}.",
        button=button,
        back="/executions",
        fields=fields,
        danger=word == "cancel",
        seen=str(able),
        compared=False,
        warning="; ".join(warnings),
        listed=[
            f"{each.execution_kind} …{str(each.execution_id)[-8:]}, {each.public_state}"
            for each in samples
        ],
    )


async def do_matching(visit: Visit, word: str, form: SentForm) -> ActDone:
    """The action has begun; its page shows how far it is."""
    search = _eligible(word, filter_of(visit).search(visit))
    shown = form.text(SEEN)
    if not (shown.isascii() and shown.isdigit() and len(shown) <= 9):
        raise PageProblem(422, "Open the dialog first: it says how many change.")
    if int(shown) == 0:
        raise PageProblem(422, "Nothing that matches can be changed so.", kind="invalid_input")
    if int(shown) > TYPED_ABOVE and form.text("count").replace(",", "").strip() != shown:
        raise FormProblem("count", f"must be {shown}")
    arguments = BulkArguments()
    if word == "priority":
        arguments = BulkArguments(priority=form.whole("priority", low=0, high=9000))
    if word == "tag":
        key, value = form.text("key").strip(), form.text("value").strip()
        arguments = BulkArguments(tag_key=key, tag_value=value)
    started = await visit.engine.start_bulk_action(
        word, search=search, arguments=arguments, reason=form.reason(), actor=visit.actor
    )
    noun = "execution" if started.total == 1 else "executions"
    return ActDone(
        message=f"The change of {started.total:,} {noun} has begun.",
        to=visit.url(f"/bulk/{started.bulk_id}"),
    )
