"""A parent that is replayed finds its children, and they may run again too."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.reopen_join import reopen_join
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.journal.kept_entries import kept_entries
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.joins import AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.controls import Another, actions, waiting
from tests.engine.flows.graphs import done_or_waiting
from tests.engine.joins import parents
from tests.engine.journal.journals import COMPENSATION, entry, journal, recorded, refund


async def revived(engine: Engine, db: Connection) -> tuple[parents.Family, Lease]:
    """Cancelled with both of its children, and running again; it has not asked for them yet."""
    family = await parents.parent(engine, db)
    await family.spawn("ab")
    await family.cancel("p")
    await family.settle()
    await family.replay("p")
    return family, await family.take_up()


async def again(family: parents.Family, names: str, policy: JoinPolicy | None = None) -> str:
    """The parent is replayed and gets to the same call; how its wait stands then."""
    await family.replay("p")
    await family.take_up()
    await family.spawn(names, policy=policy)
    return await family.waited()


@pytest.mark.parametrize("carried", ["nothing", "the end", "the cancels", "everything"])
async def test_children_that_were_cancelled_with_their_parent_run_again(
    ff_engine: Engine, db: Connection, carried: str
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc")
    await family.complete("a")
    await family.settle()
    await family.put_down()
    await family.cancel("p")
    if carried != "nothing":
        await family.carry_all()
    if carried in ("the cancels", "everything"):
        await family.tick()
    if carried == "everything":
        await family.settle()

    assert await again(family, "abc") == "1/0/0/2 pending"

    await family.put_down()
    await family.settle()
    assert await family.states() == "a:ok b:w c:w p:wc"
    await family.complete("b", "c")
    await family.settle()
    assert await family.states() == "a:ok b:ok c:ok p:w"
    assert await family.read() == ("satisfied", ["a", "b", "c"], [])


async def test_such_a_child_goes_on_after_what_it_had_done_and_undoes_nothing_twice(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    [child] = await family.claim("a")
    await recorded(db, child, "one", "~nap?")
    await ff_engine.arm_compensation(entry(child, 3, "undo", kind=COMPENSATION), refund())
    await family.cancel("p")
    await family.settle()
    async with db.transaction():
        assert await start_compensations(db, 10) == 1

    await again(family, "a")

    # The mark says that the sleep is made again, although a later call is recorded.
    assert await journal(db, family["a"]) == ["0 mark done", "1 one done", "3 undo done"]
    assert (await kept_entries(db, [family["a"]]))[family["a"]].armed == ()
    told = await actions(db, family["a"])
    assert told[-1].details["dropped_keys"] == ["nap#0"]


async def test_a_child_that_failed_by_itself_stays_failed(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.fail("a")
    await family.settle()
    await family.fail("p")
    await family.settle()

    assert await again(family, "ab") == "0/1/0/1 impossible"

    assert await family.read() == ("impossible", [], ["a"])
    assert await family.states() == "a:f b:w p:a"


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "running"])
async def test_a_child_that_was_replayed_first_counts_as_it_stands(
    ff_engine: Engine, db: Connection, ended: bool
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.complete("b")
    await family.fail("a")
    await family.settle()
    await family.fail("p")
    await family.settle()
    await family.replay("a")
    if ended:
        await family.complete("a")
        await family.settle()

    stands = await again(family, "ab")

    assert stands == ("2/0/0/0 satisfied" if ended else "1/0/0/1 pending")
    if not ended:
        await family.put_down()
        await family.complete("a")
        await family.settle()
        assert await family.state("p") == "waiting"


async def test_a_wait_that_was_satisfied_stays_so(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=AnyOf())
    await family.complete("b")
    await family.settle()
    await family.complete("p")
    await family.settle()
    before = await family.wait_row()

    await again(family, "abc", AnyOf())

    assert await family.wait_row() == before
    assert await family.states() == "a:c b:ok c:c p:a"


async def test_a_quorum_that_stays_impossible_cancels_who_runs(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=Quorum(2))
    await family.fail("a", "b")
    await family.carry_all()
    await family.fail("p")

    assert await again(family, "abc", Quorum(2)) == "0/2/0/1 impossible"

    await family.settle()
    assert await family.why("c") == ("cancelled", "sibling_quorum_impossible", "engine")


async def test_the_same_call_of_a_replayed_parent_again_changes_nothing(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.cancel("p")
    await family.settle()
    await again(family, "ab")
    before = await given.everything(db)

    await family.spawn("ab")

    assert await given.everything(db) == before


async def test_a_child_that_an_operator_replays_meanwhile_counts_as_running(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family, _ = await revived(ff_engine, db)
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, family["a"])
        spawning = await waiting(db, family.spawn("ab"))

    assert (await spawning).group_state == "pending"
    assert await family.waited() == "0/0/0/2 pending"
    assert (await family.row("a"))["replay_count"] == 1


# Beside a child that ends.


async def running_again(engine: Engine, db: Connection) -> parents.Family:
    """Parent and child failed, and run again; the parent's wait still counts the failure."""
    family = await parents.parent(engine, db)
    await family.spawn("a")
    await family.fail("a")
    await family.settle()
    await family.fail("p")
    await family.settle()
    await family.replay("a")
    await family.claim("a")
    await family.replay("p")
    await family.take_up()
    return family


@pytest.mark.parametrize("letter", ["S", "F"])
async def test_a_child_that_ends_before_the_reopening_is_committed_wakes_its_parent(
    db: Connection, ff_engine: Engine, another: Another, letter: str
) -> None:
    """Were its end committed and carried meanwhile, the wait would open behind it."""
    family = await running_again(ff_engine, db)
    worker = await another()
    async with worker.transaction():
        await reopen_join(worker, family.join())
        ending = await done_or_waiting(db, family.end("a", letter))
        await family.carry_all()
        early = ending.done()
    await ending
    assert not early
    await family.put_down()
    assert await family.waited() == "0/0/0/1 pending"

    await family.settle()

    assert await family.state("p") == "waiting"
    assert (await family.read())[0] == ("satisfied" if letter == "S" else "impossible")


async def test_a_child_whose_end_comes_first_counts_as_it_ended(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    family = await running_again(ff_engine, db)
    lease = family.leases.pop("a")
    child, worker = await another(), await another()

    async def reopen() -> None:
        async with worker.transaction():
            await reopen_join(worker, family.join())

    async with child.transaction():
        await complete(child, [Completion(lease)])
        reopening = await given.blocked(db, worker, reopen())
    await reopening

    assert await family.waited() == "1/0/0/0 satisfied"
    await family.settle()
    assert await family.waited() == "1/0/0/0 satisfied"


async def test_a_cancel_of_the_flow_meanwhile_ends_the_children_too(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family, lease = await revived(ff_engine, db)
    spawner = await another()
    async with spawner.transaction():
        await spawn_children(spawner, lease, family.born("ab"), group=family.join())
        cancelling = await waiting(db, ff_engine.cancel_flow(family.flow_id))

    await cancelling
    assert await family.states() == "a:c b:c p:c"


async def test_in_a_cancelled_flow_nobody_runs_again(ff_engine: Engine, db: Connection) -> None:
    family, _ = await revived(ff_engine, db)
    await ff_engine.cancel_flow_header(family.flow_id)

    assert (await family.spawn("ab")).group_state == "impossible"

    assert await family.states() == "a:c b:c p:a"
