"""A replay goes on before the failure, from a step, or from the start."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import current_step
from flowfabric.engine.engine import Engine
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.kept_entries import Mark
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.journal.rewind_journal import MAX_KEYS
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import (
    Replayed,
    replay_execution,
    replay_executions,
)
from flowfabric.errors import EngineError, ExecutionNotTerminal, NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import JournalKind
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE, actions
from tests.engine.flows.graphs import submitted
from tests.engine.journal.journals import (
    FAILED,
    claimed_again,
    entry,
    journal,
    recorded,
    rows,
    signalled,
)


async def failed(db: Connection, *names: str) -> ExecutionId:
    """An execution whose handler made these calls, and failed."""
    lease = await given.claimed(db)
    await recorded(db, lease, *names)
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])
    return lease.execution_id


async def replayed(db: Connection, execution_id: ExecutionId, **options: Any) -> Replayed:
    async with db.transaction():
        return await replay_execution(db, execution_id, **options)


async def facts(db: Connection, execution_id: ExecutionId) -> dict[str, Any]:
    """What the last replay said of the journal."""
    details = (await actions(db, execution_id))[-1].details
    wanted = ("from", "from_step", "dropped_entries", "dropped_keys", "new_generation")
    return {name: details[name] for name in wanted if name in details}


# From the failure.


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("a b c!", "a b"),  # the one that ended it is tried again
        ("a b! c d!", "a b! c"),  # a failure that the handler had got over stays got over
        ("a b! c! d!", "a"),  # none is done after these
        ("a b! c", "a c"),  # none failed after the last that is done: the last that failed
        ("a! b c! d", "a! b d"),
        ("a! b!", "a!"),  # none is done
        ("a!", ""),
        ("a b", "a b"),  # what was done stays done
        ("a ~b? c d?", "a c"),  # what was open is begun again
        ("~a?", ""),
        ("a? b! c d!", "b! c"),
    ],
)
async def test_what_was_done_stays_done(db: Connection, made: str, kept: str) -> None:
    execution_id = await failed(db, *made.split())

    await replayed(db, execution_id)

    left = [row["name"] for row in await rows(db, execution_id) if row["seq"] > 0]
    names = [name.strip("~!?") for name in made.split()]
    assert left == [name.strip("!") for name in kept.split()]
    assert await facts(db, execution_id) == {
        "from": "failure",
        "from_step": None,
        "dropped_entries": len(names) - len(left),
        "dropped_keys": [f"{name}#0" for name in names if name not in left],
        "new_generation": None,
    }


@pytest.mark.parametrize(
    ("made", "gaps"),
    [("a b c!", ""), ("a b! c", "b"), ("a ~b? c d?", "b"), ("a? b! c d! e?", "a"), ("a b? c!", "")],
)
async def test_the_mark_lists_the_calls_that_are_made_again_before_others_that_are_kept(
    db: Connection, made: str, gaps: str
) -> None:
    execution_id = await failed(db, *made.split())

    await replayed(db, execution_id)

    assert await _gaps(db, execution_id) == gaps.split()
    assert (await read_journal(db, [execution_id]))[execution_id].generation == 0


async def test_gaps_of_an_earlier_replay_stay_until_the_journal_begins_anew(
    db: Connection,
) -> None:
    execution_id = await failed(db, "a", "b!", "c", "d!")
    await replayed(db, execution_id, from_step="d")
    lease = await claimed_again(db, execution_id)
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])
    await replayed(db, execution_id)
    assert await _gaps(db, execution_id) == ["b"]
    lease = await claimed_again(db, execution_id)
    await recorded(db, lease, "e!", "f")
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])

    await replayed(db, execution_id)

    assert await _gaps(db, execution_id) == ["b", "e"]
    lease = await claimed_again(db, execution_id)
    async with db.transaction():
        await restart_execution(db, lease, payload=b"{}")
    assert await _gaps(db, execution_id) == []


async def _gaps(db: Connection, execution_id: ExecutionId) -> list[str]:
    """The names of the calls that are made again although later ones are kept."""
    marks = [row["value"] for row in await rows(db, execution_id) if row["seq"] == 0]
    return [name for mark in marks for name, _, _ in Mark.decode(mark).again]


async def test_a_sleep_whose_time_has_passed_was_done(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    soon, later = [await clock.now() + timedelta(seconds=each) for each in (5, 50)]
    await recorded(db, lease, "a!", "~nap?", due_at=soon)
    await recorded(db, lease, "b!", "~rest?", due_at=later)
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])
    await clock.advance(5)

    await replayed(db, lease.execution_id)

    assert await journal(db, lease.execution_id) == ["1 a failed", "2 nap open"]


async def test_a_failure_that_did_not_end_the_execution_stays_got_over(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "a", "b!", "c", "~nap?")
    async with db.transaction():
        await cancel_execution(db, lease.execution_id, reason="a mistake")

    await replayed(db, lease.execution_id)

    assert await journal(db, lease.execution_id) == ["1 a done", "2 b failed", "3 c done"]


async def test_the_numbers_of_kept_entries_stay_and_new_ones_follow(db: Connection) -> None:
    execution_id = await failed(db, "a", "b!", "c", "d!")

    await replayed(db, execution_id)

    assert await journal(db, execution_id) == ["1 a done", "2 b failed", "3 c done"]
    assert (await read_journal(db, [execution_id]))[execution_id].next_seq == 4


async def test_the_mark_of_a_generation_is_not_what_was_done(db: Connection) -> None:
    lease = await given.claimed(db)
    async with db.transaction():
        await restart_execution(db, lease, payload=b"{}")
    lease = await claimed_again(db, lease.execution_id)
    await record_entries(db, [_failed(lease, 1, "a"), _failed(lease, 2, "b")])
    await fail(db, [Failure(lease=lease, reason="boom")])

    await replayed(db, lease.execution_id)

    assert await journal(db, lease.execution_id) == ["0 mark done", "1 a failed"]


async def test_an_execution_that_succeeded_can_be_replayed(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "a", "~nap?")
    await complete(db, [Completion(lease)])

    await replayed(db, lease.execution_id)

    assert await journal(db, lease.execution_id) == ["1 a done"]


async def test_a_signal_that_only_a_dropped_entry_consumed_can_be_consumed_again(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    await signalled(db, lease.execution_id, "a", "b")
    await record_entries(
        db,
        [
            entry(lease, 1, "wait", kind=JournalKind.SIGNAL, signal_seq=1),
            _failed(lease, 2, "wait", kind=JournalKind.SIGNAL, occurrence=1, signal_seq=2),
        ],
    )
    await fail(db, [Failure(lease=lease, reason="boom")])

    await replayed(db, lease.execution_id)

    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert [each.signal_name for each in found.signals] == ["b"]


# From a step, from the start.


async def test_from_a_step_its_first_entry_and_all_after_it_are_made_again(db: Connection) -> None:
    execution_id = await failed(db, "~nap?", "a", "b", "a2", "b2!", "c")

    await replayed(db, execution_id, from_step="b")

    assert await journal(db, execution_id) == ["1 nap open", "2 a done"]
    assert await facts(db, execution_id) == {
        "from": "failure",
        "from_step": "b",
        "dropped_entries": 4,
        "dropped_keys": ["b#0", "a2#0", "b2#0", "c#0"],
        "new_generation": None,
    }


async def test_of_several_entries_of_a_name_the_first_counts(db: Connection) -> None:
    lease = await given.claimed(db)
    await record_entries(
        db,
        [
            entry(lease, 1, "first"),
            entry(lease, 2, "fetch", item="p1"),
            entry(lease, 3, "fetch", item="p2"),
            entry(lease, 4, "fetch", item="p1", occurrence=1),
        ],
    )
    await fail(db, [Failure(lease=lease, reason="boom")])

    await replayed(db, lease.execution_id, from_step="fetch")

    assert await journal(db, lease.execution_id) == ["1 first done"]
    told = await facts(db, lease.execution_id)
    assert told["dropped_keys"] == ["fetch:p1#0", "fetch:p2#0", "fetch:p1#1"]


async def test_from_the_start_the_journal_is_empty_and_the_next_generation_begins(
    db: Connection,
) -> None:
    execution_id = await failed(db, "a", "b!")
    await signalled_and_consumed(db, execution_id)

    await replayed(db, execution_id, from_="start")

    found = (await read_journal(db, [execution_id]))[execution_id]
    assert await journal(db, execution_id) == ["0 mark done"]
    assert (found.generation, found.next_seq) == (1, 1)
    assert [each.signal_seq for each in found.signals] == [1]
    assert await facts(db, execution_id) == {
        "from": "start",
        "from_step": None,
        "dropped_entries": 3,
        "dropped_keys": ["a#0", "b#0", "wait#0"],
        "new_generation": 1,
    }


async def signalled_and_consumed(db: Connection, execution_id: ExecutionId) -> None:
    """The journal has consumed the first signal."""
    await signalled(db, execution_id, "a")
    await db.execute(
        "INSERT INTO ff.journal (partition_key, seq, execution_id, attempt_index, started_at_ms,"
        " recorded_at_ms, kind, state, name, signal_seq)"
        " VALUES ($1, 3, $2, 0, 0, 0, 'signal', 'done', 'wait', 1)",
        execution_id.partition_key,
        execution_id.uuid,
    )


async def test_each_replay_from_the_start_and_each_restart_begins_a_generation(
    db: Connection,
) -> None:
    execution_id = await failed(db, "a")
    await replayed(db, execution_id, from_="start")
    lease = await claimed_again(db, execution_id)
    async with db.transaction():
        await restart_execution(db, lease, payload=b"{}")
    lease = await claimed_again(db, execution_id)
    await fail(db, [Failure(lease=lease, reason="boom")])

    await replayed(db, execution_id, from_="start")

    assert (await read_journal(db, [execution_id]))[execution_id].generation == 3


async def test_from_the_start_begins_a_generation_also_without_a_journal(db: Connection) -> None:
    execution_id = await failed(db)

    await replayed(db, execution_id, from_="start")

    assert await journal(db, execution_id) == ["0 mark done"]


# Refusals.


async def test_a_step_that_is_not_in_the_journal_is_refused_and_nothing_is_written(
    db: Connection,
) -> None:
    having, lacking, empty = await failed(db, "a"), await failed(db, "b"), await failed(db)
    active = (await given.claimed(db)).execution_id
    unknown = ExecutionId.mint()
    before = await given.row(db, lacking), await journal(db, lacking)

    async with db.transaction():
        answers = await replay_executions(
            db, [having, lacking, empty, active, unknown], from_step="a"
        )

    ok, *refused = answers
    assert isinstance(ok, Replayed)
    assert [type(each) for each in refused] == [NotFound, NotFound, ExecutionNotTerminal, NotFound]
    assert str(refused[0]) == f"step 'a' of execution {lacking} does not exist"
    assert isinstance(refused[0], EngineError)
    assert refused[0].code == "step_not_found"
    assert (await given.row(db, lacking), await journal(db, lacking)) == before
    assert await journal(db, having) == []


@all_cases(
    ("options", "named"),
    [
        ({"from_": "middle"}, "from_ 'middle'"),
        ({"from_": None}, "from_"),
        ({"from_step": ""}, "from_step"),
        ({"from_step": "x" * 129}, "from_step"),
        ({"from_step": 7}, "from_step 7"),
        ({"from_step": "a", "from_": "start"}, "from_step 'a' or from_"),
    ],
)
async def test_bad_arguments_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        await replay_execution(NO_DATABASE, ExecutionId.mint(), **options)


# Costs, flows and long lists.


async def test_without_a_journal_a_replay_takes_one_read_more_and_no_write(db: Connection) -> None:
    execution_id = await failed(db)
    seen: list[str] = []

    async def step(conn: object, name: str) -> None:
        seen.append(name)

    token = current_step.set(step)
    try:
        await replayed(db, execution_id)
    finally:
        current_step.reset(token)

    assert [name for name in seen if name.startswith("journal.")] == [
        "journal.rewind_journal: those that have a journal"
    ]
    assert await facts(db, execution_id) == {}


async def test_many_are_rewound_at_once_each_by_its_own_journal(db: Connection) -> None:
    made = [await failed(db, "a", f"b{n}!") for n in range(3)] + [await failed(db)]

    async with db.transaction():
        answers = await replay_executions(db, made)

    assert all(isinstance(each, Replayed) for each in answers)
    for number, each in enumerate(made[:3]):
        assert await journal(db, each) == ["1 a done"]
        assert (await facts(db, each))["dropped_keys"] == [f"b{number}#0"]


async def test_members_of_a_replayed_flow_go_on_before_their_failures(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [lease] = await flow.claim("a")
    await recorded(db, lease, "one", "two!")
    await ff_engine.fail([Failure(lease=lease, reason="boom", category="permanent")])
    await flow.carry_all()

    await ff_engine.replay_flow(flow.flow_id)

    assert await journal(db, flow["a"]) == ["1 one done"]
    assert (await facts(db, flow["a"]))["dropped_keys"] == ["two#0"]


async def test_an_event_lists_at_most_a_thousand_keys(db: Connection) -> None:
    lease = await given.claimed(db)
    await record_entries(db, [entry(lease, n, "x", occurrence=n) for n in range(1, MAX_KEYS + 11)])
    await fail(db, [Failure(lease=lease, reason="boom")])

    await replayed(db, lease.execution_id, from_step="x")

    told = await facts(db, lease.execution_id)
    assert (told["dropped_entries"], len(told["dropped_keys"])) == (MAX_KEYS + 10, MAX_KEYS)


def _failed(lease: Lease, seq: int, name: str, **fields: Any) -> EntryWrite:
    return entry(lease, seq, name, state=FAILED, **fields)
