"""Streams are read from place to place, by the grammar of places that every surface has."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.streams.append_frame import Append
from flowfabric.errors import ConfigError, ResourceExhausted, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.streams.streams import LIVE, appended, frame, patch


async def test_a_read_includes_both_ends(db: Connection, clock: Clock, ff_engine: Engine) -> None:
    lease = await given.claimed(db, ttl=600)
    now = await clock.now_ms()
    await appended(db, lease, frame("a"), frame("b"), frame("c"))
    await clock.advance(timedelta(seconds=1))
    await appended(db, lease, frame("d"), frame("live", mode=LIVE), patch({"e": 1}))

    async def read(**bounds: Any) -> str:
        page = await ff_engine.read_stream(lease.execution_id, 0, **bounds)
        assert (page.closed_at, page.closed_reason) == (None, None)
        return "".join(each.text[0] for each in page.frames)

    assert await read() == "abcdl{"
    assert await read(from_=f"{now}-1") == "bcdl{"
    assert await read(from_=f"{now}-1", to=f"{now}-2") == "bc"
    assert await read(to=f"{now}") == "abc"  # the whole millisecond
    assert await read(from_=f"{now + 1}") == "dl{"
    assert await read(from_="end") == ""
    assert await read(to="start") == ""
    assert await read(count_limit=2) == "ab"
    assert await read(count_limit=2, newest=True) == "l{"
    assert await read(to=f"{now}", count_limit=2, newest=True) == "bc"
    assert await read(count_limit=9, newest=True) == "abcdl{"
    assert await read(visibility="exclude_best_effort") == "abcd{"

    async def tail(**place: Any) -> str:
        page = await ff_engine.tail_stream(lease.execution_id, 0, **place)
        return "".join(each.text[0] for each in page.frames)

    assert await tail() == "abcdl{"
    assert await tail(after=f"{now}-1", count_limit=2) == "cd"
    assert await tail(after=f"{now}") == "bcdl{"
    assert await tail(after=f"{now + 1000}-0", visibility="exclude_best_effort") == "{"
    assert await tail(after=f"{now}-2147483647") == "dl{"
    assert await tail(after="9223372036854775807-2147483647") == ""


async def test_what_does_not_exist_is_empty_and_open(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db)
    for execution_id, attempt in (
        (ExecutionId.mint(), 0),
        (lease.execution_id, 0),
        (lease.execution_id, 7),
    ):
        page = await ff_engine.read_stream(execution_id, attempt)
        tailed = await ff_engine.tail_stream(execution_id, attempt)

        assert page.frames == tailed.frames == []
        assert page.closed_at is page.closed_reason is None


@pytest.mark.parametrize(
    "text", ["", "-", "+", "12-", "-3", "a", "1.5", "1-2-3", " 1", "٣", "9" * 20, 5]
)
async def test_a_bad_place_is_refused_by_name(text: Any, ff_engine: Engine) -> None:
    somewhere = ExecutionId.mint()
    for field, call in (
        ("from", ff_engine.read_stream(somewhere, 0, from_=text)),
        ("to", ff_engine.read_stream(somewhere, 0, to=text)),
        ("after", ff_engine.tail_stream(somewhere, 0, after=text)),
        ("after", ff_engine.follow_stream(somewhere, attempt=0, after=text)),
    ):
        with pytest.raises(ValidationError) as refused:
            await call
        assert refused.value.code == "invalid_input"
        assert refused.value.field == field
        assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count_limit": 0}, "count_limit 0 must be >= 1"),
        ({"count_limit": 10001}, "count_limit 10001 must be <= 10000"),
        ({"count_limit": True}, "count_limit True"),
        ({"visibility": "some"}, "visibility 'some'"),
        ({"attempt_index": -1}, "attempt_index -1"),
        ({"execution_id": "x"}, "execution_id 'x'"),
    ],
    ids=lambda each: str(each),
)
async def test_a_bad_request_is_refused_by_name(
    fields: dict[str, Any], said: str, ff_engine: Engine
) -> None:
    given = {"execution_id": ExecutionId.mint(), "attempt_index": 0} | fields
    for read in (ff_engine.read_stream, ff_engine.tail_stream):
        with pytest.raises(ValidationError, match=said):
            await read(**given)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"after": "start"}, "after 'start'"),
        ({"after": "end"}, "after 'end'"),
        ({"block": -1}, "block -1"),
        ({"block": 30.001}, "block 30.001"),
    ],
    ids=lambda each: str(each),
)
async def test_a_tail_needs_a_place_and_a_bounded_wait(
    fields: dict[str, Any], said: str, ff_engine: Engine
) -> None:
    with pytest.raises(ValidationError, match=said):
        await ff_engine.tail_stream(ExecutionId.mint(), 0, **fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"after": "17-0"}, "must be the cursor of a frame"),
        ({"after": "x:17-0"}, "number of an attempt"),
        ({"after": "1:17-0", "attempt": 0}, "attempt 0"),
        ({"after": "0:start"}, "after 'start'"),
        ({"attempt": -1}, "attempt_index -1"),
    ],
    ids=lambda each: str(each),
)
async def test_a_stream_is_followed_from_a_cursor(
    fields: dict[str, Any], said: str, ff_engine: Engine
) -> None:
    with pytest.raises(ValidationError, match=said):
        await ff_engine.follow_stream(ExecutionId.mint(), **fields)


async def test_more_reads_and_tails_at_once_than_allowed_are_refused(
    db: Connection, ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DatabaseConfig(dsn=ff_dsn).max_stream_ops == 64
    monkeypatch.setenv("FF_MAX_CONCURRENT_STREAM_OPS", "2")
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn))
    try:
        lease = await given.claimed(db)
        tails = [
            asyncio.create_task(engine.tail_stream(lease.execution_id, 0, block=30), name="tail")
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted, match="FF_MAX_CONCURRENT_STREAM_OPS") as refused:
            await engine.read_stream(lease.execution_id, 0)
        assert refused.value.http_status == 429

        await engine.append_frames([Append(lease=lease, frames=[frame("for both")])])
        assert [len((await each).frames) for each in tails] == [1, 1]
        assert len((await engine.read_stream(lease.execution_id, 0)).frames) == 1
    finally:
        await engine.close()
    monkeypatch.setenv("FF_MAX_CONCURRENT_STREAM_OPS", "many")
    with pytest.raises(ConfigError, match="'many'"):
        DatabaseConfig(dsn=ff_dsn)
