"""A worker dies at each place where a durable handler can be hit, and another one goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Call, Client, Handle
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.testing import Clock
from tests.stories import mortal
from tests.stories.mortal import PLACES, SLEEP, lane
from tests.stories.processes import workers
from tests.worker.facts import eventually

# Two dozen processes, which have bounded times: nothing else runs beside them.
pytestmark = [pytest.mark.timing, pytest.mark.slow, pytest.mark.timeout(240)]

WITHIN = 100
"""Seconds in which two dozen processes start and come to their places, on a busy machine."""
SETTINGS: Mapping[str, Any] = {"lease_ttl": 2.0, "concurrency": 2}

CALLS: dict[str, Call[Any]] = {
    "before a body": mortal.paid.call(),
    "in a body": mortal.paid.call(),
    "after a body, before its commit": mortal.paid.call(),
    "after the commit of a step": mortal.paid.call(),
    "between lazy entries and their flush": mortal.stamped.call(),
    "in step_tx before its commit": mortal.saved.call(),
    "in step_tx after its commit": mortal.saved.call(),
    "before a sleep is recorded": mortal.slept.call(),
    "after the entry of a sleep, before the park": mortal.waited.call(),
    "after the delay": mortal.slept.call(),
    "after a resume, before the entry of its signal": mortal.asked.call(),
    "in a spawn before its commit": mortal.parent.call(),
    "after the commit of a spawn": mortal.parent.call(),
    "in a restart before its commit": mortal.endless.call(),
    "after the commit of a restart": mortal.endless.call(),
    "while arming before its commit": mortal.doubtful.call("while arming"),
    "after the commit of arming": mortal.doubtful.call("after arming"),
    "after an end, before the next one of its limit is let go": mortal.limited.call("second"),
    "frozen": mortal.paid.call(),
    "frozen before a flush": mortal.paid.call(),
    "frozen before a park": mortal.slept.call(),
    "frozen before an end": mortal.paid.call(),
    "frozen before it consumes a signal": mortal.asked.call(),
}
BEFORE: dict[str, Call[Any]] = {
    "after an end, before the next one of its limit is let go": mortal.limited.call("first"),
}
"""What ends in the doomed worker first."""
FROZEN = tuple(place for place in CALLS if place.startswith("frozen"))
SIGNALLED = ("after a resume, before the entry of its signal", "frozen before it consumes a signal")

GOING = "SELECT EXISTS (SELECT FROM ff.exec_core WHERE lifecycle_phase <> 'terminal')"
RAN = "ran in the doomed worker"
AGAIN = "ran in the survivor"
EXPECTED: dict[str, dict[str, Any]] = {
    "before a body": {"result": "paid", RAN: 0, AGAIN: 1},
    "in a body": {"result": "paid", RAN: 1, AGAIN: 1, "effect keys": 1},
    "after a body, before its commit": {"result": "paid", RAN: 1, AGAIN: 1, "effect keys": 1},
    "after the commit of a step": {"result": "paid", RAN: 1, AGAIN: 0, "effect keys": 1},
    "between lazy entries and their flush": {RAN: 0, AGAIN: 1, "used what is recorded": True},
    "in step_tx before its commit": {"result": "saved", RAN: 1, AGAIN: 1, "rows": 1},
    "in step_tx after its commit": {"result": "saved", RAN: 1, AGAIN: 0, "rows": 1},
    "before a sleep is recorded": {"result": "rested", "slept": "as asked"},
    "after the entry of a sleep, before the park": {"result": "rested", "slept": "as asked"},
    "after the delay": {"result": "rested", "slept": "as asked"},
    "after a resume, before the entry of its signal": {"result": "yes", "resumes": 1, "signals": 1},
    "in a spawn before its commit": {"result": 6, "children": 3},
    "after the commit of a spawn": {"result": 6, "children": 3},
    "in a restart before its commit": {"result": 1, "turns": ["0", "1"], "generation": 1},
    "after the commit of a restart": {"result": 1, "turns": ["0", "1"], "generation": 1},
    "while arming before its commit": {"undid while arming": 1},
    "after the commit of arming": {"undid after arming": 1},
    "after an end, before the next one of its limit is let go": {"result": "second", AGAIN: 1},
    "frozen": {"result": "paid", RAN: 1, AGAIN: 1, "effect keys": 1, "went on": ["survivor"]},
    "frozen before a flush": {"result": "paid", RAN: 1, AGAIN: 1, "went on": ["survivor"]},
    "frozen before a park": {"result": "rested", "slept": "as asked", "ends": 1},
    "frozen before an end": {"result": "paid", RAN: 1, AGAIN: 0, "ends": 1},
    "frozen before it consumes a signal": {"result": "yes", "resumes": 1, "signals": 1},
}


class Story:
    """The doomed workers, what they were given, and what became of it."""

    def __init__(self, dsn: str, db: Connection, client: Client, diary: Path) -> None:
        self._dsn, self._db, self._client, self._diary = dsn, db, client, diary
        self._handles: dict[str, Handle[Any]] = {}
        self._settings = {**SETTINGS, "diary": str(diary)}

    async def play(self) -> None:
        """Everybody dies, and then the survivor ends what was left."""
        await self._db.execute("CREATE TABLE public.side (execution_id uuid NOT NULL)")
        for place, call in CALLS.items():
            calls = [BEFORE[place], call] if place in BEFORE else [call]
            self._handles[place] = (await self._client.submit_many(calls, lane=lane(place)))[-1]
        forker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.stories.mortal",
            self._dsn,
            json.dumps({**self._settings, "forks": True}),
            stdout=asyncio.subprocess.PIPE,
        )
        assert forker.stdout is not None
        pids: dict[str, int] = json.loads(await forker.stdout.readline())
        frozen = {place: pids.pop(place) for place in FROZEN}
        try:
            await asyncio.gather(
                *map(self._answer, SIGNALLED), have_come(pids, "Z"), have_come(frozen, "T")
            )
            await self._survive(frozen)
        finally:
            for pid in (*frozen.values(), *pids.values()):
                kill(pid)
            killed = json.loads(await forker.stdout.readline())
            await forker.wait()
        assert set(killed) >= pids.keys()  # none ended by a fault of its own

    async def _answer(self, place: str) -> None:
        """Signal the handler once it is suspended."""
        execution_id = self._handles[place].execution_id

        async def suspended() -> bool:
            return await self._handles[place].state() == "suspended"

        await eventually(suspended, within=WITHIN)
        engine = await Engine.connect(on_database(self._client.engine).pool.config)
        try:
            await engine.send_signal(
                NewSignal(
                    execution_id=execution_id,
                    signal_name="answer",
                    payload=b'"yes"',
                    encoding="json",
                )
            )
        finally:
            await engine.close()

    async def _survive(self, frozen: dict[str, int]) -> None:
        settings = {**self._settings, "module": "tests.stories.mortal", "forks": False}
        settings["concurrency"] = 32
        async with workers(self._dsn, "survivor", **settings):

            async def completed() -> bool:
                states = [await self._handles[place].state() for place in FROZEN]
                return set(states) == {"completed"}

            await eventually(completed, within=WITHIN)
            for pid in frozen.values():
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGTERM)
            await have_come(frozen, "Z")  # they have done what they still might do

            async def ended() -> bool:
                undone = self._lines().count(" undid ") >= 2
                return undone and not await self._db.fetchval(GOING)

            await eventually(ended, within=WITHIN)

    def _lines(self) -> str:
        return self._diary.read_text() if self._diary.exists() else ""

    async def facts(self, place: str) -> dict[str, Any]:
        """What is known of the execution that was hit there; as much as is expected."""
        wanted = EXPECTED[place]
        handle = self._handles[place]
        uuid = handle.execution_id.uuid
        mine = [
            line.removeprefix(f"{place} ").split()
            for line in self._lines().splitlines()
            if line.startswith(f"{place} {uuid}")
        ]
        others = [
            line.removeprefix("survivor ").split()
            for line in self._lines().splitlines()
            if line.startswith(f"survivor {uuid}")
        ]
        ran = [words[2] for words in (*mine, *others) if words[1] == "ran"]
        found: dict[str, Any] = {
            RAN: sum(words[1] == "ran" for words in mine),
            AGAIN: sum(words[1] == "ran" for words in others),
            "effect keys": len(set(ran)),
            "went on": [
                who
                for who, lines in ((place, mine), ("survivor", others))
                if any(words[1] == "went" for words in lines)
            ],
            "undid while arming": self._lines().count(" undid while arming\n"),
            "undid after arming": self._lines().count(" undid after arming\n"),
            "turns": sorted(set(ran)) if len(ran) == 2 else ran,
        }
        for name, sql in FACTS.items():
            if name in wanted:
                found[name] = await self._db.fetchval(sql, uuid)
        if "result" in wanted:
            found["result"] = await handle.result(timeout=1)
        if "used what is recorded" in wanted:
            recorded = await self._db.fetchval(
                "SELECT to_char(to_timestamp(convert_from(value, 'utf8')::bigint / 1000.0)"
                " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS') FROM ff.journal"
                " WHERE execution_id = $1 AND kind = 'now'",
                uuid,
            )
            result = await handle.result(timeout=1)
            found["used what is recorded"] = ran == [result] == [f"{recorded}000+00:00"]
        return {name: found[name] for name in wanted}


FACTS = {
    "ends": """
SELECT count(*) FROM ff.completion_event WHERE execution_id = $1 AND outcome <> 'resumable'""",
    "rows": "SELECT count(*) FROM public.side WHERE execution_id = $1",
    "slept": f"""
SELECT CASE WHEN count(*) <> 1 THEN 'in several entries'
            WHEN abs(max(j.due_at_ms - j.started_at_ms) - {SLEEP * 1000}) > 100 THEN 'otherwise'
            WHEN max(e.terminal_at_ms) < max(j.due_at_ms) THEN 'too short' ELSE 'as asked' END
  FROM ff.journal j JOIN ff.exec_core e USING (partition_key, execution_id)
 WHERE execution_id = $1 AND kind = 'sleep'""",
    "resumes": """
SELECT count(*) FROM ff.completion_event WHERE execution_id = $1 AND outcome = 'resumable'""",
    "signals": "SELECT count(*) FROM ff.journal WHERE execution_id = $1 AND signal_seq = 1",
    "children": """
SELECT count(*) FROM ff.edge g JOIN ff.edge_group w USING (partition_key, group_id)
 WHERE w.waiter_eid = $1""",
    "generation": """
SELECT (convert_from(value, 'utf8')::jsonb ->> 'generation')::integer FROM ff.journal
 WHERE execution_id = $1 AND kind = 'mark'""",
}


async def have_come(pids: Mapping[str, int], state: str) -> None:
    """Wait until the process of every place is frozen (`T`), or has ended (`Z`)."""

    def missing() -> set[str]:
        return {place for place, pid in pids.items() if process_state(pid) != state}

    with contextlib.suppress(AssertionError):
        await eventually(lambda: not missing(), within=WITHIN)
    assert missing() == set()


def process_state(pid: int) -> str:
    """As the kernel calls it; a process that its parent has looked at has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # looked at before, or while it is read
        return "Z"


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def test_a_worker_that_dies_at_any_place_leaves_each_effect_where_it_belongs(
    ff_dsn: str, client: Client, db: Connection, tmp_path: Path
) -> None:
    assert EXPECTED.keys() == CALLS.keys() == PLACES.keys()
    story = Story(ff_dsn, db, client, tmp_path / "diary")

    await story.play()

    found = {place: await story.facts(place) for place in EXPECTED}
    assert found == EXPECTED


async def test_a_sleeper_outlives_its_whole_fleet(
    ff_dsn: str, client: Client, db: Connection, clock: Clock, tmp_path: Path
) -> None:
    handle = await client.submit(mortal.hibernated.call())
    settings = {**SETTINGS, "module": "tests.stories.mortal", "forks": False}
    settings["diary"] = str(tmp_path / "diary")

    async def sleeps() -> bool:
        return await handle.state() == "delayed"

    async with workers(ff_dsn, "first", **settings) as [first]:
        await eventually(sleeps, within=WITHIN)
        first.kill()
        await first.exit_code()
    due = await db.fetchval("SELECT due_at_ms FROM ff.journal")
    await clock.advance(timedelta(days=29))
    async with workers(ff_dsn, "second", **settings) as [second]:
        other = await client.submit(mortal.leaf.call(7), delay=1)
        await clock.advance(1)
        assert await other.result(timeout=WITHIN) == 7  # its sweeps wake what is due
        assert await sleeps()
        second.kill()
        await second.exit_code()
    await clock.advance(timedelta(days=31))

    async with workers(ff_dsn, "third", **settings):
        assert await handle.result(timeout=WITHIN) == "rested"

    entry = await db.fetchrow(
        "SELECT due_at_ms, due_at_ms - started_at_ms AS slept FROM ff.journal WHERE name = 'winter'"
    )
    assert entry is not None
    assert entry["due_at_ms"] == due
    assert abs(entry["slept"] - timedelta(days=30) / timedelta(milliseconds=1)) < 1000
