"""Looks for what is due, and runs those sweeps; one process of a fleet does so at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final

from flowfabric.counters import SCANNER_CYCLE_SECONDS, SCANNER_CYCLES
from flowfabric.db.listen import Listener, signalled
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.signals import subscribed
from flowfabric.db.transaction import run, transact
from flowfabric.engine.schedules.wake_sweeper import TOPIC as SCHEDULES_CHANGED
from flowfabric.errors import FlowFabricError, OperationTimeout, TransportError, Unavailable
from flowfabric.policy import milliseconds
from flowfabric.reconcile.find_due import OF_STANDBY, Look, find_due
from flowfabric.reconcile.find_free_role import FreeRole, find_free_role
from flowfabric.reconcile.release_role import release_role
from flowfabric.reconcile.sweeps import SWEEPS, Sweep

log: Final = logging.getLogger("flowfabric.reconcile")

LOOK_EVERY: Final = 0.8
"""Seconds between two looks of the process that sweeps; sooner if something is due before."""
STAND_BY_EVERY: Final = 0.4
"""Seconds between two looks of the process that takes over."""
ASK_AT_MOST_EVERY: Final = 8.0
"""Seconds between two looks of any other process of a large fleet."""
_AT_LEAST: Final = 0.1
"""Seconds between two looks while delays end, or schedules are changed, one after the other."""
_ASK_AGAIN: Final = 0.3
"""Seconds until the next look after one that failed."""
_CONNECTS_WITHIN: Final = 0.25
_STUCK_AFTER: Final = 5.0
_RELEASE_WITHIN: Final = 1.5


async def reconcile(
    pool: Pool,
    instance: str,
    listener: Listener,
    sweeps: Sequence[Sweep] = SWEEPS,
    *,
    on_look: Callable[[], None] | None = None,
) -> None:
    """Run the sweeps that are due, whenever it is the turn of this process; until cancelled.

    One process of a fleet sweeps, one takes over as soon as the first is gone, and the others ask
    in turn whether they are needed. A failure is logged, and the sweep runs again when due. The
    session of the listener ends with this process, and so does its role. The process that sweeps
    looks at once when schedules are changed. `on_look` is called after every look.
    """
    async with asyncio.TaskGroup() as group:
        sweeping = _Sweeping(pool, sweeps, group)
        try:
            with _schedule_changes(listener) as changed:
                if listener.session_pid is None:  # it may be about to connect: the next look has it
                    await _look(pool, instance, None, sweeping)
                    await asyncio.sleep(_CONNECTS_WITHIN)
                while True:
                    look = await _look(pool, instance, listener.session_pid, sweeping)
                    if on_look is not None:
                        on_look()
                    sweeps_now = isinstance(look, Look) and look.standby is False
                    await _sleep(_seconds_until_next(look), changed if sweeps_now else None)
        finally:
            with contextlib.suppress(FlowFabricError, TimeoutError):  # the role runs out
                async with asyncio.timeout(_RELEASE_WITHIN):
                    await run(pool, "release_role", lambda conn: release_role(conn, instance))


@contextlib.contextmanager
def _schedule_changes(listener: Listener) -> Generator[asyncio.Event]:
    """An event that is set when schedules were changed: where LISTEN works by any process."""
    changed, loop = listener.subscribe(SCHEDULES_CHANGED), asyncio.get_running_loop()

    def by_this_process() -> None:
        with contextlib.suppress(RuntimeError):  # of another thread, while this loop is closed
            loop.call_soon_threadsafe(changed.set)

    try:
        with subscribed(SCHEDULES_CHANGED, by_this_process):
            yield changed
    finally:
        listener.unsubscribe(changed)


async def _sleep(seconds: float, event: asyncio.Event | None) -> None:
    """Sleep for so long, or until the event is set, but not for less than `_AT_LEAST`."""
    at_least = seconds if event is None else min(seconds, _AT_LEAST)
    await asyncio.sleep(at_least)
    if event is not None:
        await signalled(event, seconds - at_least)


async def _look(
    pool: Pool, instance: str, session_pid: int | None, sweeping: _Sweeping
) -> Look | FreeRole:
    """Look once, and start what is due; a process without a role only asks for one."""
    wanted, may_sweep = sweeping.wanted(), not sweeping.stuck()

    async def look_once(conn: Connection) -> Look:
        return await find_due(conn, instance, wanted, session_pid=session_pid, may_sweep=may_sweep)

    try:
        if not sweeping.has_role:
            role = await run(pool, "find_free_role", lambda conn: find_free_role(conn, instance))
            if not role.is_free:
                return role
        look = await run(pool, "find_due", look_once)
        sweeping.has_role = look.standby is not None
    except (TransportError, OperationTimeout, Unavailable) as error:
        log.warning("cannot look for what is due: %s", error)
        return Look(False, [], milliseconds(_ASK_AGAIN))
    except FlowFabricError as error:  # a look that is refused must not stop the sweeps
        log.warning("cannot look for what is due, running every sweep: %s", error)
        look = Look(False, wanted, None)
    if look.standby is not None:
        asked = [name for name in wanted if name in OF_STANDBY] if look.standby else wanted
        sweeping.start(look.due, asked=asked)
    return look


def _seconds_until_next(look: Look | FreeRole) -> float:
    if isinstance(look, FreeRole):
        # However many they are, one of them asks about as often as one that stands by.
        others = max(1, look.processes - 2)
        return _varied(min(ASK_AT_MOST_EVERY, others * STAND_BY_EVERY))
    every = _varied(LOOK_EVERY if look.standby is False else STAND_BY_EVERY)
    if look.next_due_ms is None:
        return every
    return min(every, max(_AT_LEAST, look.next_due_ms / 1000))


def _varied(seconds: float) -> float:
    return seconds * random.uniform(0.9, 1.1)


class _Sweeping:
    """The sweeps of this process: which of them run now, and when each is due again."""

    def __init__(self, pool: Pool, sweeps: Sequence[Sweep], group: asyncio.TaskGroup) -> None:
        self._pool, self._group = pool, group
        self._by_name = {sweep.name: sweep for sweep in sweeps}
        self._wanted_at = dict.fromkeys(self._by_name, 0.0)
        self._moved_at: dict[str, float] = {}
        self.has_role = False
        """Did the process sweep or stand by after its last look?"""

    def wanted(self) -> list[str]:
        """The sweeps to ask for: those that do not run and whose interval has passed."""
        now = time.monotonic()
        return [
            name for name, at in self._wanted_at.items() if at <= now and name not in self._moved_at
        ]

    def stuck(self) -> bool:
        """Has a sweep run for long without moving anything? Then another process must sweep."""
        before = time.monotonic() - _STUCK_AFTER
        return any(at < before for at in self._moved_at.values())

    def start(self, due: Sequence[str], *, asked: Sequence[str]) -> None:
        """Run the sweeps that are due; the others that were asked for wait for their interval."""
        for name in asked:
            self._wait(self._by_name[name])
        for name in due:
            self._moved(name)
            self._group.create_task(self._run(self._by_name[name]), name=f"flowfabric {name}")

    def _wait(self, sweep: Sweep) -> None:
        # Every look asks for a sweep whose interval is no longer than that of the looks.
        self._wanted_at[sweep.name] = time.monotonic() + _varied(max(0, sweep.every - LOOK_EVERY))

    def _moved(self, name: str) -> None:
        self._moved_at[name] = time.monotonic()

    async def _run(self, sweep: Sweep) -> None:
        began = time.monotonic()
        try:
            await sweep_all(self._pool, sweep, on_batch=lambda: self._moved(sweep.name))
        except FlowFabricError as error:
            log.warning(
                "sweep %s failed and runs again when due: %s",
                sweep.name,
                error,
                extra={"scanner": sweep.name, "error": str(error)},
            )
        finally:
            SCANNER_CYCLES.add(sweep.name)
            SCANNER_CYCLE_SECONDS.observe(time.monotonic() - began, sweep.name)
            del self._moved_at[sweep.name]
            self._wait(sweep)


async def sweep_all(
    pool: Pool, sweep: Sweep, *, on_batch: Callable[[], None] = lambda: None
) -> int:
    """Run one sweep until no due rows are left; returns how many rows it moved.

    Calls `on_batch` after each batch.
    """
    total = 0
    while True:
        if sweep.check is None:
            moved = await run(pool, sweep.name, lambda conn: sweep.step(conn, sweep.batch))
        elif await run(pool, sweep.name, sweep.check):
            moved = await transact(pool, sweep.name, lambda conn: sweep.step(conn, sweep.batch))
        else:
            return total
        on_batch()
        total += moved
        # A batch may be cut short by another limit; a check says whether due rows are left.
        if moved == 0 or (sweep.check is None and moved < sweep.batch):
            if total:
                log.debug("sweep %s moved %s rows", sweep.name, total)
            return total
