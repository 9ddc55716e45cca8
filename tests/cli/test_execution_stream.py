"""`ff executions stream`, and the progress bar of `ff submit --wait`."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
from rich.console import Console

from flowfabric.cli.progress import with_progress
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.ids import ExecutionId
from tests import given
from tests.cli.conftest import Inside, one_line
from tests.db.facts import until
from tests.engine.streams.streams import LIVE, appended, frame, patch


async def test_the_frames_of_an_execution_are_shown(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)
    wanted = str(lease.execution_id)
    assert (await ff("executions", "stream", wanted)).out == "No frames are stored.\n"
    new = [frame("hello [b]", frame_type="token"), frame(b"\xff\xfe"), frame("x", mode=LIVE)]
    await appended(db, lease, *new, patch({"a": 1}))

    lines = (await ff("executions", "stream", wanted)).out.splitlines()
    told = (await ff("executions", "stream", wanted, "--json", "--no-live")).out.splitlines()

    assert [line.split("Z ", 1)[1] for line in lines] == [
        "1 token hello [b]",
        "1 event 2 bytes",
        "1 event (best_effort) x",
        '1 event (summary) {"a":1}',
    ]
    frames = [json.loads(line) for line in told]
    assert [each["fields"]["payload"] for each in frames] == ["hello [b]", "//4=", '{"a":1}']
    after = await ff("executions", "stream", wanted, "--after", frames[1]["cursor"], "--json")
    assert [json.loads(line)["fields"]["mode"] for line in after.out.splitlines()] == [
        "best_effort",
        "summary",
    ]


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_a_stream_is_followed_to_the_end_of_its_execution(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db, ttl=600)
    await appended(db, lease, frame("1"))
    following = asyncio.create_task(
        ff("executions", "stream", str(lease.execution_id), "--follow", "--json")
    )
    await until(lambda: _is_waiting(db))
    await appended(db, lease, frame("2"))
    await complete(db, [Completion(lease)])

    told = (await following).out.splitlines()
    assert [json.loads(line)["fields"]["payload"] for line in told] == ["1", "2"]


async def _is_waiting(db: Connection) -> bool:
    return await db.fetchval("SELECT EXISTS (SELECT FROM ff.waiter WHERE topic = 'stream')")


async def test_a_wrong_cursor_or_id_is_one_line(ff: Inside) -> None:
    unknown = str(ExecutionId.mint())
    missing = await ff("executions", "stream", unknown)
    wrong = await ff("executions", "stream", unknown, "--after", "yesterday")

    assert missing.code == 1
    assert "does not exist" in one_line(missing)
    assert wrong.code == 2
    assert "yesterday" in wrong.err


async def test_the_bar_shows_what_the_handler_reports(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db)
    await ff_engine.progress(lease, percent=40, message="half [way]")
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)

    async def until_shown() -> str:
        assert isinstance(screen.file, io.StringIO)
        file = screen.file

        async def is_shown() -> bool:
            await asyncio.sleep(0.05)
            return "half [way]" in file.getvalue()

        await until(is_shown)
        return file.getvalue()

    async with asyncio.timeout(20):
        shown = await with_progress(ff_engine, lease.execution_id, until_shown(), console=screen)
    assert "40%" in shown

    quiet = Console(file=io.StringIO(), force_terminal=False)
    assert await with_progress(ff_engine, lease.execution_id, _answer(), console=quiet) == 7


async def _answer() -> int:
    return 7
