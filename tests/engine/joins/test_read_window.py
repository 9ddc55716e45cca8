"""Children of which each has a wait of its own: who was spawned, who runs, who ended how."""

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.read_window import ChildWindow
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import (
    FlowAlreadyTerminal,
    NonDeterministicReplay,
    StaleLease,
    ValidationError,
)
from flowfabric.ids import ExecutionId, GroupId, children_group_id
from flowfabric.testing import Clock
from tests import given
from tests.engine.joins.invariants import broken_invariants
from tests.engine.joins.parents import Family, parent


def waits(family: Family, names: str) -> dict[GroupId, ExecutionId]:
    """The children of the first call, by the waits that they have or would have."""
    family.born(names)
    return {
        children_group_id(family.parent, 0, index): family[name] for index, name in enumerate(names)
    }


async def spawned(family: Family, names: str, *, of: str) -> None:
    """These of the children that the first call is for."""
    children = {each.execution_id: each for each in family.born(of)}
    wanted = {family[name] for name in names}
    await family.engine.spawn_apart(
        family.lease,
        {wait: children[each] for wait, each in waits(family, of).items() if each in wanted},
    )


async def window(family: Family, names: str) -> str:
    """`ab running, c succeeded, ed lost`: by name, but those that were lost as they were."""
    found = await family.engine.read_window(family.lease, waits(family, names))
    parts = {
        "running": [name for name in names if family[name] in found.running],
        "succeeded": [name for name in names if family[name] in found.succeeded],
        "lost": sorted(
            (name for name in names if family[name] in found.lost),
            key=lambda name: found.lost.index(family[name]),
        ),
    }
    return ", ".join(f"{''.join(those)} {what}" for what, those in parts.items() if those)


async def test_who_was_not_spawned_is_not_there(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)

    assert await ff_engine.read_window(family.lease, waits(family, "abc")) == ChildWindow()
    await spawned(family, "ab", of="abc")

    assert await window(family, "abc") == "ab running"
    row = await family.flow()
    assert (row["node_count"], row["edge_count"]) == (3, 2)
    assert await broken_invariants(db) == {}


async def test_each_is_told_by_its_end_and_who_was_lost_in_that_order(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "abcd", of="abcd")

    for name, letter in ("cF", "bS", "aC"):
        await clock.advance(1)
        await family.end(name, letter)
        await family.settle()

    assert await window(family, "abcd") == "d running, b succeeded, ca lost"
    assert await broken_invariants(db) == {}


async def test_the_same_again_changes_nothing_and_what_is_missing_is_added(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "ab", of="abc")
    before = await given.everything(db)

    await spawned(family, "ab", of="abc")
    assert await given.everything(db) == before
    await spawned(family, "bc", of="abc")

    assert await window(family, "abc") == "abc running"
    row = await family.flow()
    assert (row["node_count"], row["edge_count"]) == (4, 3)


async def test_children_that_another_wait_has_are_adopted_with_their_ends(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("abc")
    await family.end("b", "S")
    await family.settle()

    await spawned(family, "abc", of="abc")

    assert await window(family, "abc") == "ac running, b succeeded"
    row = await family.flow()
    assert (row["node_count"], row["edge_count"]) == (4, 6)
    assert await broken_invariants(db) == {}


async def test_a_lease_that_is_gone_spawns_nobody(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    family.lease = msgspec.structs.replace(family.lease, lease_epoch=0)
    before = await given.everything(db)

    with pytest.raises(StaleLease):
        await spawned(family, "ab", of="ab")

    assert await given.everything(db) == before


async def test_a_cancelled_flow_gets_nobody_and_a_child_is_given_once(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    [only] = family.born("a")
    with pytest.raises(ValidationError, match="none twice"):
        await ff_engine.spawn_apart(
            family.lease, {children_group_id(family.parent, 0, n): only for n in range(2)}
        )
    await spawned(family, "a", of="ab")
    await ff_engine.cancel_flow(family.flow_id, policy="cancel_flow_only")

    with pytest.raises(FlowAlreadyTerminal):
        await spawned(family, "b", of="ab")
    assert await window(family, "ab") == "a running"


async def test_a_wait_for_somebody_else_is_told(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "a", of="ab")
    first, second = waits(family, "ab")
    swapped = {first: family["b"], second: family["a"]}

    with pytest.raises(NonDeterministicReplay, match=str(family["a"].uuid)):
        await ff_engine.read_window(family.lease, swapped)


async def test_a_replayed_parent_has_its_cancelled_children_back(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await spawned(family, "abc", of="abcd")
    await family.end("a", "S")
    await family.end("b", "F")
    await family.settle()
    await family.transact(
        lambda conn: cancel_execution(conn, family.parent, reason="enough", actor="ann")
    )
    await family.settle()
    assert await family.why("c") == ("cancelled", "parent_ended", "engine")
    await ff_engine.replay_execution(family.parent, actor="ann")
    await family.take_up()

    assert await window(family, "abcd") == "c running, a succeeded, b lost"
    assert await broken_invariants(db) == {}
