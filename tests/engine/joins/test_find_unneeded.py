"""Races of arms: what served only the losers of a race is cancelled with them."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins import find_unneeded
from flowfabric.engine.joins.cancel_siblings import cancel_siblings, pending_siblings
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, end_all, submitted

SATISFIED, IMPOSSIBLE = "sibling_quorum_satisfied", "sibling_quorum_impossible"


async def decided(
    engine: Engine, arrows: str, ends: str, policies: dict[str, JoinPolicy] | None = None
) -> Graph:
    """The flow after these members ended (`a:S b:F`), each end dispatched before the next."""
    flow = await submitted(engine, arrows, policies=policies or {"d": AnyOf()})
    for end in ends.split():
        name, _, letter = end.partition(":")
        await flow.end(name, letter)
        await engine.dispatch()
    return flow


@pytest.mark.parametrize(
    ("arrows", "policies", "ends", "states"),
    [
        pytest.param(
            "a1>a2 a2>d b1>b2 b2>b3 b3>d", {}, "a1:S a2:S", "a1:ok a2:ok b1:c b2:c b3:c d:w",
            id="a whole arm is cancelled",
        ),
        pytest.param(
            "w>d s>x s>y x>m y>m m>d", {}, "w:S", "d:w m:c s:c w:ok x:c y:c",
            id="a diamond in the arm is cancelled",
        ),
        pytest.param(
            "w>d s>l l>d s>keep", {}, "w:S", "d:w keep:wc l:c s:w w:ok",
            id="a member that also serves another is kept",
        ),
        pytest.param(
            "t>s s>l l>d s>keep t>l w>d", {}, "w:S", "d:w keep:wc l:c s:wc t:w w:ok",
            id="what serves a kept member is kept",
        ),
        pytest.param(
            "s>a s>b a>d b>d w>d", {"d": Quorum(1)}, "w:S", "a:c b:c d:w s:c w:ok",
            id="a member that two losing arms share is cancelled",
        ),
        pytest.param(
            "s>a s>b a>d b>d", {}, "s:S a:S", "a:ok b:c d:w s:ok",
            id="a member that the winner shares has ended",
        ),
        pytest.param(
            "s>p p>in q>in in>l l>d w>d", {"in": AnyOf(), "d": AnyOf()}, "w:S",
            "d:w in:c l:c p:c q:c s:c w:ok",
            id="a race inside a losing arm is cancelled with it",
        ),
        pytest.param(
            "s>p p>in q>in in>l l>d w>d", {"in": AnyOf("let_run"), "d": AnyOf()}, "q:S w:S",
            "d:w in:c l:c p:c q:ok s:c w:ok",
            id="so are those that an inner race let run",
        ),
        pytest.param(
            "f>l v>l l>d w>d", {}, "f:F w:S", "d:w f:f l:k v:c w:ok",
            id="also above a loser that was skipped",
        ),
        pytest.param(
            "f>m v>m m>l l>d w>d", {}, "f:F w:S", "d:w f:f l:k m:k v:c w:ok",
            id="also across several that were skipped",
        ),
        pytest.param(
            "s>l l>d w>d s>o x>o l>e v>e", {"e": AnyOf()}, "w:S x:F v:S",
            "d:w e:w l:c o:k s:c v:ok w:ok x:f",
            id="also above one that lost before, once nothing else needs it",
        ),
        pytest.param(
            "u>o o2>o u>l l>d w>d", {"o": AnyOf("let_run"), "d": AnyOf()}, "o2:S o:S w:S",
            "d:w l:c o:ok o2:ok u:w w:ok",
            id="what a join lets run is left alone",
        ),
        pytest.param(
            "f1>d f2>d s>l l>d", {"d": Quorum(2)}, "f1:F f2:F", "d:k f1:f f2:f l:c s:c",
            id="an impossible quorum cancels the arms that are left",
        ),
        pytest.param(
            "s>l l>d w>d", {"d": AnyOf("let_run")}, "w:S", "d:w l:wc s:w w:ok",
            id="let_run cancels nothing",
        ),
        pytest.param(
            "f>d s>l l>d", {"d": AllOf()}, "f:F", "d:k f:f l:wc s:w",
            id="all-of cancels nothing",
        ),
    ],
)  # fmt: skip
async def test_what_served_only_the_losers_is_cancelled(
    ff_engine: Engine,
    arrows: str,
    policies: dict[str, JoinPolicy],
    ends: str,
    states: str,
) -> None:
    flow = await decided(ff_engine, arrows, ends, {"d": AnyOf()} | policies)

    assert await flow.states() == states
    assert await flow.count("pending_cancel_groups") == 0


@pytest.mark.parametrize(("ends", "reason"), [("w:S", SATISFIED), ("f:F w:F", IMPOSSIBLE)])
async def test_a_member_cancelled_with_its_arm_says_why(
    ff_engine: Engine, ends: str, reason: str
) -> None:
    policy: JoinPolicy = AnyOf() if reason == SATISFIED else Quorum(2)
    flow = await decided(ff_engine, "s>l l>d w>d f>d", ends, {"d": policy})

    row = await flow.row("s")
    assert (row["cancellation_reason"], row["cancelled_by"]) == (reason, "engine")
    [why] = (await ff_engine.explain_execution(flow["s"])).reasons
    how = "was satisfied without it" if reason == SATISFIED else "cannot be satisfied any more"
    assert f"it was not needed any more: the join of 'd' {how} ({reason})" in why.message


async def test_a_running_member_of_a_losing_arm_loses_its_lease(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "s>l l>d w>d", policies={"d": AnyOf()})
    [lease] = await flow.claim("s")
    await flow.complete("w")
    await ff_engine.dispatch()

    row = await flow.row("s")
    assert (row["terminal_outcome"], row["lease_epoch"]) == ("cancelled", lease.lease_epoch + 1)
    assert (await given.lease_events(db, flow["s"]))[-1] == ("revoked", "cancelled")
    assert await flow.told("s") == ["cancelled"]


async def test_a_deep_arm_is_cancelled_in_few_turns(ff_engine: Engine) -> None:
    depth = 2 * find_unneeded.AT_ONCE + 10
    chain = " ".join(f"m{n + 1}>m{n}" for n in range(depth))
    flow = await submitted(ff_engine, f"{chain} m0>d w>d", policies={"d": AnyOf()})
    await flow.complete("w")
    await flow.carry_all()

    turns = 0
    while await flow.tick():
        turns += 1

    assert turns <= 4
    found = await ff_engine.describe_flow(flow.flow_id)
    assert found is not None
    assert found.members.cancelled == depth + 1


@pytest.mark.parametrize("above", ["t>s{0}", "t>f{0} t>v{0} f{0}>s{0} v{0}>s{0}"])
async def test_a_wide_arm_is_cancelled_slice_by_slice(
    ff_engine: Engine, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    monkeypatch.setattr(find_unneeded, "AT_ONCE", 2)
    width = 9
    arm = " ".join(f"{above.format(n)} s{n}>l" for n in range(width))
    flow = await submitted(ff_engine, f"{arm} l>d w>d", policies={"d": AnyOf()})
    skipping = [name for name in flow.ids if name.startswith("f")]
    await flow.transact(lambda conn: end_all(conn, [flow[name] for name in skipping], "K"))
    await ff_engine.dispatch()
    await flow.complete("w")
    await ff_engine.dispatch()

    ended = {
        name: "k" if name[0] in "f" or (skipping and name[0] in "sl") else "c" for name in flow.ids
    }
    states = ended | {"d": "w", "w": "ok"}
    assert await flow.states() == " ".join(f"{name}:{states[name]}" for name in sorted(states))
    assert await flow.count("pending_cancel_groups") == 0


async def test_two_races_that_drain_at_once_cancel_what_served_both(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(
        ff_engine, "s>p s>q p>d w>d q>e w>e", policies={"d": AnyOf(), "e": AnyOf()}
    )
    await flow.complete("w")
    await flow.carry_all()
    first, second = await another(), await another()

    for _ in range(3):  # neither sees what the other has cancelled before both commit
        async with first.transaction(), second.transaction():
            await cancel_siblings(first, limit=1)
            await cancel_siblings(second, limit=1)

    assert await flow.states() == "d:w e:w p:c q:c s:c w:ok"
    assert not await pending_siblings(db)


async def test_a_member_in_use_is_cancelled_once_it_is_free(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "r>s s>l l>d w>d", policies={"d": AnyOf()})
    await flow.complete("w")
    await flow.carry_all()
    other = await another()
    async with other.transaction():
        await other.execute(
            "SELECT FROM ff.exec_core WHERE execution_id = $1 FOR UPDATE", flow["s"].uuid
        )
        while await flow.tick():
            pass
        assert (await flow.states(), await pending_siblings(db)) == (
            "d:w l:c r:c s:wc w:ok",
            True,
        )

    while await flow.tick():
        pass

    assert await flow.states() == "d:w l:c r:c s:c w:ok"
    assert not await pending_siblings(db)


async def test_a_turn_that_dies_leaves_everything_to_the_next(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "r>s s>l l>d w>d", policies={"d": AnyOf()})
    await flow.complete("w")
    await flow.carry_all()
    for _ in range(2):
        before = await given.everything(db)
        dying = db.transaction()
        await dying.start()
        assert await cancel_siblings(db) == 1
        await dying.rollback()
        assert await given.everything(db) == before
        assert await flow.tick() == 1

    assert await flow.tick() == 0
    assert await flow.states() == "d:w l:c r:c s:c w:ok"
    assert [await flow.told(name) for name in ("l", "s", "r")] == [["cancelled"]] * 3


async def test_a_loser_that_is_replayed_meanwhile_runs_on(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "s>l l>d w>d s>keep", policies={"d": AnyOf()})
    await flow.complete("w")
    await flow.carry_all()
    assert await flow.tick() == 1
    await flow.replay("l")

    while await flow.tick():
        pass

    assert await flow.states() == "d:w keep:wc l:w s:w w:ok"
