"""The entry of a call for children is written with the children: all of it, or nothing."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import current_step
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.children import children_fingerprint
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.journal.entry import EntryWrite, JournalEntry
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.errors import NonDeterministicReplay, StaleLease, ValidationError
from flowfabric.ids import child_id, children_group_id
from flowfabric.joins import AllOf
from flowfabric.states import GroupState, JournalKind, JournalState
from flowfabric.testing import Clock
from tests import given
from tests.engine.joins.parents import Family, parent
from tests.engine.journal.journals import lost

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def call(family: Family, seq: int = 1, position: int = 0, **fields: Any) -> EntryWrite:
    """The entry of an unnamed call."""
    fields = {
        "kind": JournalKind.CHILDREN,
        "state": JournalState.OPEN,
        "name": "children",
        "occurrence": position,
        "started_at": NOW,
    } | fields
    return EntryWrite(lease=family.lease, seq=seq, **fields)


async def entries(family: Family) -> tuple[JournalEntry, ...]:
    return (await family.engine.read_journal([family.parent]))[family.parent].entries


async def spawned(family: Family, names: str, entry: EntryWrite | None, **fields: Any) -> Any:
    position = fields.pop("position", 0)
    new = family.born(names, position, **fields)
    return await family.engine.spawn_children(
        family.lease, new, group=family.join(position), policy=AllOf(), entry=entry
    )


async def test_children_join_and_entry_are_there_together(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)

    join = await spawned(family, "ab", call(family))

    assert join.group_state is GroupState.PENDING
    [entry] = await entries(family)
    assert (entry.kind, entry.state, entry.key) == (
        JournalKind.CHILDREN,
        JournalState.OPEN,
        "children#0",
    )
    assert entry.fingerprint == children_fingerprint(family.born("ab"))


async def test_detached_children_have_an_entry_too(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)

    await ff_engine.spawn_children(
        family.lease, family.born("a"), group=None, entry=call(family, state=JournalState.DONE)
    )

    [entry] = await entries(family)
    assert entry.state is JournalState.DONE


async def test_a_refused_spawn_writes_no_entry_and_a_refused_entry_spawns_nothing(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    family = await parent(ff_engine, db)
    write = call(family)
    await lost(db, clock, family.lease)
    before = await given.everything(db)

    with pytest.raises(StaleLease):
        await spawned(family, "ab", write)

    assert await given.everything(db) == before


@pytest.mark.parametrize("at", ["journal.begin_entry", "lifecycle.create_execution"])
async def test_a_crash_in_a_spawn_leaves_all_of_it_or_nothing(
    ff_engine: Engine, db: Connection, at: str
) -> None:
    family = await parent(ff_engine, db)
    new = family.born("ab")
    before = await given.everything(db)

    async def crash(conn: object, name: str) -> None:
        if name == at:
            raise ConnectionError(at)

    token = current_step.set(crash)
    try:
        with pytest.raises(ConnectionError):
            async with db.transaction():
                await spawn_children(db, family.lease, new, group=family.join(), entry=call(family))
    finally:
        current_step.reset(token)

    assert await given.everything(db) == before
    await spawned(family, "ab", call(family))
    assert len(await entries(family)) == 1


async def test_a_repeated_spawn_finds_children_and_entry_and_changes_nothing(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "ab", call(family))
    before = await given.everything(db)

    join = await spawned(family, "ab", call(family))

    assert join.group_state is GroupState.PENDING
    assert await given.everything(db) == before


async def test_a_decided_entry_stays_as_it_is(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "a", call(family))
    await record_entries(db, [call(family, state=JournalState.DONE, value=b"[]")])

    await spawned(family, "a", call(family))

    [entry] = await entries(family)
    assert (entry.state, entry.value) == (JournalState.DONE, b"[]")


async def test_a_parent_that_spawned_before_there_were_entries_gets_one(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "ab", None)
    assert await entries(family) == ()

    await spawned(family, "ab", call(family))

    assert len(await entries(family)) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"input_payload": b"other"}, "payload"), ({"execution_kind": "other"}, "kind")],
)
async def test_a_repeated_spawn_with_other_children_diverges(
    ff_engine: Engine, db: Connection, fields: dict[str, Any], why: str
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "ab", call(family))
    before = await given.everything(db)

    with pytest.raises(NonDeterministicReplay) as diverged:
        await spawned(family, "ab", call(family), **fields)

    assert diverged.value.execution_id == family.parent
    assert diverged.value.asked
    assert await given.everything(db) == before


async def test_reordered_calls_do_not_get_the_results_of_each_other(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "a", call(family, 1, 0), input_payload=b"1")
    await spawned(family, "b", call(family, 2, 1), position=1, input_payload=b"2")

    with pytest.raises(NonDeterministicReplay, match="other kinds or payloads") as diverged:
        await spawned(family, "a", call(family, 1, 0), input_payload=b"2")

    assert diverged.value.recorded == ("children children#0",)


async def test_another_call_in_the_same_place_diverges(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    step = call(family, kind=JournalKind.STEP, state=JournalState.DONE, name="charge")
    await record_entries(db, [step])

    with pytest.raises(NonDeterministicReplay) as diverged:
        await spawned(family, "a", call(family))

    assert diverged.value.recorded == ("step charge#0",)
    assert diverged.value.asked == ("children children#0",)


async def test_a_call_with_a_name_keeps_the_children_of_its_first_run(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    group = children_group_id(family.parent, 0, name="pages")
    child = child_id(family.parent, 0, 0, kind="child", name="pages")
    entry = call(family, name="pages")
    for payload in (b"1", b"2"):
        new = given.new(execution_id=child, execution_kind="child", input_payload=payload)
        await ff_engine.spawn_children(family.lease, [new], group=group, entry=entry)

    stored = await db.fetchval(
        "SELECT payload FROM ff.exec_body WHERE execution_id = $1", child.uuid
    )
    assert stored == b"1"


@pytest.mark.parametrize(
    "changed", [{"kind": JournalKind.STEP}, {"lease": "other"}], ids=["kind", "lease"]
)
async def test_only_a_fitting_entry_is_taken(
    ff_engine: Engine, db: Connection, changed: dict[str, Any]
) -> None:
    family = await parent(ff_engine, db)
    if "lease" in changed:
        changed = {"lease": await given.claimed(db)}
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="entry"):
        await spawned(family, "a", msgspec.structs.replace(call(family), **changed))

    assert await given.everything(db) == before


# Children with a join each.


async def apart(family: Family, names: str, entry: EntryWrite | None) -> None:
    new = family.born("abc")
    joins = {
        children_group_id(family.parent, 0, "abc".index(name)): new["abc".index(name)]
        for name in names
    }
    await family.engine.spawn_apart(family.lease, joins, entry=entry)


async def test_some_children_of_a_call_after_the_other_share_its_entry(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    write = call(family, fingerprint=children_fingerprint(family.born("abc")))

    await apart(family, "ab", write)
    await apart(family, "bc", write)
    await apart(family, "bc", write)

    assert len(await entries(family)) == 1
    assert await db.fetchval("SELECT count(*) FROM ff.edge_group") == 3


async def test_other_children_of_such_a_call_diverge(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await apart(family, "a", call(family, fingerprint=1))
    before = await given.everything(db)

    with pytest.raises(NonDeterministicReplay):
        await apart(family, "b", call(family, fingerprint=2))

    assert await given.everything(db) == before


async def test_such_a_call_needs_the_fingerprint_of_all_its_children(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)

    with pytest.raises(ValidationError, match="fingerprint"):
        await apart(family, "a", call(family))


def test_a_fingerprint_tells_kinds_payloads_and_their_order_apart() -> None:
    def of(*children: tuple[str, bytes]) -> int:
        return children_fingerprint(
            given.new(execution_kind=kind, input_payload=payload) for kind, payload in children
        )

    different = [
        of(("a", b"1"), ("b", b"2")),
        of(("b", b"2"), ("a", b"1")),
        of(("a", b"2"), ("b", b"1")),
        of(("a", b"1")),
        of(("a", b"12"), ("b", b"")),
        of(("a", b""), ("b", b"12")),
    ]
    assert len(set(different)) == len(different)
    assert of(("a", b"1"), ("b", b"2")) == different[0]
    assert all(0 <= each < 2**32 for each in different)
