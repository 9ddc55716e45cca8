"""Join policies: what they are made of, and when they are decided; here and in SQL alike."""

from itertools import product
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.errors import ValidationError
from flowfabric.joins import (
    AllOf,
    AnyOf,
    Counts,
    JoinPolicy,
    Quorum,
    check_expected,
    decide,
    policy_columns,
    stored_policy,
)
from flowfabric.states import GroupState, OnSatisfied
from tests.all_cases import all_cases
from tests.engine.flows.model import decision, kind_of

POLICIES: list[JoinPolicy] = [
    AllOf(),
    AnyOf(),
    AnyOf("let_run"),
    *(Quorum(k) for k in range(1, 7)),
    Quorum(2, "let_run"),
]


@all_cases("policy", POLICIES)
def test_a_policy_comes_back_from_its_columns(policy: JoinPolicy) -> None:
    assert stored_policy(*policy_columns(policy)) == policy
    assert policy_columns(policy) == kind_of(policy)


def test_the_others_are_cancelled_unless_something_else_is_said() -> None:
    assert policy_columns(AnyOf())[2] == policy_columns(Quorum(1))[2] == "cancel_remaining"
    assert AnyOf(OnSatisfied.LET_RUN) == AnyOf("let_run")


@all_cases("k", [0, -1, 1.0, True, "2", None])
def test_a_quorum_needs_a_whole_number(k: Any) -> None:
    with pytest.raises(ValidationError, match=r"k .*must be a whole number"):
        Quorum(k)


@pytest.mark.parametrize("word", ["", "cancel", "LET_RUN"])
def test_what_becomes_of_the_others_is_one_of_two_words(word: Any) -> None:
    with pytest.raises(ValidationError, match=r"on_satisfied .* is not one of"):
        AnyOf(word)
    with pytest.raises(ValidationError, match=r"on_satisfied .* is not one of"):
        Quorum(1, word)


def test_a_quorum_must_be_reachable_with_the_edges_expected() -> None:
    check_expected(Quorum(3), None)
    check_expected(Quorum(3), 3)
    check_expected(AllOf(), 1)
    with pytest.raises(ValidationError, match="k 4 is more than the 3"):
        check_expected(Quorum(4), 3)
    for policy in (AllOf(), AnyOf(), Quorum(1)):
        with pytest.raises(ValidationError, match="expected_n 0 must be"):
            check_expected(policy, 0)


def counts_up_to(most: int) -> list[tuple[int, int, int, int]]:
    """Every (succeeded, failed, skipped, running) of at most so many edges."""
    some = range(most + 1)
    return [each for each in product(some, some, some, some) if sum(each) <= most]


@all_cases("expected_n", [None, 1, 2, 4, 5])
@all_cases("policy", POLICIES)
def test_a_group_is_decided_as_the_text_says(policy: JoinPolicy, expected_n: int | None) -> None:
    kind, k, _ = kind_of(policy)
    for s, f, x, u in counts_up_to(5):
        counts = Counts(succeeded=s, failed=f, skipped=x, running=u)
        expected = decision(kind, k, s, f, x, u, expected_n=expected_n)
        assert decide(policy, counts, expected_n=expected_n) == expected, counts


@pytest.mark.parametrize(
    ("policy", "satisfied", "impossible"),
    [
        (AllOf(), lambda s, _lost, n: s == n, lambda _s, lost, _n: lost >= 1),
        (AnyOf(), lambda s, _lost, _n: s >= 1, lambda _s, lost, n: lost == n),
        (Quorum(2), lambda s, _lost, _n: s >= 2, lambda _s, lost, n: lost > n - 2),
        (Quorum(3), lambda s, _lost, _n: s >= 3, lambda _s, lost, n: lost > n - 3),
    ],
)
def test_the_short_table_holds_where_there_are_enough_edges(
    policy: JoinPolicy, satisfied: Any, impossible: Any
) -> None:
    for s, f, x, u in counts_up_to(6):
        n = s + f + x + u
        if n < max(1, policy.required(n)):
            continue
        state = decide(policy, Counts(succeeded=s, failed=f, skipped=x, running=u))
        assert (state is GroupState.SATISFIED) is satisfied(s, f + x, n)
        assert (state is GroupState.IMPOSSIBLE) is impossible(s, f + x, n)


def test_a_group_without_edges_is_pending_unless_nothing_can_come_of_it() -> None:
    assert decide(AllOf(), Counts()) is GroupState.PENDING
    assert decide(AllOf(), Counts(), expected_n=1) is GroupState.PENDING


def test_too_few_edges_for_a_quorum_leave_it_open_while_one_may_still_succeed() -> None:
    assert decide(Quorum(3), Counts(succeeded=1, running=1)) is GroupState.PENDING
    assert decide(Quorum(3), Counts(failed=1, running=1)) is GroupState.PENDING
    assert decide(Quorum(3), Counts(succeeded=2)) is GroupState.IMPOSSIBLE
    assert decide(Quorum(3), Counts(succeeded=2), expected_n=3) is GroupState.PENDING


SAME_IN_SQL = """
SELECT ff.group_decision(policy_kind, k, expected_n, s, f, x, u)
  FROM unnest($1::text[], $2::integer[], $3::integer[], $4::integer[], $5::integer[],
              $6::integer[], $7::integer[]) AS given (policy_kind, k, expected_n, s, f, x, u)
"""


async def test_the_database_decides_the_same(db: Connection) -> None:
    cases = [
        (policy, expected_n, counts)
        for policy in POLICIES
        for expected_n in (None, 1, 2, 3, 4, 5, 6)
        for counts in counts_up_to(6)
    ]
    here = [
        decide(
            policy,
            Counts(succeeded=s, failed=f, skipped=x, running=u),
            expected_n=expected_n,
        )
        for policy, expected_n, (s, f, x, u) in cases
    ]

    rows = await db.fetch(
        SAME_IN_SQL,
        [kind_of(policy)[0] for policy, _, _ in cases],
        [kind_of(policy)[1] for policy, _, _ in cases],
        [expected_n for _, expected_n, _ in cases],
        *([counts[place] for _, _, counts in cases] for place in range(4)),
    )

    assert [row[0] for row in rows] == here
    assert len(cases) == 14_700
