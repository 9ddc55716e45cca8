"""Recorded histories: whether the code of a task as it is now goes on with executions of before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from uuid import UUID

import msgspec

from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.journal.entry import JournalEntry
from flowfabric.engine.journal.read_journal import Journal
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import AttemptType, JournalKind
from flowfabric.tokens import WaitpointToken
from flowfabric.worker.context import Ctx
from flowfabric.worker.durable.durable import Durable, LazyDurable
from flowfabric.worker.durable.looks import Looks
from flowfabric.worker.durable.services import DurableServices
from flowfabric.worker.environment import Environment
from flowfabric.worker.frame_writer import FrameWriter
from flowfabric.worker.running_attempt import RunningAttempt

if TYPE_CHECKING:
    from flowfabric.app.task import Task
    from flowfabric.engine.engine import Engine
    from flowfabric.worker.durable.keys import EntryKey
    from flowfabric.worker.transaction import HandlerTransaction


EPOCH: Final = instant(0)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of one execution, with its input and the outcomes of its children."""

    execution_id: ExecutionId
    execution_kind: str
    payload: bytes
    payload_encoding: str | None
    entries: tuple[JournalEntry, ...]
    outcomes: tuple[ExecutionOutcome, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the history to a file, to be kept with the tests."""
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @classmethod
    def load(cls, path: str | Path) -> History:
        """The history that `save` wrote."""
        return msgspec.json.decode(Path(path).read_bytes(), type=cls)


async def record_history(engine: Engine, execution_id: ExecutionId) -> History:
    """The history of an execution, for `assert_replays`.

    Raises `ValidationError(invalid_input)` if the execution does not exist.
    """
    context = await engine.read_execution_context(execution_id)
    journal = (await engine.read_journal([execution_id]))[execution_id]
    outcomes = await engine.read_outcomes(_children(journal.entries))
    return History(
        execution_id=execution_id,
        execution_kind=context.execution_kind,
        payload=context.input_payload,
        payload_encoding=context.payload_encoding,
        entries=journal.entries,
        outcomes=tuple(outcomes.values()),
    )


async def assert_replays(task: Task[..., Any], history: History) -> None:
    """The task makes the recorded calls again, and then ends or makes a new call.

    Nothing is written and no step runs. Raises `NonDeterministicReplay` if the task makes other
    calls, and `EntryDecodeError` if a recorded value is not of the type that it declares now.
    """
    environment = Environment()
    handler = task.handler(environment)
    replay = _Replay(history)
    lazy = LazyDurable(
        replay.attempt, handler.durable, replay, replay.no_transaction, replay.journal
    )
    durable = lazy.get()
    replay.watch(durable)
    engine = cast("Engine", replay.engine)
    ctx = Ctx(replay.attempt, engine, task.state, replay.no_transaction, {}, lazy, replay.frames)
    try:
        await handler.run(ctx, history.payload, history.payload_encoding)
    except _NewCall:
        pass
    except BaseException:
        durable.journal.check()
        if not replay.reached:
            raise
    finally:
        await durable.parking.close()
        await environment.close()
    durable.journal.check()
    if not replay.reached and durable.journal.replaying:
        raise durable.journal.diverge("the end of the handler")


class _NewCall(BaseException):
    """The handler has made every recorded call, and asks for one that is not recorded."""


class _NoFrames(FrameWriter):
    """Takes the frames of the handler, and writes none."""

    async def add(self, attempt: RunningAttempt, frame: NewFrame) -> None:
        """Nobody reads it."""


class _Replay(DurableServices):
    """Stands for the database: it has the history, and takes nothing new."""

    def __init__(self, history: History) -> None:
        self.engine = cast("Any", _RecordedEngine(history))
        self.threads = cast("Any", None)
        self.looks = Looks(self.engine)
        self.frames = _NoFrames(self.engine)
        self._inbox_of = {}
        self._due, self._promoting = [], None
        self.reached = False
        self.journal = Journal(entries=history.entries)
        self.no_transaction = cast("HandlerTransaction", SimpleNamespace(begun=False, lost=False))
        execution_id = history.execution_id
        claimed = Claimed(
            lease=Lease(execution_id, _attempt_index(history), 2, UUID(int=0)),
            lane_id="default",
            execution_kind=history.execution_kind,
            input_payload=history.payload,
            payload_encoding=history.payload_encoding,
            tags={},
            attempt_type=AttemptType.INITIAL,
            total_attempt_count=1,
            attempt_timeout=None,
            deadline=None,
            claimed_at=max((each.recorded_at for each in history.entries), default=EPOCH),
        )
        self.attempt = RunningAttempt(claimed, asyncio.get_running_loop().time())

    def watch(self, durable: Durable) -> None:
        """End the handler at its first call that is not recorded."""
        recorded, self._durable = durable.frontier, durable

        async def frontier(key: EntryKey) -> None:
            await recorded(key)
            self._new_call()

        durable.frontier = frontier

    def _new_call(self) -> NoReturn:
        self.reached = True
        raise _NewCall

    def _waits(self) -> NoReturn:
        """The handler waits: it has made every recorded call by then."""
        if self._durable.journal.replaying:
            raise self._durable.journal.diverge("the next wait")
        self._new_call()

    async def record(self, attempt: RunningAttempt, writes: Sequence[Any]) -> None:
        """Nothing is written."""

    async def delay(self, attempt: RunningAttempt, sleeper: Any) -> NoReturn:
        self._waits()

    async def wait_children(self, attempt: RunningAttempt, request: Any) -> NoReturn:
        self._waits()

    async def suspend(self, attempt: RunningAttempt, request: Any) -> NoReturn:
        self._waits()


class _RecordedEngine:
    """The reads that a replay makes."""

    def __init__(self, history: History) -> None:
        self._outcomes = {each.execution_id: each for each in history.outcomes}

    async def read_outcomes(
        self, wanted: Sequence[ExecutionId]
    ) -> dict[ExecutionId, ExecutionOutcome]:
        return {each: self._outcomes[each] for each in wanted if each in self._outcomes}

    async def read_waitpoints(
        self, _execution_id: ExecutionId, wanted: Sequence[UUID]
    ) -> dict[UUID, Any]:
        token = WaitpointToken("replay:" + "0" * 64)
        return {
            each: SimpleNamespace(waitpoint_key=str(each), token=token, signals=())
            for each in wanted
        }


def _attempt_index(history: History) -> int:
    return max((entry.attempt_index for entry in history.entries), default=0)


def _children(entries: Sequence[JournalEntry]) -> list[ExecutionId]:
    found: list[ExecutionId] = []
    for entry in entries:
        if entry.kind is JournalKind.CHILDREN and entry.value:
            decided = msgspec.json.decode(entry.value)
            found += map(ExecutionId.parse, (*decided["succeeded"], *decided["lost"]))
    return found
