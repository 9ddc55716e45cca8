"""Join policies: how many upstreams must succeed, and when a join is decided."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.states import GroupPolicyKind, GroupState, OnSatisfied

Disposition: TypeAlias = OnSatisfied | Literal["cancel_remaining", "let_run"]


ARGUMENT: Final = "argument:"
"""The `data_passing_ref` of an edge whose result becomes one argument: this, and its name."""


class AllOf(msgspec.Struct, frozen=True):
    """Every upstream must succeed."""

    @property
    def kind(self) -> GroupPolicyKind:
        return GroupPolicyKind.ALL_OF

    def required(self, n: int) -> int:
        return n


class AnyOf(msgspec.Struct, frozen=True):
    """One success is enough; `on_satisfied` says what happens to the other upstreams."""

    on_satisfied: Disposition = "cancel_remaining"

    def __post_init__(self) -> None:
        _check_disposition(self.on_satisfied)

    @property
    def kind(self) -> GroupPolicyKind:
        return GroupPolicyKind.ANY_OF

    def required(self, n: int) -> int:
        return 1


class Quorum(msgspec.Struct, frozen=True):
    """`k` successes are enough; `on_satisfied` says what happens to the other upstreams."""

    k: int
    on_satisfied: Disposition = "cancel_remaining"

    def __post_init__(self) -> None:
        if type(self.k) is not int or self.k < 1:
            raise invalid_input("k", self.k, "must be a whole number of at least 1")
        _check_disposition(self.on_satisfied)

    @property
    def kind(self) -> GroupPolicyKind:
        return GroupPolicyKind.QUORUM

    def required(self, n: int) -> int:
        return self.k


JoinPolicy: TypeAlias = AllOf | AnyOf | Quorum


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The applied edges of a join, by outcome; `running` counts the unresolved ones."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    running: int = 0

    @property
    def n(self) -> int:
        return self.succeeded + self.failed + self.skipped + self.running


def decide(policy: JoinPolicy, counts: Counts, *, expected_n: int | None = None) -> GroupState:
    """The state of an undecided join; `ff.group_decision` is the same function in SQL."""
    n, required = counts.n, policy.required(counts.n)
    if expected_n is not None and n < expected_n:
        return GroupState.PENDING
    if n > 0 and counts.succeeded >= required:
        return GroupState.SATISFIED
    unsuccessful = counts.failed + counts.skipped
    if unsuccessful > n - required and (n >= required or counts.running == 0):
        return GroupState.IMPOSSIBLE
    return GroupState.PENDING


_KINDS: Final = {each.value: each for each in GroupPolicyKind}


def stored_policy(kind: str, k: int | None, on_satisfied: str | None) -> JoinPolicy:
    """The policy that is stored in the columns policy_kind, k and on_satisfied."""
    match _KINDS[kind]:
        case GroupPolicyKind.ALL_OF:
            return AllOf()
        case GroupPolicyKind.ANY_OF:
            return AnyOf(OnSatisfied(on_satisfied or ""))
        case GroupPolicyKind.QUORUM:
            return Quorum(k or 0, OnSatisfied(on_satisfied or ""))


def policy_columns(policy: JoinPolicy) -> tuple[str, int | None, str | None]:
    """The policy as the columns policy_kind, k and on_satisfied."""
    match policy:
        case AllOf():
            return policy.kind.value, None, None
        case AnyOf():
            return policy.kind.value, None, OnSatisfied(policy.on_satisfied).value
        case Quorum():
            return policy.kind.value, policy.k, OnSatisfied(policy.on_satisfied).value


def check_expected(policy: JoinPolicy, expected_n: int | None) -> None:
    """Raises `ValidationError(invalid_input)` if the quorum could never be reached."""
    if expected_n is None:
        return
    if type(expected_n) is not int or expected_n < 1:
        raise invalid_input("expected_n", expected_n, "must be a whole number of at least 1")
    if isinstance(policy, Quorum) and policy.k > expected_n:
        raise invalid_input("k", policy.k, f"is more than the {expected_n} expected edges")


def _check_disposition(given: str) -> None:
    if given not in OnSatisfied.__members__.values():
        raise invalid_input("on_satisfied", given, f"is not one of {', '.join(OnSatisfied)}")
