"""The whole machine: every rule, and how often it is run from which seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from flowfabric.states import TimeoutBehavior
from tests.proofs.model.common import JOINS, LANES, POLICIES, moves_of
from tests.proofs.model.control_rules import ControlRules
from tests.proofs.model.durable_rules import DurableRules
from tests.proofs.model.execution_rules import ExecutionRules
from tests.proofs.model.flow_rules import FlowRules
from tests.proofs.model.real import Real
from tests.proofs.model.tally import Tally
from tests.proofs.model.time_rules import TimeRules
from tests.proofs.model.wait_rules import CONDITIONS, WaitRules

Move = tuple[str, dict[str, Any]]


class Machine(WaitRules, ControlRules, FlowRules, TimeRules, DurableRules):
    """Submitters and workers, operators, builders of flows, and time."""

    @rule(move=moves_of(ExecutionRules))
    def work(self, move: Move) -> None:
        self._make(move)

    @rule(move=moves_of(ControlRules))
    def operate(self, move: Move) -> None:
        self._make(move)

    @rule(move=moves_of(FlowRules))
    def build(self, move: Move) -> None:
        self._make(move)

    @rule(move=moves_of(TimeRules))
    def pass_time(self, move: Move) -> None:
        self._make(move)

    @rule(move=moves_of(DurableRules))
    def go_on(self, move: Move) -> None:
        self._make(move)

    @rule(move=moves_of(WaitRules))
    def wait(self, move: Move) -> None:
        self._make(move)

    def _make(self, move: Move) -> None:
        name, arguments = move
        getattr(self, name)(**arguments)

    @initialize(salt=st.integers(0, 2**32), length=st.integers(0, 16))
    def begin(self, salt: int, length: int) -> None:
        """Some executions and a flow that have come some way, so that every state is around.

        The ids are drawn too: which of two is the smaller decides who is claimed first.
        """
        self.chance = random.Random(salt)
        choice = self.chance.choice
        self.submit_flow(
            many=self.chance.randint(2, 5),
            arrows=self.chance.randint(1, 2**10 - 1),
            join=choice(JOINS),
            lane=LANES[0],
            how=2,
            policy=choice(POLICIES),
            ref="data",
        )
        for _ in range(2):
            self.create(
                home=self.chance.randrange(4),
                many=2,
                lane=LANES[1],
                priority=0,
                policy=choice(POLICIES),
                delay=choice((None, None, 4)),
                deadline=choice((None, 3)),
                hold=None,
            )
        for _ in range(length):
            choice(self._moves())()

    def _moves(self) -> list[Callable[[], None]]:
        """Honest moves that bring executions on."""
        who = self.chance.randrange(31)
        return [
            lambda: self.claim_everything(ttl=60),
            lambda: self.claim_everything(ttl=2),
            lambda: self.complete(who, how=0, also=11, result=b"r0"),
            lambda: self.complete(who, how=0, also=11, result=None),
            lambda: self.fail(who, how=0, category="permanent", after=None),
            lambda: self.fail(who, how=0, category="transient", after=None),
            lambda: self.delay(who, how=0, seconds=3),
            lambda: self.cancel(who, how=0),
            self._wait_for_signals,
            self._wait_for_signals,
            lambda: self.block(who, reason="waiting_for_quota", detail=None),
            lambda: self.advance(5),
            lambda: self.sweep("expire_executions"),
            lambda: self.sweep("expire_leases"),
            self.dispatch,
            self.dispatch,
        ]

    def _wait_for_signals(self) -> None:
        self.wait_for_signals(
            condition=self.chance.choice(CONDITIONS),
            handler=self.chance.random() < 0.5,
            timeout=20,
            behavior=self.chance.choice(list(TimeoutBehavior)),
            early=self.chance.randrange(2),
            late=self.chance.randrange(3),
        )


class Fresh(HypothesisProvider):
    """Every run is drawn anew: of a walk this long a copy with one change proves little."""


AVAILABLE_PROVIDERS["fresh"] = f"{Fresh.__module__}.{Fresh.__qualname__}"


def run(real: Real, tally: Tally, *, runs: int, steps: int, from_seed: int) -> None:
    """Run the machine; raises `Divergence`, its notes naming the calls that led to it."""
    machine = seed(from_seed)(type("Machine", (Machine,), {"real": real, "tally": tally}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            phases=[Phase.generate],
            backend="fresh",
            database=None,
            derandomize=False,
            deadline=None,
            print_blob=False,
            suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
        ),
    )
