"""Frames are appended by the holder of the lease, in order, and kept within their bounds."""

from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest

from flowfabric.conditions import OperatorOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.streams.append_frame import Append, append_frame, append_frames
from flowfabric.engine.streams.cursor import FrameId
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import (
    EngineError,
    NotFound,
    StaleOwnerCannotAppend,
    StreamClosed,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import FrameKind, FrameMode
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import Another
from tests.engine.streams.streams import LIVE, SUMMARY, appended, frame, frames, meta, patch, texts


async def test_a_frame_is_read_back_as_it_was_appended(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    now = await clock.now_ms()

    answers = await appended(
        db,
        lease,
        frame("hello", frame_type="token", correlation_id="c-7"),
        frame(b"\xff\x00", kind="blob"),
        frame("soon gone", mode=LIVE, ttl=5),
        patch({"a": 1}),
    )

    assert [str(each.stream_id) for each in answers] == [f"{now}-{n}" for n in range(4)]
    assert [each.frame_count for each in answers] == [1, 2, 3, 4]
    assert [each.summary_version for each in answers] == [None, None, None, 1]
    common = {"encoding": "utf8", "source": "worker", "ts": str(now)}
    assert [each.fields for each in await frames(db, lease)] == [
        common
        | {
            "frame_type": "token",
            "payload": "hello",
            "mode": "durable",
            "correlation_id": "c-7",
        },
        common | {"frame_type": "blob", "payload": "/wA=", "encoding": "base64", "mode": "durable"},
        common
        | {"frame_type": "event", "payload": "soon gone", "mode": "best_effort", "ttl_ms": "5000"},
        common
        | {"frame_type": "event", "payload": '{"a":1}', "mode": "summary", "summary_version": "1"},
    ]
    stored = await meta(db, lease.execution_id)
    assert (stored["frame_count"], stored["total_bytes"]) == (4, 5 + 2 + 9 + 7)
    assert stored["has_durable_frame"] is True


async def test_ids_only_ascend_also_if_the_clock_is_set_back(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=600)
    now = await clock.now_ms()

    await appended(db, lease, frame("1"), frame("2"))
    await clock.advance(timedelta(seconds=-60))
    await appended(db, lease, frame("3"))
    await clock.advance(timedelta(seconds=61))
    [last] = await appended(db, lease, frame("4"))

    assert [each.id for each in await frames(db, lease)] == [
        FrameId(now, 0),
        FrameId(now, 1),
        FrameId(now, 2),
        FrameId(now + 1000, 0),
    ]
    assert last.frame_count == 4
    assert await texts(db, lease) == ["1", "2", "3", "4"]


async def test_one_statement_appends_to_many_streams_and_refuses_row_by_row(
    db: Connection,
) -> None:
    first, second = await given.claimed(db), await given.claimed(db)
    stale = msgspec.structs.replace(first, lease_epoch=first.lease_epoch + 1)
    forged = msgspec.structs.replace(second, lease_id=uuid4())
    missing = msgspec.structs.replace(first, execution_id=ExecutionId.mint())

    answers = await append_frames(
        db,
        [
            Append(lease=second, frames=[frame("s1"), frame("s2")]),
            Append(lease=stale, frames=[frame("stale")]),
            Append(lease=first, frames=[]),
            Append(lease=forged, frames=[frame("forged")]),
            Append(lease=missing, frames=[frame("missing")]),
            Append(lease=first, frames=[frame("f1")]),
        ],
    )

    assert [type(each).__name__ for each in answers] == [
        "list",
        "StaleOwnerCannotAppend",
        "list",
        "StaleOwnerCannotAppend",
        "NotFound",
        "list",
    ]
    assert answers[2] == []
    assert await texts(db, first) == ["f1"]
    assert await texts(db, second) == ["s1", "s2"]

    twice = Append(lease=first, frames=[frame("f2")])
    with pytest.raises(ValidationError, match=f"{first.execution_id.uuid}.* has 2 appends"):
        await append_frames(db, [twice, twice])


@pytest.mark.parametrize(
    ("outlived", "wanted"),
    [
        ("completed", StreamClosed),
        ("cancelled", StreamClosed),
        ("suspended", StreamClosed),
        ("delayed", StreamClosed),
        ("voided", StreamClosed),
        ("expired", StaleOwnerCannotAppend),
        ("superseded", StaleOwnerCannotAppend),
        ("retried", StaleOwnerCannotAppend),
    ],
)
async def test_an_owner_that_lost_its_lease_cannot_append(
    outlived: str, wanted: type[EngineError], db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    lease = await given.claimed(db, ttl=30, policy=given.retrying())
    await appended(db, lease, frame("mine"))
    match outlived:
        case "completed":
            await complete(db, [Completion(lease)])
        case "cancelled":
            await ff_engine.cancel_execution(lease.execution_id, reason="test")
        case "suspended":
            await ff_engine.suspend(
                [SuspendRequest(lease=lease, condition=OperatorOnly(), keeps_waitpoints=True)]
            )
        case "delayed":
            await ff_engine.delay([DelayRequest(lease=lease, delay=60.0)])
        case "retried":
            await ff_engine.fail([Failure(lease=lease, reason="again")])
            await clock.advance(timedelta(hours=1))
            await promote_due(db, 10)
        case _:
            await clock.advance(timedelta(seconds=31))
    if outlived in ("voided", "superseded"):
        await expire_leases(db, 10)
    if outlived in ("superseded", "retried"):
        [other] = await claim(db, given.OTHER, ttl=30)
        assert other.lease.attempt_index == (outlived == "retried")

    with pytest.raises(wanted, match=str(lease.execution_id.uuid)):
        await append_frame(db, lease, frame("late"))

    assert await texts(db, lease) == ["mine"]
    assert (await meta(db, lease.execution_id))["frame_count"] == 1


def test_the_type_of_a_frame_is_its_kind_unless_it_says_otherwise() -> None:
    assert [each.value for each in FrameKind] == ["stdout", "stderr", "event", "blob"]
    assert [NewFrame(kind=each).frame_type for each in FrameKind] == list(FrameKind)
    assert NewFrame().frame_type == "event"
    assert NewFrame(frame_type="token", kind=FrameKind.STDOUT).frame_type == "token"


@pytest.mark.parametrize(
    ("new", "durable"), [(frame(), True), (patch({}), True), (frame(mode=LIVE), False)]
)
async def test_the_same_frame_again_is_appended_again(
    new: NewFrame, durable: bool, db: Connection
) -> None:
    lease = await given.claimed(db)

    answers = [await append_frame(db, lease, new) for _ in range(2)]

    assert [each.frame_count for each in answers] == [1, 2]
    assert len(await frames(db, lease)) == 2
    assert (await meta(db, lease.execution_id))["has_durable_frame"] is durable


async def test_an_append_and_the_end_of_its_attempt_wait_for_one_another(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    other = await another()
    async with db.transaction():
        await append_frame(db, lease, frame("before"))
        ending = await given.blocked(await another(), other, complete(other, [Completion(lease)]))
    [ended] = await ending

    assert not isinstance(ended, EngineError)
    assert await texts(db, lease) == ["before"]


async def test_appends_to_one_stream_become_visible_in_the_order_of_their_ids(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    other = await another()
    async with db.transaction():
        [first] = await appended(db, lease, frame("first"))
        behind = await given.blocked(
            await another(), other, appended(other, lease, frame("second"))
        )
        assert await texts(await another(), lease) == []
    [second] = await behind

    assert first.stream_id < second.stream_id
    assert await texts(db, lease) == ["first", "second"]


async def test_an_append_that_is_repeated_after_a_lost_answer_appends_once(db: Connection) -> None:
    lease = await given.claimed(db)
    append = Append(lease=lease, frames=[patch({"n": 1}), frame("x")])

    [answer] = await append_frames(db, [append])
    [repeated] = await append_frames(db, [append])

    assert repeated == answer
    assert [each.mode for each in await frames(db, lease)] == [SUMMARY, FrameMode.DURABLE]
    stored = await meta(db, lease.execution_id)
    assert (stored["frame_count"], stored["durable_kept"], stored["summary_kept"]) == (2, 1, 1)
    assert await db.fetchval("SELECT version FROM ff.stream_summary") == 1


@all_cases(
    ("fields", "code", "named"),
    [
        ({"payload": b"x" * 65537}, "retention_limit_exceeded", "65537"),
        ({"payload": "text"}, "invalid_input", "payload"),
        ({"mode": "forever"}, "invalid_input", "mode 'forever'"),
        ({"kind": "log"}, "invalid_input", "kind 'log'"),
        ({"frame_type": "a\nb"}, "invalid_input", "frame_type"),
        ({"frame_type": "x" * 129}, "invalid_input", "frame_type"),
        ({"correlation_id": "c\x00"}, "invalid_input", "correlation_id"),
        ({"mode": "best_effort", "ttl": 0}, "invalid_input", "ttl 0"),
        ({"mode": "best_effort", "ttl": 86401}, "invalid_input", "ttl 86401"),
        ({"mode": "summary", "payload": b"{}", "patch_kind": "x"}, "invalid_input", "patch_kind"),
        ({"mode": "summary", "payload": b"[1]"}, "invalid_input", "object at its root"),
        ({"mode": "summary", "payload": b"{"}, "invalid_input", "patch"),
        ({"mode": "summary", "payload": b'{"a":"\\u0000"}'}, "invalid_input", "NUL"),
        ({"mode": "summary", "payload": b'{"\\u0000":1}'}, "invalid_input", "NUL"),
        ({"mode": "summary", "payload": b'{"a":1e400}'}, "invalid_input", "patch"),
        (
            {"mode": "summary", "payload": b'{"a":' * 17 + b"1" + b"}" * 17},
            "invalid_input",
            "16 levels",
        ),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, dict) else "",
)
def test_a_frame_that_cannot_be_stored_is_refused_when_it_is_made(
    fields: dict[str, object], code: str, named: str
) -> None:
    with pytest.raises(ValidationError, match=named) as refused:
        NewFrame(**fields)  # type: ignore[arg-type]  that is the point

    assert refused.value.code == code


async def test_the_largest_frame_and_the_deepest_patch_are_stored(db: Connection) -> None:
    lease = await given.claimed(db)
    deepest = NewFrame(payload=b'{"a":' * 16 + b"1" + b"}" * 16, mode=SUMMARY)

    await appended(db, lease, frame(b"x" * 65536), deepest)

    assert len((await frames(db, lease))[0].payload) == 65536
    with pytest.raises(ValidationError, match="frames 10001"):
        await append_frames(db, [Append(lease=lease, frames=[frame()] * 10001)])


# Trimming.


@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "call by call"])
async def test_each_mode_is_trimmed_to_its_own_bound(at_once: bool, db: Connection) -> None:
    lease = await given.claimed(db, policy=ExecutionPolicy(stream_policy={"retention_maxlen": 3}))
    new = [
        *(frame(f"d{n}") for n in range(7)),
        *(patch({"s": n}) for n in range(66)),
        *(frame(f"b{n}", mode=LIVE, maxlen_floor=2, maxlen_ceiling=2) for n in range(5)),
    ]

    if at_once:
        await appended(db, lease, *new)
    else:
        for each in range(0, len(new), 4):
            await appended(db, lease, *new[each : each + 4])

    kept = await frames(db, lease)
    by_mode = {mode: [each.text for each in kept if each.mode is mode] for mode in FrameMode}
    assert by_mode[FrameMode.DURABLE] == ["d4", "d5", "d6"]
    assert by_mode[LIVE] == ["b3", "b4"]
    assert by_mode[SUMMARY] == [f'{{"s":{n}}}' for n in range(2, 66)]
    stored = await meta(db, lease.execution_id)
    assert (stored["durable_kept"], stored["summary_kept"], stored["best_effort_kept"]) == (
        3,
        64,
        2,
    )
    assert stored["frame_count"] == len(new)
    assert await db.fetchval("SELECT version FROM ff.stream_summary") == 66


async def test_without_a_policy_ten_thousand_durable_frames_are_kept(db: Connection) -> None:
    lease = await given.claimed(db)
    for _ in range(3):
        await appended(db, lease, *[frame()] * 4000)

    assert len(await frames(db, lease)) == 10_000
    assert (await meta(db, lease.execution_id))["frame_count"] == 12_000


# How many best-effort frames are kept.


class Sizing:
    """Best-effort appends on a clock, and what the stream has learnt of their rate."""

    def __init__(self, db: Connection, clock: Clock, lease: Lease, **knobs: object) -> None:
        self.db, self.clock, self.lease = db, clock, lease
        self.frame = frame("b", mode=LIVE, **{"ttl": 10, **knobs})

    async def after(self, ms: int, count: int = 1) -> tuple[int, float]:
        await self.clock.advance(timedelta(milliseconds=ms))
        await appended(self.db, self.lease, *[self.frame] * count)
        stored = await meta(self.db, self.lease.execution_id)
        return stored["maxlen_applied_last"], stored["ema_rate_hz"]


async def test_the_kept_length_follows_the_rate(db: Connection, clock: Clock) -> None:
    sizing = Sizing(db, clock, await given.claimed(db, ttl=86400))

    assert await sizing.after(0) == (64, 3.2)  # the floor; 64 / (2 * 10 s)
    kept, rate = await sizing.after(100)
    assert rate == pytest.approx(0.2 * 10 + 0.8 * 3.2)
    assert kept == 92  # ceil(4.56 * 10) * 2
    kept, rate = await sizing.after(0)  # the same millisecond counts as one
    assert rate == pytest.approx(0.2 * 1000 + 0.8 * 4.56)
    assert kept == 4074
    _, slower = await sizing.after(60_000)
    assert slower < rate
    kept, rate = await sizing.after(1, count=30)  # frames of one call share a millisecond
    assert rate == pytest.approx(1000 - (1000 - (0.2 * 1000 + 0.8 * slower)) * 0.8**29)
    assert kept == 16384


@pytest.mark.parametrize(
    ("knobs", "first", "second"),
    [
        ({"maxlen_floor": 0, "maxlen_ceiling": -1, "ema_alpha": 7.0}, 64, 4052),
        ({"maxlen_floor": 65}, 65, 4054),
        ({"maxlen_floor": 100, "maxlen_ceiling": 50}, 100, 100),
        ({"ema_alpha": 1.0}, 64, 16384),
    ],
    ids=lambda each: str(each),
)
async def test_a_knob_that_makes_no_sense_counts_as_its_default(
    knobs: dict[str, object], first: int, second: int, db: Connection, clock: Clock
) -> None:
    sizing = Sizing(db, clock, await given.claimed(db), **knobs)

    assert (await sizing.after(0))[0] == first
    assert (await sizing.after(1))[0] == pytest.approx(second, abs=4)


async def test_a_refused_frame_is_named_by_its_execution(db: Connection) -> None:
    lease = await given.claimed(db)
    gone = msgspec.structs.replace(lease, attempt_index=5)

    with pytest.raises(NotFound, match="attempt 5"):
        await append_frame(db, gone, frame())
