"""The checker accepts what one execution can say, and nothing else."""

from __future__ import annotations

import asyncio

from tests.all_cases import all_cases
from tests.proofs.history.checker import check
from tests.proofs.history.log import Held, Op


def history(*lines: str) -> list[Op]:
    """Calls, one a line: `called-returned name[@claim] answer …`; `?` for what is not known.

    A lease is named by the number of the line of its claim, the first being 1.
    """
    ops: list[Op] = []
    for number, line in enumerate(lines, 1):
        times, name, *answer = line.split()
        called, _, returned = times.partition("-")
        name, _, claim = name.partition("@")
        ops.append(
            Op(
                number=number,
                name=name,
                called=int(called),
                returned=None if returned == "?" else int(returned),
                held=_held(ops[int(claim) - 1]) if claim else None,
                answer=None if answer == ["?"] else tuple(map(_word, answer)),
            )
        )
    return ops


def _held(claim: Op) -> Held:
    assert claim.answer is not None
    _, attempt, epoch = claim.answer
    return Held(claim.number, int(str(attempt)), int(str(epoch)))


def _word(text: str) -> object:
    if text.startswith("["):
        return tuple(text[1:-1].split(",")) if text != "[]" else ()
    known: dict[str, object] = {"True": True, "False": False, "None": None}
    return known[text] if text in known else int(text) if text.isdigit() else text


CLAIMED = ("1-2 create created", "3-4 claim claimed 0 1")

GOOD = {
    "one after the other": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 describe is completed 1 0 None",
        "9-10 row row terminal success 0 1 1 0 0 [success]",
    ),
    "an unanswered completion that happened": (
        *CLAIMED,
        "5-? complete@2 ?",
        "7-8 complete@2 completed True",
        "9-10 row row terminal success 0 1 1 0 0 [success]",
    ),
    "an unanswered completion that never happened": (
        *CLAIMED,
        "5-? complete@2 ?",
        "7-8 cancel cancelled False",
        "9-10 row row terminal cancelled 0 2 1 0 0 [cancelled]",
    ),
    "an unanswered completion that happened late": (
        *CLAIMED,
        "5-? complete@2 ?",
        "7-8 describe is active 1 0 1",
        "9-10 describe is completed 1 0 None",
    ),
    "two at once, the later call first": (
        *CLAIMED,
        "5-9 cancel ended completed",
        "6-8 complete@2 completed False",
    ),
    "a claim that passes over a locked row": (
        "1-2 create created",
        "3-6 claim nothing",
        "4-5 claim claimed 0 1",
    ),
    "a claim whose answer was lost, taken away by an operator": (
        "1-2 create created",
        "3-? claim ?",
        "4-5 revoke revoked 2",
        "6-7 claim claimed 0 3",
        "8-9 row row active none 0 3 1 0 0 []",
    ),
    "replayed, and ended a second time": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 replay replayed",
        "9-10 claim claimed 0 3",
        "11-12 fail@5 failed False",
        "13-14 row row terminal failed 0 3 1 0 1 [success,failed]",
    ),
    "retried, and told so again": (
        *CLAIMED,
        "5-6 retry@2 retry 1 False",
        "7-8 retry@2 retry 1 True",
        "9-10 claim claimed 1 2",
    ),
    "a create whose answer was lost": ("1-? create ?", "2-3 claim nothing", "4-5 create duplicate"),
}

BAD = {
    "a lost completion": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 row row active none 0 1 1 0 0 []",
    ),
    "a lost execution": ("1-2 create created", "3-4 describe absent"),
    "two completions, both the first": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 complete@2 completed False",
    ),
    "two ends told for one": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 row row terminal success 0 1 1 0 0 [success,success]",
    ),
    "two leases at a time": (*CLAIMED, "5-6 claim claimed 0 2"),
    "two claims at once that both win": (
        "1-2 create created",
        "3-6 claim claimed 0 1",
        "4-5 claim claimed 0 1",
    ),
    "success after a cancel that was acknowledged": (
        *CLAIMED,
        "5-6 cancel cancelled False",
        "7-8 complete@2 completed False",
    ),
    "success recorded after a cancel that was acknowledged": (
        *CLAIMED,
        "5-? complete@2 ?",
        "7-8 cancel cancelled False",
        "9-10 row row terminal success 0 1 1 0 0 [success]",
    ),
    "a stale read": (
        *CLAIMED,
        "5-6 complete@2 completed False",
        "7-8 describe is active 1 0 1",
    ),
    "a read that goes back": (
        *CLAIMED,
        "5-? complete@2 ?",
        "6-7 describe is completed 1 0 None",
        "8-9 describe is active 1 0 1",
    ),
    "a zombie that is obeyed": (
        *CLAIMED,
        "5-6 revoke revoked 2",
        "7-8 claim claimed 0 3",
        "9-10 complete@2 completed False",
    ),
    "a zombie that is told it had done it": (
        *CLAIMED,
        "5-6 revoke revoked 2",
        "7-8 claim claimed 0 3",
        "9-10 complete@4 completed False",
        "11-12 complete@2 completed True",
    ),
    "a claim that finds nothing where nobody is": ("1-2 create created", "3-4 claim nothing"),
    "an epoch that is given out twice": (
        *CLAIMED,
        "5-6 revoke revoked 2",
        "7-8 claim claimed 0 2",
    ),
    "more retries than the policy allows": (
        *CLAIMED,
        "5-6 retry@2 retry 1 False",
        "7-8 claim claimed 1 2",
        "9-10 retry@4 retry 2 False",
        "11-12 claim claimed 2 3",
        "13-14 retry@6 retry 3 False",
    ),
    "a replay of what has not ended": (*CLAIMED, "5-6 replay replayed"),
    "created twice": ("1-2 create created", "3-4 create created"),
    "an effect before its call": ("1-2 describe is waiting 0 0 None", "3-4 create created"),
    "an unanswered call that happened twice": (
        *CLAIMED,
        "5-? retry@2 ?",
        "6-7 row row runnable none 2 1 1 2 0 []",
    ),
}


@all_cases("lines", GOOD.values(), ids=GOOD)
def test_a_history_with_an_order_is_accepted(lines: tuple[str, ...]) -> None:
    assert check(history(*lines)).possible


@all_cases("lines", BAD.values(), ids=BAD)
def test_a_history_without_an_order_is_refused(lines: tuple[str, ...]) -> None:
    verdict = check(history(*lines))

    assert not verdict.possible
    assert len(verdict.order) < len(lines)


def test_what_certainly_did_not_happen_leaves_nothing() -> None:
    ops = history(*CLAIMED, "5-6 cancel cancelled False", "7-8 describe is active 1 0 1")
    assert not check(ops).possible
    ops[2].void = True

    assert check(ops).possible


def test_many_calls_without_an_answer_are_searched_in_time() -> None:
    lost = [f"{5 + at}-? complete@2 ?" for at in range(12)]
    lost += [f"{20 + at}-? revoke ?" for at in range(12)]
    ops = history(*CLAIMED, *lost, "40-41 describe is failed 1 0 None")

    async def in_time() -> bool:
        async with asyncio.timeout(20):
            return (await asyncio.to_thread(check, ops)).possible

    assert not asyncio.run(in_time())
