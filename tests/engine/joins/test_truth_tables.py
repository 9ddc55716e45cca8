"""Every policy with every sequence of ends, against a second writing of the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.testing import Clock
from tests.engine.flows.graphs import end_all, fan_in, member, submitted
from tests.engine.flows.model import Group, cancels

MATRIX = """
S S S | . . SAT | SAT . . | . SAT . | . . SAT
S F S | . IMP . | SAT . . | . . SAT | . IMP .
F S S | IMP . . | . SAT . | . . SAT | IMP . .
F F S | IMP . . | . . SAT | . IMP . | IMP . .
F K F | IMP . . | . . IMP | . IMP . | IMP . .
K S S | IMP . . | . SAT . | . . SAT | IMP . .
"""
"""The table of flows.md 5.3: events, then what happens under all, any, two and three of three."""


def policies(n: int) -> list[JoinPolicy]:
    """Every policy that can be said of `n` upstreams."""
    ways = ("cancel_remaining", "let_run")
    return [
        AllOf(),
        *(AnyOf(way) for way in ways),
        *(Quorum(k, way) for k in range(1, n + 1) for way in ways),
    ]


class Case:
    """One group in the database, and the same group in the model."""

    def __init__(self, flow_id: UUID, policy: JoinPolicy, sequence: str, number: int) -> None:
        self.policy, self.sequence = policy, sequence
        self.upstreams = [member(flow_id) for _ in sequence]
        self.downstream = member(flow_id)
        self.model = Group(policy, len(sequence))
        self.decided_at: int | None = None
        self.listed: set[UUID] = set()
        self.number = number

    def letter(self, place: int) -> str:
        """How the upstream ends; a failure is any of the three that count as one."""
        letter = self.sequence[place]
        return "FCE"[(self.number + place) % 3] if letter == "F" else letter

    def hear(self, place: int, now: int, ended: int) -> None:
        """The model hears of an end; `ended` upstreams are over when it does."""
        if self.model.hear(self.sequence[place]):
            self.decided_at = now
            if cancels(self.policy):
                self.listed = {each.execution_id.uuid for each in self.upstreams[ended:]}

    @property
    def expected(self) -> tuple[Any, ...]:
        downstream = {
            "pending": ("waiting_children", 0),
            "satisfied": ("waiting", 0),
            "impossible": ("skipped", 1),
        }[self.model.state]
        reason = f"sibling_quorum_{self.model.state}" if self.listed else None
        return (str(self.model), self.decided_at, *downstream, reason, self.listed)


def cases(flow_id: UUID, n: int) -> list[Case]:
    return [
        Case(flow_id, policy, "".join(sequence), number)
        for number, (policy, sequence) in enumerate(product(policies(n), product("SFK", repeat=n)))
    ]


async def submit(engine: Engine, flow_id: UUID, made: list[Case]) -> None:
    """All groups in one flow."""
    await engine.submit_flow(
        NewFlow(
            flow_id=flow_id,
            flow_kind="truth",
            members=[each for case in made for each in (*case.upstreams, case.downstream)],
            edges=[
                NewEdge(upstream=up.execution_id, downstream=case.downstream.execution_id)
                for case in made
                for up in case.upstreams
            ],
            policies={case.downstream.execution_id: case.policy for case in made},
        )
    )


FOUND = """
SELECT g.*, d.public_state,
       (SELECT count(*) FROM ff.completion_event c WHERE c.execution_id = g.waiter_eid) AS told
  FROM ff.edge_group g
  JOIN ff.execution d ON (d.partition_key, d.execution_id) = (g.partition_key, g.waiter_eid)
"""


async def found(db: Connection) -> dict[UUID, tuple[Any, ...]]:
    """Every group as it stands, written as the model writes it."""
    return {
        row["waiter_eid"]: (
            f"{row['success_count']}/{row['fail_count']}/{row['skip_count']}/{row['running_count']}"
            f" {row['group_state']}",
            row["fired_at_ms"],
            row["public_state"],
            row["told"],
            row["cancel_siblings_reason"],
            set(row["cancel_siblings_pending_members"] or ()),
        )
        for row in await db.fetch(FOUND)
    }


async def compare(db: Connection, made: list[Case]) -> None:
    stored = await found(db)
    for case in made:
        assert stored[case.downstream.execution_id.uuid] == case.expected, (
            case.policy,
            case.sequence,
        )


async def end(db: Connection, made: list[Case], place: int) -> None:
    """The upstreams at one place end, each as its sequence says."""
    for letter in "SFCEK":
        ending: list[ExecutionId] = [
            case.upstreams[place].execution_id for case in made if case.letter(place) == letter
        ]
        await end_all(db, ending, letter)


async def carry(db: Connection) -> int:
    """Every end is carried; how many it were."""
    total = 0
    while True:
        async with db.transaction():
            moved = await dispatch_completions(db)
        if not moved:
            return total
        total += moved


def skipped(made: list[Case]) -> int:
    return sum(case.model.state == "impossible" for case in made)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
async def test_one_end_at_a_time(db: Connection, ff_engine: Engine, clock: Clock, n: int) -> None:
    made = cases(flow_id := uuid4(), n)
    await submit(ff_engine, flow_id, made)
    await compare(db, made)
    carried = 0

    for place in range(n):
        await clock.advance(1)
        await end(db, made, place)
        carried += await carry(db)
        now = await clock.now_ms()
        for case in made:
            case.hear(place, now, place + 1)
        await compare(db, made)
        assert carried == len(made) * (place + 1) + skipped(made)

    assert {case.model.state for case in made} >= {"satisfied", "impossible"}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
async def test_all_ends_in_one_dispatch(
    db: Connection, ff_engine: Engine, clock: Clock, n: int
) -> None:
    made = cases(flow_id := uuid4(), n)
    await submit(ff_engine, flow_id, made)
    now = await clock.now_ms()

    for chunk in chunks(made, 256 // n):
        for place in range(n):
            await end(db, chunk, place)
        async with db.transaction():
            assert await dispatch_completions(db) == len(chunk) * n
        for case in chunk:
            for place in range(n):
                case.hear(place, now, n)
        await compare(db, chunk)
        assert await carry(db) == skipped(chunk)

    await compare(db, made)


def chunks(made: list[Case], size: int) -> Iterator[list[Case]]:
    for first in range(0, len(made), size):
        yield made[first : first + size]


def rows_of_the_matrix() -> Iterator[tuple[JoinPolicy, str, Sequence[str]]]:
    for line in MATRIX.strip().splitlines():
        events, *columns = (cell.split() for cell in line.split("|"))
        for policy, expected in zip(
            (AllOf(), AnyOf("let_run"), Quorum(2, "let_run"), Quorum(3, "let_run")),
            columns,
            strict=True,
        ):
            yield policy, "".join(events), expected


@pytest.mark.parametrize(("policy", "events", "expected"), list(rows_of_the_matrix()))
async def test_the_matrix_one_event_in_each_dispatch(
    ff_engine: Engine, policy: JoinPolicy, events: str, expected: list[str]
) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": policy})
    words = {"waiting_children": ".", "waiting": "SAT", "skipped": "IMP"}
    seen, before = [], "."

    for number, letter in enumerate(events, 1):
        await flow.end(f"u{number}", letter)
        assert await flow.carry(limit=1) == 1
        after = words[await flow.state("d")]
        seen.append(after if after != before else ".")
        before = after
        await flow.carry_all()

    assert seen == expected
