"""Rules of those who signal executions, and of handlers that record what they have done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from flowfabric.engine.engine import Engine
from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.instants import instant
from flowfabric.states import JournalKind, JournalState
from tests.proofs.model import durable
from tests.proofs.model.common import Common, move, some, which

THEN = datetime(2026, 1, 1, tzinfo=UTC)


class DurableRules(Common):
    """Signals by name, and the journal."""

    @move(
        number=which,
        name=st.sampled_from(("go", "stop")),
        key=st.sampled_from((None, None, "k1", "k2")),
    )
    def send_signal(self, number: int, name: str, key: str | None) -> None:
        signal = NewSignal(
            execution_id=self.execution(number),
            signal_name=name,
            idempotency_key=key,
            signal_id=self.uuid(),
        )
        self.both(
            "send_signal",
            lambda engine: engine.send_signal(signal),
            lambda _: durable.send_signal(self.world, signal),
            only=signal.execution_id,
        )

    @move(number=which, how=some, also=some, seq=st.integers(1, 4))
    def record_entries(self, number: int, how: int, also: int, seq: int) -> None:
        leases = [self.held(number, how)]
        if also < 4:
            leases.append(self.held(number, also * 3))
        writes = [
            EntryWrite(
                lease=lease,
                seq=seq,
                kind=JournalKind.STEP,
                state=JournalState.DONE,
                name=f"step {seq}",
                started_at=THEN,
                encoding="json",
                value=b"%d" % number,
            )
            for lease in leases
        ]

        async def recorded(engine: Engine) -> list[Any]:
            refused = await engine.record_entries(writes)
            return [refused.get(write.lease) for write in writes]

        self.both(
            "record_entries",
            recorded,
            lambda _: durable.record_entries(self.world, writes),
            only=leases[0].execution_id,
        )

    @move(number=which, how=some, seconds=st.sampled_from((3, 9)), seq=st.integers(5, 6))
    def sleep(self, number: int, how: int, seconds: int, seq: int) -> None:
        """A handler sleeps: its entry says until when, and its lease is given up with it."""
        lease = self.held(number, how)
        due = instant(self.world.now_ms + seconds * 1000)
        entry = EntryWrite(
            lease=lease,
            seq=seq,
            kind=JournalKind.SLEEP,
            state=JournalState.OPEN,
            name=f"sleep {seq}",
            started_at=THEN,
            due_at=due,
        )
        request = DelayRequest(lease=lease, delay=seconds, detail=f"sleeps in 'sleep {seq}'")
        sleeper = Sleeper(request=request, entries=(entry,))

        async def slept(engine: Engine) -> Any:
            [answer] = await engine.delay_with_entries([sleeper])
            return answer

        self.both(
            "delay_with_entries",
            slept,
            lambda _: durable.sleep(self.world, sleeper),
            only=lease.execution_id,
        )

    @move(number=which, how=some, payload=st.integers(0, 99))
    def restart_execution(self, number: int, how: int, payload: int) -> None:
        lease, data = self.held(number, how), b"%d" % payload
        self.both(
            "restart_execution",
            lambda engine: engine.restart_execution(lease, payload=data),
            lambda _: durable.restart_execution(self.world, lease, data),
            only=lease.execution_id,
        )
