"""What all rules share: the two sides, who may be meant, and the comparison after each step."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS
from tests.proofs.model import sweeps, views
from tests.proofs.model.answers import Divergence, attempt, is_refusal, same
from tests.proofs.model.invariants import broken_moves
from tests.proofs.model.real import START_MS, Real
from tests.proofs.model.records import World
from tests.proofs.model.tally import Tally

F = TypeVar("F", bound=Callable[..., Any])
Ask = Callable[[Engine], Awaitable[Any]]
Expect = Callable[[Any], Any]

BY_NAME = {sweep.name: sweep for sweep in SWEEPS}
LANES = ("fast", "slow")
POLICIES: Sequence[ExecutionPolicy | None] = (
    None,
    ExecutionPolicy(retry_policy=RetryPolicy(max_retries=2, backoff=FixedBackoff(delay=0))),
    ExecutionPolicy(
        retry_policy=RetryPolicy(max_retries=2, retryable_categories=("transient",)),
        max_replay_count=1,
    ),
    ExecutionPolicy(max_reclaim_count=1, dedup_window=8),
    ExecutionPolicy(
        timeout_policy=TimeoutPolicy(attempt_timeout=12),
        retry_policy=RetryPolicy(max_retries=1, backoff=FixedBackoff(delay=3)),
    ),
    ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=6, execution_deadline=30)),
)
JOINS: Sequence[JoinPolicy] = (
    AllOf(),
    AllOf(),
    AnyOf(),
    AnyOf("let_run"),
    Quorum(2),
    Quorum(2, "let_run"),
)

which = st.integers(0, 31)
"""Who is meant: an index into whatever there is."""
some = st.integers(0, 11)
"""How it is meant; see the rule."""


OLD = 6
"""A lease that was given out at some time; a smaller number is that of a holder."""


def _as_it_is(lease: Lease, _: UUID) -> Lease:
    return lease


FORGED: dict[int, Callable[[Lease, UUID], Lease]] = {
    8: lambda lease, other: msgspec.structs.replace(lease, lease_id=other),
    9: lambda lease, _: msgspec.structs.replace(lease, lease_epoch=lease.lease_epoch - 1),
    10: lambda lease, _: msgspec.structs.replace(lease, attempt_index=lease.attempt_index + 1),
    11: lambda lease, _: msgspec.structs.replace(
        lease, attempt_index=max(0, lease.attempt_index - 1), lease_epoch=lease.lease_epoch + 1
    ),
}


def move(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """The method is a move, made with arguments of these kinds."""

    def marked(method: F) -> F:
        method.__dict__["arguments"] = arguments
        return method

    return marked


def moves_of(actor: type) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Any move of an actor with its arguments, every move as likely as any."""
    return st.one_of(
        [
            st.tuples(st.just(name), st.fixed_dictionaries(method.arguments))
            for name, method in vars(actor).items()
            if hasattr(method, "arguments")
        ]
    )


class Common(RuleBasedStateMachine):
    """The engine and the model, and one call after the other on both."""

    real: ClassVar[Real]
    tally: ClassVar[Tally]

    def __init__(self) -> None:
        super().__init__()
        self.real.empty()
        self.world = World(START_MS)
        self.chance = random.Random(0)
        self.ids: list[ExecutionId] = []
        self.flow_ids: list[UUID] = []
        self.edge_ids: list[tuple[UUID, UUID]] = []
        self.leases: list[Lease] = []
        self.before: Sequence[Any] = ()
        self.last: tuple[str, Ask, Expect, dict[str, ExecutionId]] | None = None
        self.tally.runs += 1

    # Two sides.

    def both(self, operation: str, ask: Ask, expect: Expect, **meant: ExecutionId) -> Any:
        """The same call on the engine and on the model, which must answer alike."""
        for role, execution_id in meant.items():
            each = self.world.executions.get(execution_id)
            if each is not None:
                name = operation if role == "only" else f"{operation}: {role}"
                self.tally.tried(each.public_state, name)
        self.last = (operation, ask, expect, meant)
        told = self.real.ask(ask)
        expected = attempt(lambda: expect(told))
        self.tally.answered(operation, refused=is_refusal(told))
        if not same(told, expected):
            raise Divergence(f"{operation}: answered {told!r}, expected {expected!r}")
        return told

    def sweep_once(self, name: str) -> None:
        self.both(
            name,
            lambda engine: sweep_all(engine.pool, BY_NAME[name]),
            lambda told: self._swept(name, told),
        )

    def _swept(self, name: str, told: object) -> object:
        expected = sweeps.SWEEPS[name](self.world)
        return told if name in sweeps.UNCOUNTED and isinstance(told, int) else expected

    @invariant()
    def alike(self) -> None:
        """Both sides show the same state, and what must always be true is true."""
        self.tally.steps += 1
        stored, graphs, broken = self.real.look()
        found = views.difference(stored, views.executions(self.world))
        found = found or views.difference(graphs, views.graphs(self.world))
        broken = broken + broken_moves(self.before, stored)
        if found or broken:
            raise Divergence(f"after {self.last and self.last[0]}: {found or broken}")
        self.before = stored

    # Who is meant.

    def uuid(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    def new(self, home: int | None = None, **fields: Any) -> NewExecution:
        """An execution to create, in the partition of a flow or in its own."""
        own = self.uuid()
        made = ExecutionId(uuid_partition(own) if home is None else home, own)
        fields.setdefault("execution_id", made)
        fields.setdefault("execution_kind", "job")
        return NewExecution(**fields)

    def execution(self, number: int) -> ExecutionId:
        """One that was created, every state as likely as any; or one that nobody knows."""
        return self.any_of(self.ids, number) if number != 31 else self.new().execution_id

    def any_of(self, ids: Sequence[ExecutionId], number: int) -> ExecutionId:
        """One of these: `number` names its state, chance the rest."""
        by_state: dict[str, list[ExecutionId]] = {}
        for each in ids:
            by_state.setdefault(self.world.executions[each].public_state, []).append(each)
        if not by_state:
            return self.new().execution_id
        return self.chance.choice(by_state[sorted(by_state)[number % len(by_state)]])

    def flow(self, number: int) -> UUID:
        """One that was created; sometimes one that nobody knows."""
        if not self.flow_ids or number == 31:
            return self.uuid()
        return self.flow_ids[number % len(self.flow_ids)]

    def held(self, number: int, how: int) -> Lease:
        """A lease: of a holder, of somebody who was one, or made up."""
        holding = [e for e in self.world.executions.values() if e.lifecycle_phase == "active"]
        meant = self.execution(number)
        if how == OLD and self.leases:
            return self.chance.choice(self.leases)
        if holding and (how < OLD or (how > OLD and number % 2)):
            meant = self.chance.choice(holding).execution_id
        if meant not in self.world.executions:
            return Lease(meant, 0, 1, self.uuid())
        return FORGED.get(how, _as_it_is)(self.held_by(meant), self.uuid())

    def held_by(self, execution_id: ExecutionId) -> Lease:
        """The lease that an execution is under, or was last."""
        each = self.world.executions[execution_id]
        lease_id = each.lease_id or self.uuid()
        return Lease(execution_id, each.attempt_index, each.lease_epoch, lease_id)
