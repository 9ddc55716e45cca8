"""Rules of time, of what happens without a caller, and of readers."""

from __future__ import annotations

from hypothesis import strategies as st

from flowfabric.reconcile.sweeps import SWEEPS
from tests.proofs.model import dispatch, reads
from tests.proofs.model.common import BY_NAME, Common, move, which

DUE = (
    "promote_due",
    "expire_leases",
    "expire_attempts",
    "expire_suspensions",
    "expire_pending_waitpoints",
    "expire_executions",
    "reconcile_cancels",
)
OFTEN = (
    *DUE,
    "dispatch_completions",
    "cancel_siblings",
    "end_parked_members",
    "project_unsettled",
)


FARTHEST_MS = 120_000


class TimeRules(Common):
    """The clock, the sweeps, lost answers and reads."""

    @move(number=which, flow=which)
    def describe(self, number: int, flow: int) -> None:
        meant, graph = self.execution(number), self.flow(flow)
        self.both(
            "describe_execution",
            lambda engine: engine.describe_execution(meant),
            lambda _: reads.describe_execution(self.world, meant),
            only=meant,
        )
        self.both(
            "describe_flow",
            lambda engine: engine.describe_flow(graph),
            lambda _: reads.describe_flow(self.world, graph),
        )

    @move(seconds=st.sampled_from((0.5, 2, 5, 11, 30)))
    def advance(self, seconds: float) -> None:
        self.real.advance(seconds)
        self.world.now_ms += round(seconds * 1000)

    @move(
        number=which,
        aside_ms=st.sampled_from((-1, 0, 1)),
    )
    def advance_to_an_edge(self, number: int, aside_ms: int) -> None:
        """To the very millisecond at which something runs out, or beside it, and what is due."""
        edges = sorted(self._instants())
        if edges:
            self.advance((edges[number % len(edges)] + aside_ms - self.world.now_ms) / 1000)
        for name in DUE:
            self.sweep_once(name)

    def _instants(self) -> set[int]:
        instants = {
            instant
            for each in self.world.executions.values()
            for instant in (
                each.lease_expires_at_ms,
                each.attempt_timeout_at_ms,
                each.delay_until_ms,
                each.deadline_at_ms,
            )
            if instant is not None
        }
        for each in self.world.executions.values():
            instants |= {one.expires_at_ms for one in each.waitpoints.values() if one.expires_at_ms}
            if each.suspension is not None and each.suspension.timeout_at_ms is not None:
                instants.add(each.suspension.timeout_at_ms)
        instants |= {flow.owed_after_ms for flow in self.world.flows.values()}
        instants |= {expires for _, expires in self.world.keys.values()}
        horizon = self.world.now_ms + FARTHEST_MS
        return {instant for instant in instants if self.world.now_ms < instant < horizon}

    @move(name=st.sampled_from(OFTEN))
    def sweep(self, name: str) -> None:
        self.sweep_once(name)

    @move(first=st.integers(0, len(SWEEPS) - 1))
    def reconcile(self, first: int) -> None:
        """Three sweeps of the table, one after the other."""
        for name in [*BY_NAME, *BY_NAME][first : first + 3]:
            self.sweep_once(name)

    @move()
    def dispatch(self) -> None:
        self.both(
            "dispatch",
            lambda engine: engine.dispatch(),
            lambda _: dispatch.dispatch(self.world),
        )

    @move()
    def crash(self) -> None:
        """The answer of the last call was lost, so it is made again."""
        if self.last is not None:
            operation, ask, expect, meant = self.last
            self.both(operation, ask, expect, **meant)
