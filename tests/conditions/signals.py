"""Signals and conditions for tests: written short, or drawn at random."""

from __future__ import annotations

from uuid import UUID

import msgspec
from hypothesis import strategies as st

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
    UnknownCondition,
)

KEYS = ("a", "b", "c")
NAMES = ("yes", "no")


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, as far as a condition looks at it."""

    signal_id: UUID = UUID(int=0)
    signal_name: str = "yes"
    source_type: str = "user"
    source_identity: str = ""
    accepted_at: int = 0


def arrived(n: int, name: str = "yes", *, source: str = "", at: int | None = None) -> Arrived:
    """The signal number `n`, which came at that time."""
    return Arrived(
        signal_id=UUID(int=n),
        signal_name=name,
        source_identity=source,
        accepted_at=n if at is None else at,
    )


names = st.sampled_from((None, *NAMES))
singles = st.builds(Single, st.sampled_from(KEYS), names)
counts = st.builds(
    CountOf,
    st.integers(1, 3),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(tuple),
    st.sampled_from(("waitpoints", "signals", "sources")),
    names,
)
leaves: st.SearchStrategy[Condition] = st.one_of(
    singles,
    counts,
    st.just(OperatorOnly()),
    st.just(TimeoutOnly()),
    st.just(UnknownCondition('"X"')),
)
nested: st.SearchStrategy[Condition] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3).map(lambda members: AllConditions(tuple(members))),
    max_leaves=6,
)
conditions: st.SearchStrategy[Condition] = st.one_of(
    nested, st.lists(nested, max_size=3).map(lambda members: AnyCondition(tuple(members)))
)
_signals = st.builds(
    Arrived,
    signal_id=st.integers(0, 3).map(lambda n: UUID(int=n)),
    signal_name=st.sampled_from(NAMES),
    source_type=st.sampled_from(("user", "bot")),
    source_identity=st.sampled_from(("", "ann")),
    accepted_at=st.integers(0, 5),
)
arrivals = st.dictionaries(st.sampled_from((*KEYS, "other")), st.lists(_signals, max_size=4))
