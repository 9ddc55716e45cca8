"""Clients that do anything to a few executions at once, on lines that are cut under them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Created, NewExecution
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.operators.revoke_lease import LeaseRevoked
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotTerminal,
    FlowFabricError,
    LeaseExpired,
    MaxReplaysExhausted,
    NotFound,
    OperationTimeout,
    RetryExhausted,
    StaleLease,
    TransportError,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from tests.proofs.chaos.proxy import Proxy, Trap
from tests.proofs.history.log import Answer, Held, Log, Op
from tests.proofs.history.spec import MAX_REPLAYS, MAX_RETRIES

TTL: Final = 3600.0
"""Leases do not run out while a history lasts; they are taken away instead."""
POLICY: Final = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=MAX_RETRIES, backoff=FixedBackoff(delay=0)),
    max_replay_count=MAX_REPLAYS,
)
GARBLED: Final = 0.2
"""The share of calls with a handle that was never given out."""
NO_CLAIM: Final = -1
WEIGHTS: Final = {
    "create": 5,
    "claim": 20,
    "renew": 6,
    "complete": 12,
    "retry": 8,
    "fail": 4,
    "release": 5,
    "give_up": 3,
    "cancel": 6,
    "replay": 10,
    "revoke": 5,
    "describe": 12,
}
NEEDS_LEASE: Final = frozenset({"renew", "complete", "retry", "fail", "release", "give_up"})
STATEMENTS: Final = {
    "create": ("lifecycle.create_execution",),
    "claim": ("lifecycle.claim",),
    "renew": ("lifecycle.renew",),
    "complete": ("lifecycle.complete",),
    "retry": ("lifecycle.fail",),
    "fail": ("lifecycle.fail",),
    "release": ("lifecycle.release",),
    "give_up": ("lifecycle.cancel",),
    "cancel": ("commit", "lifecycle.terminalize"),
    "replay": ("commit", "lifecycle.restart"),
    "revoke": ("commit", "lifecycle.revoke"),
    "describe": ("executions.describe",),
}


class Subject:
    """One execution that is fought over, and the leases that were given out on it."""

    def __init__(self) -> None:
        self.id = ExecutionId.mint()
        self.kind = f"job-{self.id.uuid}"
        self.leases: list[tuple[Held, Lease]] = []


class Actor:
    """One client with one line."""

    def __init__(self, name: str, engine: Engine, proxy: Proxy, log: Log, chance: random.Random):
        self._engine, self._proxy, self._log, self._chance = engine, proxy, log, chance
        self._claimant = lambda subject: Claimant(
            worker_id="w", worker_instance_id=name, lanes=("default",), kinds=(subject.kind,)
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls, name: str, dsn: str, log: Log, chance: random.Random
    ) -> AsyncGenerator[Actor]:
        async with Proxy.to(dsn) as proxy:
            config = DatabaseConfig(dsn=proxy.dsn, pool_size=1, listen=False)
            engine = await Engine.connect(config, role=name)
            try:
                yield cls(name, engine, proxy, log, chance)
            finally:
                await engine.close()

    def cut(self) -> None:
        """Whatever is on the line now has no answer."""
        self._proxy.cut()

    async def act(self, subject: Subject, *, trapped: bool) -> None:
        """One call, noted with its answer."""
        [name] = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        held, lease = None, None
        if name in NEEDS_LEASE:
            if not subject.leases:
                name = "create" if self._chance.random() < 0.3 else "claim"
            else:
                held, lease = self._chance.choice(subject.leases[-3:])
                if self._chance.random() < GARBLED:
                    held, lease = self._garbled(*subject.leases[-1])
        if trapped:
            statement = self._chance.choice(STATEMENTS[name])
            when = self._chance.choice(("before", "after", "after"))
            self._proxy.set_trap(Trap(statement, when))
        op = self._log.invoke(subject.id, name, held)
        try:
            answer = await self._call(name, subject, lease, op)
        except (TransportError, OperationTimeout):
            pass  # nobody knows
        except RetryExhausted:
            self._log.refused(op)
        except FlowFabricError as error:  # no such call should ever hear it
            self._log.told(op, ("error", str(error)))
        else:
            self._log.told(op, answer)
        self._proxy.clear_traps()

    def _garbled(self, held: Held, lease: Lease) -> tuple[Held, Lease]:
        """The handle with one part that is wrong: nobody holds such a lease."""
        replace = msgspec.structs.replace
        match self._chance.randrange(3):
            case 0:
                epoch = max(0, held.epoch + self._chance.choice((-1, 1)))
                return replace(held, epoch=epoch), replace(lease, lease_epoch=epoch)
            case 1:
                attempt = max(0, held.attempt + self._chance.choice((-1, 1)))
                return replace(held, attempt=attempt), replace(lease, attempt_index=attempt)
            case _:
                return replace(held, claim=NO_CLAIM), replace(lease, lease_id=uuid4())

    async def _call(self, name: str, subject: Subject, lease: Lease | None, op: Op) -> Answer:
        if name == "claim":
            return await self._claim(subject, op)
        if lease is not None:
            [answer] = await self._hold(name, lease)
            return _told(answer)
        return await _ask(self._engine, name, subject)

    async def _claim(self, subject: Subject, op: Op) -> Answer:
        found = await self._engine.claim(self._claimant(subject), ttl=TTL)
        if not found:
            return ("nothing",)
        lease = found[0].lease
        assert lease.execution_id == subject.id
        held = Held(op.number, lease.attempt_index, lease.lease_epoch)
        subject.leases.append((held, lease))
        return ("claimed", held.attempt, held.epoch)

    async def _hold(self, name: str, lease: Lease) -> Sequence[Any]:
        engine = self._engine
        match name:
            case "renew":
                return await engine.renew([lease], ttl=TTL)
            case "complete":
                return await engine.complete([Completion(lease, b"1")])
            case "retry":
                return await engine.fail([Failure(lease=lease, reason="again")])
            case "fail":
                bad = Failure(lease=lease, reason="no", category="permanent")
                return await engine.fail([bad])
            case "release":
                return await engine.release([lease])
            case _:
                return await engine.cancel([Cancellation(lease, "enough")])


async def _ask(engine: Engine, name: str, subject: Subject) -> Answer:
    """What those do who hold nothing."""
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "create": lambda: engine.create_execution(
            [NewExecution(execution_id=subject.id, execution_kind=subject.kind, policy=POLICY)]
        ),
        "cancel": lambda: engine.cancel_execution(subject.id, reason="test"),
        "replay": lambda: engine.replay_execution(subject.id),
        "revoke": lambda: engine.revoke_lease(subject.id, reason="test"),
        "describe": lambda: engine.describe_execution(subject.id),
    }
    try:
        answer = await calls[name]()
    except (NotFound, ExecutionNotTerminal, MaxReplaysExhausted, ValidationError) as error:
        return _told(error)
    if name == "create":
        return ("created",) if isinstance(answer[0], Created) else ("duplicate",)
    if name == "replay":
        return ("replayed",)
    if name == "describe":
        return _described(answer)
    return _told(answer)


def _described(seen: Any) -> Answer:
    if seen is None:
        return ("absent",)
    epoch = None if seen.current_lease is None else seen.current_lease.lease_epoch
    return ("is", seen.public_state.value, seen.total_attempt_count, seen.retry_count, epoch)


def _told(answer: Any) -> Answer:
    """The answer in the words of the specification."""
    match answer:
        case None:
            return ("renewed",)
        case Completed():
            return ("completed", answer.repeated)
        case RetryScheduled():
            return ("retry", answer.next_attempt_index, answer.repeated)
        case TerminalFailed():
            return ("failed", answer.repeated)
        case Released():
            return ("released",)
        case Cancelled():
            return ("cancelled", answer.repeated)
        case LeaseRevoked():
            return ("revoked", answer.lease_epoch)
        case NotFound():
            return ("absent",)
        case ExecutionNotActive():
            phase, outcome = answer.lifecycle_phase, answer.terminal_outcome
            return ("not_active", phase, outcome, answer.lease_epoch)
        case StaleLease():
            return ("stale", answer.current)
        case LeaseExpired():
            return ("expired",)
        case ExecutionNotTerminal():
            return ("not_terminal", str(answer.public_state))
        case MaxReplaysExhausted():
            return ("exhausted", answer.replay_count)
        case ValidationError():
            return ("ended", answer.detail.rpartition(" ")[2])
        case _:
            return ("kept", answer.reason.value)
