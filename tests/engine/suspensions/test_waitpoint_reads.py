"""Open waitpoints: of one execution, of all, and the token of one; no list has a token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from flowfabric.conditions import AllConditions, OperatorOnly, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.suspensions.close_waitpoint import close_waitpoint
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.engine.suspensions.list_closed_waitpoints import list_closed_waitpoints
from flowfabric.engine.suspensions.list_open_waitpoints import list_open_waitpoints
from flowfabric.engine.suspensions.list_pending_waitpoints import list_pending_waitpoints
from flowfabric.engine.suspensions.read_waitpoint_token import read_waitpoint_token
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, WaitpointState
from flowfabric.testing import Clock
from flowfabric.wire import wire
from tests import given
from tests.engine.suspensions.given_suspended import accepted, leased, pending, suspended


async def closed(db: Connection, execution_id: ExecutionId, waitpoint_id: UUID) -> None:
    async with db.transaction():
        await close_waitpoint(db, execution_id, waitpoint_id)


# Of one execution.


async def test_the_open_waitpoints_of_an_execution_are_listed_without_their_tokens(
    db: Connection, clock: Clock
) -> None:
    condition = AllConditions((Single("a", "yes"), Single("a", "no"), Single("b")))
    held = await suspended(db, condition)
    one = held.waitpoints["a"]

    page = await list_pending_waitpoints(db, held.execution_id)

    assert [each.waitpoint_id for each in page.waitpoints] == sorted(
        each.waitpoint_id for each in held.waitpoints.values()
    )
    assert page.next_cursor is None
    [entry] = [each for each in page.waitpoints if each.waitpoint_key == "a"]
    assert entry.execution_id == held.execution_id
    assert entry.state is WaitpointState.ACTIVE
    assert entry.required_signal_names == ("yes", "no")
    assert (entry.created_at, entry.activated_at) == (await clock.now(), await clock.now())
    assert entry.expires_at is None
    assert entry.token_kid == "k1"
    digest = one.token.reveal().partition(":")[2]
    assert entry.token_fingerprint == digest[:16]
    assert digest not in repr(page)
    assert digest not in msgspec.json.encode(wire(page)).decode()


async def test_an_execution_that_waits_for_an_operator_says_so(db: Connection) -> None:
    held = await suspended(db, OperatorOnly(), "a")

    [entry] = (await list_pending_waitpoints(db, held.execution_id)).waitpoints

    assert entry.required_signal_names == ("__operator_only__",)


async def test_waitpoints_come_in_pages_by_id(db: Connection) -> None:
    lease = await leased(db)
    ids = sorted([(await pending(db, lease)).waitpoint_id for _ in range(5)])
    await closed(db, lease.execution_id, ids[2])
    found: list[UUID] = []
    after: UUID | None = None
    for _ in range(4):
        page = await list_pending_waitpoints(db, lease.execution_id, after=after, limit=2)
        found += [each.waitpoint_id for each in page.waitpoints]
        after = page.next_cursor
        if after is None:
            break

    assert found == [*ids[:2], *ids[3:]]
    exact = await list_pending_waitpoints(db, lease.execution_id, limit=4)
    assert (len(exact.waitpoints), exact.next_cursor) == (4, None)


@pytest.mark.parametrize(("limit", "rows"), [(0, 1), (-7, 1), (1, 1), (2, 2), (10**9, 3)])
async def test_a_limit_is_clamped(db: Connection, limit: int, rows: int) -> None:
    lease = await leased(db)
    for _ in range(3):
        await pending(db, lease)

    page = await list_pending_waitpoints(db, lease.execution_id, limit=limit)

    assert len(page.waitpoints) == rows
    assert (page.next_cursor is None) is (rows == 3)


@pytest.mark.parametrize("limit", ["2", 2.0, None])
async def test_a_limit_is_a_whole_number(db: Connection, limit: Any) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await list_pending_waitpoints(db, ExecutionId.mint(), limit=limit)


async def test_an_execution_without_waitpoints_has_an_empty_list_and_no_execution_has_none(
    db: Connection,
) -> None:
    execution_id = await given.created(db)

    page = await list_pending_waitpoints(db, execution_id)

    assert (page.waitpoints, page.next_cursor) == ([], None)
    with pytest.raises(NotFound, match="execution"):
        await list_pending_waitpoints(db, ExecutionId.mint())


# Of all executions.


async def test_the_open_waitpoints_of_all_executions_are_listed_newest_first(
    db: Connection, clock: Clock
) -> None:
    asks = {"ff.question": "Deploy?"}
    old = await pending(db, await leased(db, execution_kind="deploy", tags=asks), "old")
    await clock.advance(1)
    gone = await pending(db, await given.claimed(db), "gone")
    await closed(db, gone.execution_id, gone.waitpoint_id)
    new = (await suspended(db, Single("new", "go"))).waitpoints["new"]
    await accepted(db, new, "stay")

    page = await list_open_waitpoints(db)

    assert [each.waitpoint_key for each in page.waitpoints] == ["new", "old"]
    first, second = page.waitpoints
    assert (first.state, first.required_signal_names) == (WaitpointState.ACTIVE, ("go",))
    assert (first.signal_count, first.last_signal_at) == (1, await clock.now())
    assert (second.execution_id, second.waitpoint_id) == (old.execution_id, old.waitpoint_id)
    assert (second.namespace, second.lane_id, second.execution_kind) == (
        "default",
        "default",
        "deploy",
    )
    assert (second.signal_count, second.last_signal_at) == (0, None)
    assert (first.question, second.question) == (None, "Deploy?")
    for waitpoint in (old, new):
        assert waitpoint.token.reveal().partition(":")[2] not in repr(page)


async def test_they_can_be_told_by_namespace_and_lane(db: Connection) -> None:
    await pending(db, await leased(db), "a")
    mail = await given.created(db, lane_id="mail", namespace="shop")
    await db.execute(
        "INSERT INTO ff.waitpoint_pending (partition_key, attempt_index, waitpoint_id,"
        " execution_id, created_at_ms, waitpoint_key, token_kid, token)"
        " VALUES ($1, 0, $2, $3, ff.now_ms(), 'b', 'k1', '')",
        mail.partition_key,
        uuid4(),
        mail.uuid,
    )

    async def keys(**filters: Any) -> list[str]:
        page = await list_open_waitpoints(db, **filters)
        return sorted(each.waitpoint_key for each in page.waitpoints)

    assert await keys() == ["a", "b"]
    assert await keys(lane_id="mail") == ["b"]
    assert await keys(namespace="shop") == ["b"]
    assert await keys(namespace="default", lane_id="default") == ["a"]
    assert await keys(namespace="shop", lane_id="default") == []


async def test_pages_go_on_where_the_last_ended_also_within_one_millisecond(
    db: Connection, clock: Clock
) -> None:
    lease = await leased(db)
    made: list[UUID] = []
    for n in range(5):
        made.append((await pending(db, lease)).waitpoint_id)
        await clock.advance(n % 2)
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await list_open_waitpoints(db, limit=2, cursor=cursor)
        found += [each.waitpoint_id for each in page.waitpoints]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert len(found) == len(set(found)) == 5
    assert found == sorted(made, reverse=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 0},
        {"limit": 1001},
        {"cursor": ""},
        {"cursor": "1"},
        {"cursor": "1.x"},
        {"cursor": f"-1.{'0' * 32}"},
        {"cursor": 7},
        {"lane_id": ""},
        {"namespace": ""},
    ],
)
async def test_what_cannot_be_asked_for_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    [field] = arguments

    with pytest.raises(ValidationError, match=field):
        await list_open_waitpoints(db, **arguments)


# The token.


async def test_the_token_of_an_open_waitpoint_can_be_read(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    active = (await suspended(db, Single("a"))).waitpoints["a"]

    for each in (waitpoint, active):
        assert await read_waitpoint_token(db, each.execution_id, each.waitpoint_id) == each.token


async def test_a_closed_a_foreign_and_a_missing_waitpoint_have_no_token(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    other = await given.created(db)

    assert await read_waitpoint_token(db, other, waitpoint.waitpoint_id) is None
    assert await read_waitpoint_token(db, waitpoint.execution_id, uuid4()) is None
    await closed(db, waitpoint.execution_id, waitpoint.waitpoint_id)
    assert await read_waitpoint_token(db, waitpoint.execution_id, waitpoint.waitpoint_id) is None


async def test_reads_pass_through_the_engine(ff_engine: Engine, db: Connection) -> None:
    lease = await leased(db)
    waitpoint = await pending(db, lease)

    token = await ff_engine.read_waitpoint_token(lease.execution_id, waitpoint.waitpoint_id)
    listed = await ff_engine.list_pending_waitpoints(lease.execution_id)
    everywhere = await ff_engine.list_open_waitpoints()

    assert token == waitpoint.token
    assert [each.waitpoint_id for each in listed.waitpoints] == [waitpoint.waitpoint_id]
    assert [each.waitpoint_id for each in everywhere.waitpoints] == [waitpoint.waitpoint_id]
    await complete(db, [Completion(lease)])


async def test_a_waitpoint_of_an_execution_that_has_ended_is_not_open(db: Connection) -> None:
    lease = await leased(db)
    waitpoint = await pending(db, lease, "a")

    await complete(db, [Completion(lease)])

    assert (await list_pending_waitpoints(db, lease.execution_id)).waitpoints == []
    assert (await list_open_waitpoints(db)).waitpoints == []
    assert await read_waitpoint_token(db, lease.execution_id, waitpoint.waitpoint_id) is None


# Closed ones.


async def test_closed_waitpoints_are_listed_as_answered_or_expired_newest_first(
    db: Connection, clock: Clock
) -> None:
    unused = await pending(db, await leased(db), "unused")
    await closed(db, unused.execution_id, unused.waitpoint_id)
    late = [await pending(db, await given.claimed(db), key) for key in ("a", "b")]
    answered = (await suspended(db, Single("yes", "go"))).waitpoints["yes"]
    await accepted(db, answered, "go")
    await clock.advance(timedelta(days=400))
    await expire_pending_waitpoints(db, 10)

    page = await list_closed_waitpoints(db, "answered", namespace="default")
    first = await list_closed_waitpoints(db, "expired", limit=1)
    rest = await list_closed_waitpoints(db, "expired", cursor=first.next_cursor)

    [found] = page.waitpoints
    assert (found.waitpoint_id, found.close_reason) == (answered.waitpoint_id, "resumed")
    assert [each.signal_name for each in found.signals] == ["go"]
    assert (found.question, found.public_state) == (None, PublicState.RESUMABLE)
    expired = [each.waitpoint_id for each in (*first.waitpoints, *rest.waitpoints)]
    assert sorted(expired) == sorted(each.waitpoint_id for each in late)
    assert rest.next_cursor is None
    assert (await list_closed_waitpoints(db, "answered", namespace="x")).waitpoints == []
    with pytest.raises(ValidationError, match="closed_as"):
        await list_closed_waitpoints(db, "lost")  # pyright: ignore[reportArgumentType]
