"""Rules of handlers that wait, of outsiders with tokens, and of operators who let them go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
)
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.suspension import (
    Binding,
    Fresh,
    ResumePolicy,
    SuspendRequest,
    UsePending,
)
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import SuspensionReason, TimeoutBehavior
from tests.proofs.model import suspending, waits
from tests.proofs.model.common import move, some, which
from tests.proofs.model.execution_rules import ExecutionRules
from tests.proofs.model.records import Execution
from tests.proofs.model.wait_records import Received, Waitpoint

KEYS = ("door", "gate")
NAMES = ("go", "stop")
A, B = KEYS
CONDITIONS: tuple[Condition, ...] = (
    Single(A),
    Single(A, "go"),
    CountOf(2, (A,), "signals"),
    CountOf(2, (A,), "sources", "go"),
    OperatorOnly(),
    AllConditions((Single(A, "go"), Single(B))),
    CountOf(1, KEYS, "waitpoints"),
    CountOf(2, KEYS, "waitpoints", "go"),
    AllConditions((CountOf(2, KEYS, "sources"), Single(B, "stop"))),
)
"""Those on one waitpoint, then those on two."""


class WaitRules(ExecutionRules):
    """Waitpoints, suspensions, signals with tokens, timeouts and resumes."""

    @move(
        condition=st.sampled_from(CONDITIONS),
        handler=st.booleans(),
        timeout=st.sampled_from((None, 5, 20)),
        behavior=st.sampled_from(TimeoutBehavior),
        early=st.sampled_from((0, 0, 1, 2)),
        late=st.integers(0, 4),
    )
    def wait_for_signals(self, early: int, late: int, **fields: Any) -> None:
        """A holder makes waitpoints and is suspended on them; signals come before and after."""
        if not self._holding():
            self.claim_everything(ttl=60)
        holding = self._holding()
        if not holding:
            return
        meant = self.chance.choice(holding).execution_id
        lease = self.held_by(meant)
        for key in KEYS:
            self._create_waitpoint(lease, key, self.chance.choice((30, 600)))
        for _ in range(early):
            self._signal(meant)
        self._suspend(lease, bound=0, delay=None, key=None, **fields)
        for _ in range(late):
            self._signal(meant)

    def _holding(self) -> list[Execution]:
        now = self.world.now_ms
        held = (e for e in self.world.executions.values() if e.lifecycle_phase == "active")
        return [each for each in held if (each.lease_expires_at_ms or 0) > now]

    def _signal(self, meant: ExecutionId) -> None:
        """A signal with the right token on one of the open waitpoints."""
        [one, *_] = self.chance.choices(self._waitpoints(self.world.executions[meant]))
        token = suspending.token_of(meant, one.waitpoint_id).reveal()
        name, source = self.chance.choice(NAMES), self.chance.choice(("ann", "bob"))
        self._deliver(meant, one.waitpoint_id, token, name, source)

    @move(number=which, how=some, key=st.sampled_from(KEYS), seconds=st.sampled_from((3, 60, 600)))
    def create_waitpoint(self, number: int, how: int, key: str, seconds: int) -> None:
        self._create_waitpoint(self.held(number, how), key, seconds)

    def _create_waitpoint(self, lease: Lease, key: str, seconds: int) -> None:
        waitpoint_id = self.uuid()

        async def made(engine: Engine) -> tuple[UUID, str]:
            answer = await engine.create_waitpoint(
                lease, key, expires_in=seconds, waitpoint_id=waitpoint_id
            )
            return answer.waitpoint_id, answer.token.reveal()

        self.both(
            "create_waitpoint",
            made,
            lambda _: suspending.create_waitpoint(
                self.world, lease, key, expires_ms=seconds * 1000, waitpoint_id=waitpoint_id
            ),
            only=lease.execution_id,
        )

    @move(
        number=which,
        how=some,
        condition=st.sampled_from(CONDITIONS),
        bound=some,
        handler=st.booleans(),
        timeout=st.sampled_from((None, None, 5, 20, -700)),
        behavior=st.sampled_from(TimeoutBehavior),
        delay=st.sampled_from((None, None, 3)),
        key=st.sampled_from((None, None, "s1", "s2")),
    )
    def suspend(self, number: int, how: int, **fields: Any) -> None:
        self._suspend(self.held(number, how), **fields)

    def _suspend(self, lease: Lease, bound: int, handler: bool, **fields: Any) -> None:
        condition, timeout = fields["condition"], fields["timeout"]
        bindings = self._bindings(lease.execution_id, condition, bound)
        awaits: dict[str, Any] = {}
        if handler:
            each = self.world.executions.get(lease.execution_id)
            read = 0 if each is None or bound == 1 else each.signal_seq
            alone = isinstance(condition, OperatorOnly)
            bindings = () if alone else bindings
            condition = condition if alone else AnyCondition((condition,))
            awaits = {"keeps_waitpoints": True, "awaits_signals": ("go",), "signals_read": read}
        elif bound == 2 and timeout is not None:
            condition = TimeoutOnly()
            bindings = bindings[:1]
        request = SuspendRequest(
            lease=lease,
            suspension_id=self.uuid(),
            bindings=bindings,
            condition=condition,
            reason=SuspensionReason.WAITING_FOR_APPROVAL,
            timeout_at=timeout and instant(self.world.now_ms) + timedelta(seconds=timeout),
            timeout_behavior=fields["behavior"],
            resume_policy=ResumePolicy(resume_delay=fields["delay"]),
            idempotency_key=fields["key"],
            **awaits,
        )

        async def suspended(engine: Engine) -> Any:
            [answer] = await engine.suspend([request])
            return answer

        self.both(
            "suspend",
            suspended,
            lambda _: suspending.suspend(self.world, request),
            only=lease.execution_id,
        )

    def _bindings(
        self, execution_id: ExecutionId, condition: Condition, bound: int
    ) -> tuple[Binding, ...]:
        """Waitpoints that the condition is on: pending ones if there are any, else fresh ones."""
        each = self.world.executions.get(execution_id)
        wanted = KEYS if condition in CONDITIONS[5:] else KEYS[:1]
        bindings: list[Binding] = []
        for key in wanted:
            known = self._waitpoints(each, key)
            if bound == 3:
                known = self._waitpoints(self._any_with_waitpoints(bound))
            if not known or bound > 9:
                known_key = None if isinstance(condition, OperatorOnly) else key
                bindings.append(Fresh(waitpoint_key=known_key, waitpoint_id=self.uuid()))
            else:
                bindings.append(UsePending(waitpoint_id=self.chance.choice(known).waitpoint_id))
        return tuple(bindings)

    def _waitpoints(self, each: Execution | None, key: str | None = None) -> list[Waitpoint]:
        """The waitpoints of an execution, or of a key: the open ones if there are any."""
        found = [] if each is None else list(each.waitpoints.values())
        found = [one for one in found if key in (None, one.waitpoint_key)]
        return [one for one in found if one.state != "closed"] or found

    def _any_with_waitpoints(self, number: int) -> Execution | None:
        """An execution that has a waitpoint: a suspended one, or any."""
        having = [each for each in self.world.executions.values() if each.waitpoints]
        waiting = [each for each in having if each.lifecycle_phase == "suspended"]
        having = waiting if waiting and number % 2 else having
        return self.chance.choice(having) if having else None

    @move(
        number=which,
        how=some,
        name=st.sampled_from(NAMES),
        source=st.sampled_from(("ann", "bob")),
        key=st.sampled_from((None, None, "k1", "k2")),
        delay=st.sampled_from((None, None, 0, 4)),
    )
    def deliver_signal(
        self, number: int, how: int, name: str, source: str, key: str | None, delay: int | None
    ) -> None:
        each = self._any_with_waitpoints(number) if number < 24 else None
        meant = self.execution(number) if each is None else each.execution_id
        known = self._waitpoints(each)
        waitpoint_id = self.chance.choice(known).waitpoint_id if known else self.uuid()
        token = suspending.token_of(meant, waitpoint_id).reveal()
        token = {0: "", 1: suspending.token_of(meant, self.uuid()).reveal()}.get(how, token)
        if how == 2:
            waitpoint_id = self.uuid()
        self._deliver(meant, waitpoint_id, token, name, source, key=key, delay=delay)

    def _deliver(
        self,
        meant: ExecutionId,
        waitpoint_id: UUID,
        token: str,
        name: str,
        source: str,
        *,
        key: str | None = None,
        delay: int | None = None,
    ) -> None:
        signal_id = self.uuid()
        self.both(
            "deliver_signal",
            lambda engine: engine.deliver_signal(
                meant,
                waitpoint_id,
                token,
                name,
                signal_id=signal_id,
                source_identity=source,
                idempotency_key=key,
                resume_delay=delay,
            ),
            lambda _: waits.deliver_signal(
                self.world,
                meant,
                waitpoint_id,
                token,
                Received(signal_id, name, source, self.world.now_ms),
                key=key,
                delay_ms=None if delay is None else delay * 1000,
            ),
            only=meant,
        )

    @move(number=which, how=some)
    def close_waitpoint(self, number: int, how: int) -> None:
        each = self._any_with_waitpoints(number) if number < 20 else None
        meant = self.execution(number) if each is None else each.execution_id
        known = self._waitpoints(each)
        waitpoint_id = self.chance.choice(known).waitpoint_id if known and how else self.uuid()
        self.both(
            "close_waitpoint",
            lambda engine: engine.close_waitpoint(meant, waitpoint_id, reason="enough"),
            lambda _: waits.close_waitpoint(self.world, meant, waitpoint_id, "enough"),
            only=meant,
        )

    @move(number=which, delay=st.sampled_from((0, 0, 4)))
    def resume_execution(self, number: int, delay: int) -> None:
        meant = self.execution(number)
        self.both(
            "resume_execution",
            lambda engine: engine.resume_execution(meant, delay=delay),
            lambda _: waits.resume_execution(self.world, meant, delay_ms=delay * 1000),
            only=meant,
        )

    @move(number=which)
    def wake_execution(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "wake_execution",
            lambda engine: engine.wake_execution(meant),
            lambda _: waits.wake_execution(self.world, meant),
            only=meant,
        )

    @move(number=which)
    def expire_suspension(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "expire_suspension",
            lambda engine: engine.expire_suspension(meant),
            lambda _: waits.expire_suspension(self.world, meant),
            only=meant,
        )
