"""Executions by lane, state, kind, tag and time."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.count_by_state import count_by_state
from flowfabric.engine.executions.count_matching import MatchCount, count_matching
from flowfabric.engine.executions.search_cursor import search_cursor
from flowfabric.engine.executions.search_executions import Search, SearchPage, search_executions
from flowfabric.engine.flows.create_flow import create_flow
from flowfabric.engine.journal.entry import PATCH_PREFIX, EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from flowfabric.policy import FixedBackoff
from flowfabric.states import (
    DIVERGENCE,
    JournalKind,
    JournalState,
    PublicState,
    SuspensionReason,
    TerminalOutcome,
)
from flowfabric.testing import Clock
from tests import given
from tests.engine.executions.suspended import suspended
from tests.engine.lifecycle.claim_costs import Queue
from tests.explained import Explained

# Of executions that ended without an operation of ours.
COMPLETIONS = """
INSERT INTO ff.completion_event (
       execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome)
SELECT execution_id, route_id, created_at_ms, terminal_at_ms, partition_key, 'success'
  FROM ff.exec_core WHERE terminal_outcome = 'success' ORDER BY created_at_ms
"""
LOOKED_FOR = (PublicState.ACTIVE, PublicState.WAITING, PublicState.COMPLETED, PublicState.FAILED)


def ids(page: SearchPage) -> list[ExecutionId]:
    return [found.execution_id for found in page.executions]


async def search(db: Connection, **fields: Any) -> list[ExecutionId]:
    return ids(await search_executions(db, Search(**fields)))


async def test_everything_is_found_newest_first(db: Connection, clock: Clock) -> None:
    made = []
    for _ in range(3):
        made.append(await given.created(db))
        await clock.advance(1)

    page = await search_executions(db, Search())

    assert ids(page) == made[::-1]
    assert page.next_cursor is None


async def test_what_is_found_is_described(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, priority=3, tags={"shop.tenant": "acme"})
    await clock.advance(5)
    running = (await search_executions(db, Search())).executions[0]
    await fail(db, [Failure(lease=lease, reason="boom")])

    [found] = (await search_executions(db, Search())).executions

    now = await clock.now()
    assert msgspec.structs.asdict(found) == {
        "execution_id": lease.execution_id,
        "namespace": "default",
        "lane_id": "default",
        "execution_kind": "job",
        "public_state": PublicState.FAILED,
        "priority": 3,
        "total_attempt_count": 1,
        "created_at": now - timedelta(seconds=5),
        "started_at": now - timedelta(seconds=5),
        "terminal_at": now,
        "reason": "boom",
        "worker_instance_id": None,
        "flow_id": None,
        "member_name": None,
        "tags": {"shop.tenant": "acme"},
        "blocking_reason": None,
        "attempt_started_at": now - timedelta(seconds=5),
    }
    assert running.worker_instance_id == "w-1"
    assert (running.terminal_at, running.reason) == (None, None)


@pytest.mark.parametrize(
    ("field", "wanted", "other"),
    [
        ("namespace", "acme", "other"),
        ("lane_id", "mail", "default"),
        ("execution_kind", "send", "sender"),
    ],
)
async def test_each_filter_works_alone(db: Connection, field: str, wanted: str, other: str) -> None:
    mine = await given.created(db, **{field: wanted})
    await given.created(db, **{field: other})

    assert await search(db, **{field: wanted}) == [mine]
    assert await search(db, **{field: wanted.upper()}) == []


async def one_of_each(db: Connection, clock: Clock) -> dict[PublicState, ExecutionId]:
    """An execution in every state that the operations reach."""
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    failed = await given.claimed(db)
    await fail(db, [Failure(lease=failed, reason="boom")])
    cancelled = await given.created(db)
    await cancel_execution(db, cancelled, reason="no")
    skipped = await given.created(db)
    await terminalize(db, [skipped], outcome=TerminalOutcome.SKIPPED)
    expired = await given.created(db, deadline=1)
    await clock.advance(1)
    await expire_executions(db, limit=10)
    active = await given.claimed(db, ttl=3600)
    return {
        PublicState.COMPLETED: done.execution_id,
        PublicState.FAILED: failed.execution_id,
        PublicState.CANCELLED: cancelled,
        PublicState.SKIPPED: skipped,
        PublicState.EXPIRED: expired,
        PublicState.ACTIVE: active.execution_id,
        PublicState.DELAYED: await given.created(db, delay=60),
        PublicState.WAITING: await given.created(db),
    }


async def test_every_state_is_found_by_its_name(db: Connection, clock: Clock) -> None:
    made = await one_of_each(db, clock)

    for state in PublicState:
        expected = [made[state]] if state in made else []
        assert await search(db, public_state=state) == expected
        count = await count_matching(db, Search(public_state=state))
        assert (count.count, count.more) == (len(expected), False)
    [lane] = await count_by_state(db)
    for state, counted in lane.counts.items():
        assert counted == MatchCount(count=int(state in made), more=False), state
    for order in ("new", "old"):
        found = await search(db, public_states=tuple(PublicState), sort=order)
        assert found == await search(db, sort=order)
        assert sorted(found) == sorted(made.values())
    assert (await count_matching(db, Search(), at_most=3)) == MatchCount(count=3, more=True)
    everything = Search(public_states=tuple(PublicState))
    assert await count_matching(db, everything) == MatchCount(count=len(made), more=False)


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_a_replayed_execution_is_completed_as_its_last_end_says(
    db: Connection, clock: Clock, limit: int
) -> None:
    succeeded: list[ExecutionId] = []
    for n, later in enumerate(("", "success", "failed", "cancelled", "", "success", "failed")):
        lease = await given.claimed(db, execution_kind=f"k-{n % 2}")
        await complete(db, [Completion(lease)])
        if later:
            await replay_execution(db, lease.execution_id)
        if later in ("success", "failed"):
            [again] = await claim(db, given.WORKER, ttl=30, limit=1)
            if later == "success":
                await complete(db, [Completion(again.lease)])
            else:
                await fail(db, [Failure(lease=again.lease, reason="boom")])
        elif later == "cancelled":
            await cancel_execution(db, lease.execution_id, reason="no")
        if later in ("", "success"):
            succeeded.append(lease.execution_id)
        await clock.advance(1)

    found: list[ExecutionId] = []
    cursor = None
    while True:
        page = await search_executions(
            db, Search(public_state=PublicState.COMPLETED), cursor=cursor, limit=limit
        )
        found += ids(page)
        if (cursor := page.next_cursor) is None:
            break

    assert found == succeeded[::-1]


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_those_that_resume_are_told_apart_in_the_queue(
    db: Connection, clock: Clock, limit: int
) -> None:
    made: dict[bool, list[ExecutionId]] = {True: [], False: []}
    for n in range(12):
        resumes = n % 3 == 1
        made[resumes].append(await given.created(db, priority=n % 2, execution_kind=f"k-{n % 5}"))
        await clock.advance(1)
    await db.execute(
        "UPDATE ff.exec_core SET resume_pending = true WHERE execution_id = ANY ($1)",
        [each.uuid for each in made[True]],
    )

    for resumes, state in ((True, PublicState.RESUMABLE), (False, PublicState.WAITING)):
        found, cursor = [], None
        while True:
            page = await search_executions(
                db, Search(public_state=state), cursor=cursor, limit=limit
            )
            found += ids(page)
            if (cursor := page.next_cursor) is None:
                break
        assert found == made[resumes][::-1]
        [lane] = await count_by_state(db, namespace="default", at_most=limit)
        count = len(made[resumes])
        assert lane.counts[state] == MatchCount(count=min(count, limit), more=count > limit)
    assert await count_by_state(db, namespace="other") == []


@pytest.mark.slow
@pytest.mark.usefixtures("new_database")
@pytest.mark.session("reads the plan of a session with our settings")
async def test_a_search_reads_what_it_finds_however_much_is_stored(db: Connection) -> None:
    queue = Queue(db)
    await queue.add(8_000, state="ended")
    await queue.add(20, kind="run")
    worker = msgspec.structs.replace(given.WORKER, kinds=("run",))
    assert len(await claim(db, worker, ttl=30, limit=20)) == 20
    await queue.add(8_000)
    await db.execute(COMPLETIONS)
    await db.execute("VACUUM ANALYZE")

    for generic in (True, False):
        explained = Explained(db, generic=generic)
        for state in (*LOOKED_FOR, None):
            for sort in ("new", "old"):
                wanted = Search(public_state=state, sort=sort)
                await search_executions(explained, wanted, limit=20)  # type: ignore[arg-type]
        retried = Search(min_attempts=2)
        await search_executions(explained, retried, limit=20)  # type: ignore[arg-type]
        assert max(cost.buffers for cost in explained.costs) < 500, explained.costs


@pytest.mark.session("reads the plan of a session with our settings")
async def test_a_state_that_nothing_is_in_is_not_looked_for_in_every_route(db: Connection) -> None:
    queue = Queue(db)
    for number in range(300):
        await queue.add(1, kind=f"kind-{number}", state="ended")
    await queue.add(20, kind="run")
    await db.execute("VACUUM ANALYZE")

    explained = Explained(db, generic=True)
    wanted = Search(public_state=PublicState.WAITING)
    assert len((await search_executions(explained, wanted, limit=20)).executions) == 20  # type: ignore[arg-type]
    assert explained.costs[0].buffers < 1_500


async def test_what_no_index_has_is_compared_on_the_way(db: Connection, clock: Clock) -> None:
    flow_id = uuid4()
    await create_flow(db, flow_id, flow_kind="f", namespace="default")
    partition = uuid_partition(flow_id)
    policy = given.retrying(1, backoff=FixedBackoff(delay=0))
    tried = await given.claimed(db, policy=policy)
    await fail(db, [Failure(lease=tried, reason="Timeout after 30 s")])
    [again] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=again.lease, reason="cannot CONNECT")])
    await clock.advance(1)
    refused = await given.claimed(db, execution_kind="pay")
    await fail(db, [Failure(lease=refused, reason="card refused")])
    done = await given.claimed(db, tags={"shop.tenant": "acme"})
    await complete(db, [Completion(done)])
    await clock.advance(1)
    member = await given.created(
        db,
        execution_id=ExecutionId(partition, new_uuid()),
        flow_id=flow_id,
        execution_kind="pay",
        tags={"shop.size": "1"},
    )
    await clock.advance(1)
    keyed = await given.created(db, idempotency_key="k", delay=60, tags={"shop.tenant": "b"})
    await clock.advance(1)
    [first, second] = [await given.created(db) for _ in range(2)]
    for worker in (given.WORKER, given.OTHER):
        wanted = msgspec.structs.replace(worker, kinds=("job",))
        assert len(await claim(db, wanted, ttl=30, limit=1)) == 1
        await clock.advance(1)
    ok, failed = PublicState.COMPLETED, PublicState.FAILED
    expected: list[tuple[dict[str, Any], list[ExecutionId]]] = [
        ({"reason": "connect"}, [tried.execution_id]),
        ({"reason": "CARD", "public_states": (failed, ok)}, [refused.execution_id]),
        ({"min_attempts": 2}, [tried.execution_id]),
        ({"min_attempts": 2, "public_state": failed}, [tried.execution_id]),
        ({"min_attempts": 2, "public_states": (ok, PublicState.ACTIVE)}, []),
        ({"min_attempts": 2, "sort": "old"}, [tried.execution_id]),
        ({"min_attempts": 1, "public_state": ok}, [done.execution_id]),
        ({"execution_kinds": ("pay", "x")}, [member, refused.execution_id]),
        ({"flow_id": flow_id}, [member]),
        ({"flow_id": flow_id, "public_state": failed}, []),
        ({"flow_id": uuid4()}, []),
        ({"idempotency_key": "k", "namespace": "default"}, [keyed]),
        ({"idempotency_key": "k", "namespace": "other"}, []),
        ({"idempotency_key": "k", "namespace": "default", "public_state": failed}, []),
        ({"worker": "w-1"}, [first]),
        ({"worker": "w"}, [second, first]),
        ({"worker": "w", "sort": "old"}, [first, second]),
        ({"sort": "long"}, [first, second]),
        (
            {"tags": (("shop.tenant", "acme"), ("shop.tenant", "b"), ("shop.size", "1"))},
            [keyed, member, done.execution_id],
        ),
        ({"tags": (("shop.tenant", "acme"),), "public_states": (failed,)}, []),
    ]
    for fields, found in expected:
        assert await search(db, **fields) == found, fields
        counted = await count_matching(db, Search(**fields))
        assert counted == MatchCount(count=len(found), more=False), fields
        pages, cursor = list[ExecutionId](), None
        while found:
            page = await search_executions(db, Search(**fields), cursor=cursor, limit=1)
            pages += ids(page)
            if (cursor := page.next_cursor) is None:
                break
        assert pages == found, fields


async def test_a_tag_is_found_by_key_and_value(db: Connection) -> None:
    mine = await given.created(db, tags={"shop.tenant": "acme", "shop.size": "1"})
    await given.created(db, tags={"shop.tenant": "other"})
    await given.created(db, tags={"shop.owner": "acme"})
    await given.created(db)

    assert await search(db, tag=("shop.tenant", "acme")) == [mine]
    assert await search(db, tag=("shop.size", "1")) == [mine]
    assert await search(db, tag=("shop.tenant", "")) == []


async def test_time_is_from_inclusive_to_exclusive(db: Connection, clock: Clock) -> None:
    start = await clock.now()
    made = []
    for _ in range(4):
        made.append(await given.created(db))
        await clock.advance(1)
    second = timedelta(seconds=1)

    assert await search(db, created_since=start + second) == [made[3], made[2], made[1]]
    assert await search(db, created_before=start + 2 * second) == [made[1], made[0]]
    assert await search(db, created_since=start + second, created_before=start + 3 * second) == [
        made[2],
        made[1],
    ]


async def test_the_last_stretch_of_time_counts_on_the_databases_clock(
    db: Connection, clock: Clock
) -> None:
    await clock.advance(timedelta(days=-400))
    made = []
    for _ in range(4):
        made.append(await given.created(db, tags={"shop.tenant": "t"}))
        await clock.advance(1)

    assert await search(db, created_within=2) == [made[3], made[2]]
    assert await search(db, created_within=timedelta(seconds=0.999)) == []
    assert await search(db, created_within=2, tag=("shop.tenant", "t")) == [made[3], made[2]]
    assert await search(
        db, created_within=3, created_since=await clock.now() - timedelta(seconds=1)
    ) == [made[3]]
    with pytest.raises(ValidationError, match="created_within"):
        await search(db, created_within=float("nan"))


FILTERS: dict[str, Any] = {
    "namespace": "acme",
    "lane_id": "mail",
    "execution_kind": "send",
    "tag": ("shop.tenant", "t"),
    "public_state": PublicState.FAILED,
}


@pytest.mark.parametrize("wrong", FILTERS)
@pytest.mark.parametrize("by_tag", [True, False])
async def test_filters_must_all_match(
    db: Connection, clock: Clock, wrong: str, by_tag: bool
) -> None:
    fields: dict[str, Any] = {
        "namespace": "acme",
        "lane_id": "mail",
        "execution_kind": "send",
        "tags": {"shop.tenant": "t"},
    }
    other = {
        "namespace": {"namespace": "other"},
        "lane_id": {"lane_id": "other"},
        "execution_kind": {"execution_kind": "other"},
        "tag": {"tags": {"shop.tenant": "other"}},
        "public_state": {},
    }[wrong]
    worker = msgspec.structs.replace(given.WORKER, lanes=("mail",), namespace="acme")
    mine = await given.created(db, **fields)
    [task] = await claim(db, worker, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="boom")])
    different = await given.created(db, **(fields | other))
    if wrong != "public_state":
        await terminalize(db, [different], outcome=TerminalOutcome.FAILED)
    filters = (
        FILTERS if by_tag or wrong == "tag" else {k: FILTERS[k] for k in FILTERS if k != "tag"}
    )

    assert await search(db, **filters) == [mine]
    assert (
        await search(
            db, created_since=await clock.now(), created_before=await clock.now(), **filters
        )
        == []
    )


@pytest.mark.parametrize(
    "filters",
    [{}, {"tag": ("shop.tenant", "t")}, {"public_state": PublicState.CANCELLED}],
    ids=["by time", "by tag", "by outcome"],
)
async def test_pages_of_equal_timestamps_have_neither_gap_nor_overlap(
    db: Connection, clock: Clock, filters: dict[str, Any]
) -> None:
    created = await create_execution(db, [given.new(tags={"shop.tenant": "t"}) for _ in range(11)])
    made = [answer.execution_id for answer in created]
    await terminalize(db, made, outcome=TerminalOutcome.CANCELLED)
    found: list[ExecutionId] = []
    sizes, cursor = [], None
    while True:
        page = await search_executions(db, Search(**filters), cursor=cursor, limit=4)
        found += ids(page)
        sizes.append(len(page.executions))
        cursor = page.next_cursor
        if cursor is None:
            break

    assert sizes == [4, 4, 3]
    assert found == sorted(made, key=lambda made: made.uuid, reverse=True)


async def test_a_full_last_page_has_no_cursor(db: Connection) -> None:
    await create_execution(db, [given.new() for _ in range(4)])

    assert (await search_executions(db, Search(), limit=4)).next_cursor is None
    assert (await search_executions(db, Search(), limit=3)).next_cursor is not None


async def test_what_is_created_between_pages_does_not_shift_them(
    db: Connection, clock: Clock
) -> None:
    made = []
    for _ in range(4):
        made.append(await given.created(db))
        await clock.advance(1)
    first = await search_executions(db, Search(), limit=2)
    await given.created(db)

    second = await search_executions(db, Search(), cursor=first.next_cursor, limit=2)

    assert ids(first) + ids(second) == made[::-1]


async def test_a_cursor_keeps_to_the_filters_time(db: Connection, clock: Clock) -> None:
    start = await clock.now()
    made = []
    for _ in range(6):
        made.append(await given.created(db))
        await clock.advance(1)
    within = Search(
        created_since=start + timedelta(seconds=1), created_before=start + timedelta(seconds=5)
    )

    first = await search_executions(db, within, limit=3)
    second = await search_executions(db, within, cursor=first.next_cursor, limit=3)

    assert ids(first) == [made[4], made[3], made[2]]
    assert ids(second) == [made[1]]
    assert second.next_cursor is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "not a cursor!",
        "größe",
        "\ud800",
        "AAAA",
        base64.urlsafe_b64encode(bytes(23)).decode(),
        base64.urlsafe_b64encode(bytes(25)).decode(),
    ],
)
async def test_a_malformed_cursor_is_refused(db: Connection, cursor: str) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        await search_executions(db, Search(), cursor=cursor)


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
async def test_a_cursor_of_any_place_never_breaks_the_search(db: Connection, byte: bytes) -> None:
    await given.created(db)
    place = int.from_bytes(byte * 8, "big"), UUID(bytes=byte * 16)

    page = await search_executions(db, Search(), cursor=search_cursor(Search(), *place))

    assert len(page.executions) <= 1


async def test_a_cursor_of_another_filter_is_refused(db: Connection) -> None:
    await given.created(db)
    await given.created(db)
    page = await search_executions(db, Search(), limit=1)

    with pytest.raises(ValidationError, match="another filter") as refused:
        await search_executions(db, Search(lane_id="gpu"), cursor=page.next_cursor)
    assert refused.value.code == "invalid_cursor"


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_holds_1_to_1000(db: Connection, limit: int) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await search_executions(db, Search(), limit=limit)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"lane_id": ""}, "lane_id"),
        ({"lane_id": "größe"}, "lane_id"),
        ({"namespace": "a\x00"}, "namespace"),
        ({"execution_kind": "a\ud800"}, "execution_kind"),
        ({"tag": ("Shop", "x")}, "tag key"),
        ({"tag": ("shop.tenant", "a\x00")}, "tag shop.tenant"),
        ({"tags": (("a.b", "c"),) * 4 + (("a.c", ""), ("a.d", ""), ("a.e", ""))}, "tags"),
        ({"min_attempts": -1}, "min_attempts"),
        ({"idempotency_key": "k"}, "idempotency_key 'k' needs a namespace"),
        ({"worker": "w", "public_state": PublicState.FAILED}, "worker 'w'"),
        ({"sort": "long", "public_states": (PublicState.FAILED,)}, "sort 'long'"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        await search_executions(db, Search(**fields))


async def test_the_largest_uuid_is_found_too(db: Connection) -> None:
    last = await given.created(db, execution_id=ExecutionId(0, UUID(int=2**128 - 1)))

    assert await search(db) == [last]
    assert await search(db, lane_id="default") == [last]


# By what handlers have recorded.


async def test_divergent_executions_are_found_by_their_kind(db: Connection) -> None:
    diverged = {
        kind: await suspended(
            db,
            kind=kind,
            reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
            detail=f"{DIVERGENCE}other calls",
            keeps_waitpoints=True,
        )
        for kind in ("a", "b")
    }
    await suspended(db, kind="a", detail="waits for signal 'x'", keeps_waitpoints=True)

    assert await search(db, divergent=True) == [diverged["b"], diverged["a"]]
    assert await search(db, divergent=True, execution_kind="a") == [diverged["a"]]
    suspended_too = Search(divergent=True, public_state=PublicState.SUSPENDED)
    assert len(ids(await search_executions(db, suspended_too))) == 2


async def patched(db: Connection, value: bytes | None, *, name: str = "audit") -> ExecutionId:
    """An execution that runs and has recorded this answer of `ctx.patched`, or none."""
    lease = await given.claimed(db, execution_kind="order")
    if value is not None:
        write = EntryWrite(
            lease=lease,
            seq=1,
            kind=JournalKind.PATCH,
            state=JournalState.DONE,
            name=PATCH_PREFIX + name,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            encoding="json",
            value=value,
        )
        assert await record_entries(db, [write]) == {}
    return lease.execution_id


async def test_executions_that_may_be_without_a_patch(db: Connection) -> None:
    await patched(db, b"true")
    await patched(db, b"\xc3")
    old = await patched(db, b"false")
    unknown = await patched(db, None)
    other = await patched(db, b"true", name="other")
    ended = await given.claimed(db, execution_kind="order")
    await complete(db, [Completion(ended)])
    await given.created(db, execution_kind="order")  # begins with the new code

    found = await search(db, execution_kind="order", patch_missing="audit")

    assert sorted(found) == sorted([old, unknown, other])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"patch_missing": "x"}, "patch_missing 'x' must be given with a kind"),
        ({"patch_missing": "x", "execution_kind": "k", "divergent": True}, "patch_missing"),
        ({"divergent": True, "public_state": PublicState.FAILED}, "public_state 'failed'"),
        ({"divergent": True, "tag": ("a.b", "c")}, "tag"),
    ],
)
async def test_filters_that_do_not_go_together_are_refused(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        await search(db, **fields)
