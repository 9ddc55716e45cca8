"""Durable handlers whose worker dies at one place each: `python -m tests.stories.mortal`.

One process that has everything loaded forks a worker for each place. A worker serves only the lane
of its place and is killed by SIGKILL when it comes there; the one that survives serves all lanes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from flowfabric import App, Ctx, Fail
from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT, current_step
from flowfabric.engine.engine import Engine
from flowfabric.states import JournalKind, JournalState
from flowfabric.worker.durable import step_tx
from flowfabric.worker.durable.services import DurableServices

app = App()
LOSSES = 100
SLEEP = 10.0
"""Seconds: longer than a busy machine takes from the first look at a sleep to its park."""
SIDE = "INSERT INTO public.side (execution_id) VALUES ($1)"
Call = Callable[..., Awaitable[Any]]


class Life:
    """Where this process dies, if it does; what its handlers have done is in a file."""

    place: str | None = None
    thawed = False
    diary: int

    def note(self, ctx: Ctx, *words: object) -> None:
        line = " ".join(map(str, (self.place or "survivor", ctx.execution_id.uuid, *words)))
        os.write(self.diary, f"{line}\n".encode())

    def dies_in(self, place: str) -> None:
        if self.place == place:
            die()


life = Life()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Stand still until somebody goes on with this process; only the first time."""
    if not life.thawed:
        life.thawed = True
        os.kill(os.getpid(), signal.SIGSTOP)


@app.task("paid", max_reclaims=LOSSES)
async def paid(ctx: Ctx) -> str:
    """One step, whose key is the same whenever it runs."""

    async def pay() -> str:
        life.note(ctx, "ran", ctx.effect_key)
        life.dies_in("in a body")
        if life.place == "frozen":
            freeze()
        return "paid"

    life.dies_in("before a body")
    receipt = await ctx.step("pay", pay)
    life.note(ctx, "went", "on")
    return receipt


@app.task("stamped", max_reclaims=LOSSES)
async def stamped(ctx: Ctx) -> str:
    """Two entries that wait for a flush, and a step that uses one of them."""
    now = ctx.now()
    ctx.patched("audit")
    life.dies_in("between lazy entries and their flush")

    async def use() -> str:
        life.note(ctx, "ran", now.isoformat())
        return now.isoformat()

    return await ctx.step("use", use)


@app.task("saved", max_reclaims=LOSSES)
async def saved(ctx: Ctx) -> str:
    """A row of its own and an entry, together."""

    async def save(conn: Connection) -> str:
        life.note(ctx, "ran", "save")
        await conn.execute(SIDE, ctx.execution_id.uuid)
        return "saved"

    return await ctx.step_tx("save", save)


@app.task("slept", max_reclaims=LOSSES)
async def slept(ctx: Ctx) -> str:
    await ctx.sleep("nap", timedelta(seconds=SLEEP))
    life.note(ctx, "woke", "up")
    return "rested"


@app.task("waited", max_reclaims=LOSSES)
async def waited(ctx: Ctx) -> str:
    """A sleep beside a signal that does not come: the handler is suspended."""
    length = timedelta(seconds=SLEEP)
    await asyncio.gather(
        ctx.sleep("nap", length), ctx.wait_for_signal("never", timeout=length, default=None)
    )
    return "rested"


@app.task("hibernated", max_reclaims=LOSSES)
async def hibernated(ctx: Ctx) -> str:
    await ctx.sleep("winter", timedelta(days=30))
    life.note(ctx, "woke", "up")
    return "rested"


@app.task("asked", max_reclaims=LOSSES)
async def asked(ctx: Ctx) -> str:
    return await ctx.wait_for_signal("answer", type=str)


@app.task("leaf", max_reclaims=LOSSES)
async def leaf(ctx: Ctx, number: int) -> int:
    return number


@app.task("parent", max_reclaims=LOSSES)
async def parent(ctx: Ctx) -> int:
    return sum(await ctx.gather([leaf.call(number) for number in (1, 2, 3)]))


@app.task("endless", max_reclaims=LOSSES)
async def endless(ctx: Ctx, turn: int = 0) -> int:
    async def work() -> int:
        life.note(ctx, "ran", turn)
        return turn

    if turn:  # this worker may claim its own restart before the answer to that is here
        life.dies_in("after the commit of a restart")
    await ctx.step("work", work)
    if turn == 0:
        await ctx.restart(1)
    return turn


@app.task("undo", max_reclaims=LOSSES)
async def undo(ctx: Ctx, place: str) -> None:
    life.note(ctx, "undid", place)


@app.task("limited", max_reclaims=LOSSES, limit=app.limit("one at a time", concurrency=1))
async def limited(ctx: Ctx, turn: str) -> str:
    life.note(ctx, "ran", turn)
    return turn


@app.task("doubtful", max_reclaims=LOSSES)
async def doubtful(ctx: Ctx, place: str) -> None:
    await ctx.compensate(undo.call(place))
    raise Fail("no", retryable=False)


# Places to die at, in the code of the worker.


def before_commit_of(statement: str) -> None:
    """Die when the transaction of that statement is about to commit."""
    ran: defaultdict[Connection, list[str]] = defaultdict(list)

    async def step(conn: Connection, name: str) -> None:
        if name == COMMIT and statement in ran.pop(conn, ()):
            die()
        ran[conn].append(name)

    current_step.set(step)


def before(statement: str, does: Callable[[], None] = die) -> None:
    """Die, or do something else, when that statement is about to be sent."""

    async def step(_conn: Connection, name: str) -> None:
        if name == statement:
            does()

    current_step.set(step)


def after(owner: Any, name: str) -> None:
    """Die when that call has been answered, and before anybody has got the answer."""
    call: Call = getattr(owner, name)

    async def called(*args: Any, **kwargs: Any) -> None:
        await call(*args, **kwargs)
        die()

    setattr(owner, name, called)


def before_consuming(does: Callable[[], None] = die) -> None:
    """Die, or do something else, when the signal of the handler is about to be recorded."""
    call: Call = DurableServices.record

    async def called(self: Any, attempt: Any, writes: Any) -> None:
        if any((w.kind, w.state) == (JournalKind.SIGNAL, JournalState.DONE) for w in writes):
            does()
        await call(self, attempt, writes)

    DurableServices.record = called


def nowhere() -> None:
    """The handler itself dies, or is frozen."""


PLACES: dict[str, Callable[[], None]] = {
    "before a body": nowhere,
    "in a body": nowhere,
    "after a body, before its commit": lambda: before_commit_of("journal.record_entries"),
    "after the commit of a step": lambda: after(Engine, "record_entries"),
    "between lazy entries and their flush": nowhere,
    "in step_tx before its commit": lambda: after(step_tx, "_record"),
    "in step_tx after its commit": lambda: after(step_tx, "_in_transaction"),
    "before a sleep is recorded": lambda: before("lifecycle.delay_and_record"),
    "after the entry of a sleep, before the park": lambda: before("lifecycle.move_to_suspended"),
    "after the delay": lambda: after(Engine, "delay_with_entries"),
    "after a resume, before the entry of its signal": before_consuming,
    "in a spawn before its commit": lambda: before_commit_of("journal.begin_entry"),
    "after the commit of a spawn": lambda: after(Engine, "spawn_children"),
    "in a restart before its commit": lambda: before_commit_of("journal.restart_execution"),
    "after the commit of a restart": lambda: after(Engine, "restart_execution"),
    "while arming before its commit": lambda: before_commit_of("lifecycle.arm_compensations"),
    "after the commit of arming": lambda: after(Engine, "arm_compensation"),
    "after an end, before the next one of its limit is let go": lambda: before(
        "quotas.unblock_keys"
    ),
    "frozen": nowhere,
    "frozen before a flush": lambda: before("journal.record_entries", freeze),
    "frozen before a park": lambda: before("lifecycle.delay_and_record", freeze),
    "frozen before an end": lambda: before("lifecycle.complete", freeze),
    "frozen before it consumes a signal": lambda: before_consuming(freeze),
}


def lane(place: str) -> str:
    """The lane of what is to die there."""
    return place.replace(" ", "-").replace(",", "")


def work(dsn: str, settings: dict[str, Any]) -> None:
    """Run a worker."""
    logging.getLogger("flowfabric").addHandler(logging.NullHandler())
    asyncio.run(app.worker(dsn=dsn, **settings).run())


def fork(place: str, dsn: str, settings: dict[str, Any]) -> int:
    """The pid of a worker that dies there."""
    pid = os.fork()
    if pid:
        return pid
    try:
        life.place = place
        PLACES[place]()
        work(dsn, {**settings, "lanes": [lane(place)], "worker_instance_id": lane(place)})
    finally:
        os._exit(1)


def main() -> None:
    """Be the survivor, or fork a worker for every place and tell their pids, and how they ended.

    DSN and settings are the arguments; the file of lines and what to be are settings.
    """
    dsn, settings = sys.argv[1], msgspec.json.decode(sys.argv[2], type=dict[str, Any])
    life.diary = os.open(settings.pop("diary"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if not settings.pop("forks"):
        work(dsn, {**settings, "lanes": ["default", *map(lane, PLACES)]})
        return
    pids = {place: fork(place, dsn, settings) for place in PLACES}
    sys.stdout.write(msgspec.json.encode(pids).decode() + "\n")
    sys.stdout.flush()
    ends = {place: os.waitpid(pid, 0)[1] for place, pid in pids.items()}
    killed = [place for place, status in ends.items() if os.WIFSIGNALED(status)]
    sys.stdout.write(msgspec.json.encode(killed).decode() + "\n")


if __name__ == "__main__":
    main()
