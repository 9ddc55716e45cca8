"""Flows and families that two operations meet over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.wait_children import ChildWait
from flowfabric.ids import child_id, children_group_id, parent_flow_id
from flowfabric.joins import AnyOf, JoinPolicy
from flowfabric.policy import ExecutionPolicy, RetryPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import Graph, edges_of, names_of
from tests.proofs.interleave.scene import FLOW_ID, Scene
from tests.proofs.interleave.situations import Situation, leased

ARROWS = "a>c b>c c>d e"
POLICY = ExecutionPolicy(retry_policy=RetryPolicy(max_retries=3))


def new_flow(
    scene: Scene, arrows: str, policies: Mapping[str, JoinPolicy] | None = None, **fields: Any
) -> NewFlow:
    """The flow that the arrows draw."""
    fields.setdefault("policy", POLICY)
    return NewFlow(
        flow_id=FLOW_ID,
        flow_kind="pipeline",
        members=[
            given.new(execution_id=scene.id(name), member_name=name, **fields)
            for name in names_of(arrows)
        ],
        edges=[
            NewEdge(upstream=scene.id(up), downstream=scene.id(down), data_passing_ref="input")
            for up, down in edges_of(arrows)
        ],
        policies={scene.id(name): policy for name, policy in (policies or {}).items()},
    )


async def drawn(
    engine: Engine,
    scene: Scene,
    arrows: str,
    policies: Mapping[str, JoinPolicy] | None = None,
    **fields: Any,
) -> Graph:
    """The flow that the arrows draw, with one execution `n` beside it."""
    await engine.submit_flow(new_flow(scene, arrows, policies, **fields))
    await engine.create_execution([given.new(execution_id=scene.id("n"), priority=-1)])
    scene.flow_id = FLOW_ID
    return Graph(engine, FLOW_ID, {name: scene.id(name) for name in names_of(arrows)})


async def no_flow(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """The flow is about to be submitted."""
    new_flow(scene, ARROWS)
    await engine.create_execution([given.new(execution_id=scene.id("n"), priority=-1)])
    scene.flow_id = FLOW_ID


async def known(graph: Graph, scene: Scene) -> None:
    """What the graph has come to is in the scene."""
    scene.leases |= graph.leases
    scene.revision = await graph.revision()
    rows = await graph.fetch(
        "SELECT e.edge_id, e.upstream_eid, g.waiter_eid, g.waits_as"
        " FROM ff.edge e JOIN ff.edge_group g USING (partition_key, group_id)"
    )
    names = {each.uuid: name for name, each in scene.ids.items()}
    for row in rows:
        waiter = names[row["waiter_eid"]] if row["waits_as"] == "member" else "wait"
        arrow = f"{names[row['upstream_eid']]}>{waiter}"
        scene.edges[arrow] = row["edge_id"]


async def joining(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """c waits for a, which runs, and b, whose success was not carried on; e>c is not applied."""
    graph = await drawn(engine, scene, ARROWS)
    await graph.stage("e>c")
    await graph.claim("a", ttl=3600)
    await graph.complete("b", result=b"1")
    await known(graph, scene)


async def lapsing(engine: Engine, clock: Clock, scene: Scene) -> None:
    """As before, but the lease of a ran out, and everybody's deadline with it."""
    graph = await drawn(engine, scene, ARROWS, deadline=1)
    await graph.stage("e>c")
    await graph.claim("a", ttl=1)
    await graph.complete("b", result=b"1")
    await known(graph, scene)
    await clock.advance(2)


async def last_end(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """c waits only for a, whose success was not carried on; its old lease is remembered."""
    graph = await drawn(engine, scene, ARROWS)
    await graph.stage("e>c")
    await graph.complete("b", result=b"1")
    await graph.carry_all()
    await graph.claim("a", ttl=3600)
    lease = graph.leases["a"]
    await graph.complete("a", result=b"2")
    graph.leases["a"] = lease
    await known(graph, scene)


async def losing(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """a has failed, which was not carried on; b runs."""
    graph = await drawn(engine, scene, ARROWS)
    await graph.stage("e>c")
    await graph.fail("a")
    await graph.claim("b", ttl=3600)
    await known(graph, scene)


async def skipped_members(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """a has failed and c and d are skipped; b runs."""
    graph = await drawn(engine, scene, ARROWS)
    await graph.stage("e>c")
    await graph.fail("a")
    await graph.carry_all()
    await graph.claim("b", ttl=3600)
    await known(graph, scene)


async def racing(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """One of three is enough for c: b has won, which was not carried on; a runs, e waits."""
    graph = await drawn(engine, scene, "a>c b>c e>c c>d", {"c": AnyOf("cancel_remaining")})
    await graph.complete("b", result=b"1")
    await graph.claim("a", ttl=3600)
    await known(graph, scene)


async def listed(engine: Engine, clock: Clock, scene: Scene) -> None:
    """As before, and a and e are listed for their cancel."""
    await racing(engine, clock, scene)
    await Graph(engine, FLOW_ID, scene.ids).carry_all()


async def closing(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The flow is cancelled and owes its members their ends."""
    await joining(engine, clock, scene)
    await engine.cancel_flow_header(FLOW_ID, grace=0)


async def closing_later(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The flow is cancelled but a, which runs, may go on."""
    await joining(engine, clock, scene)
    await engine.cancel_flow_header(FLOW_ID, policy="cancel_pending", grace=0)


async def ended_flow(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The flow is cancelled, and so is every member."""
    await joining(engine, clock, scene)
    await engine.cancel_flow(FLOW_ID)


FLOW_SITUATIONS = tuple(
    Situation(build.__name__, build)
    for build in (
        no_flow,
        joining,
        lapsing,
        last_end,
        losing,
        skipped_members,
        racing,
        listed,
        closing,
        closing_later,
        ended_flow,
    )
)


def born(scene: Scene) -> list[NewExecution]:
    """The two children of the first call of x."""
    parent = scene.id("x")
    for index, name in enumerate(("kid a", "kid b")):
        scene.ids.setdefault(name, child_id(parent, 0, index, kind="child"))
    return [
        given.new(execution_id=scene.ids[name], execution_kind="child", policy=POLICY)
        for name in ("kid a", "kid b")
    ]


async def parent(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """x runs and has no children yet."""
    await leased(engine, scene)
    scene.joins["x"] = children_group_id(scene.id("x"), 0)
    scene.joins["x once more"] = children_group_id(scene.id("x"), 1)
    scene.joins["x apart"] = children_group_id(scene.id("x"), 2)
    born(scene)


async def waited(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x runs and has two children, of which one runs."""
    await parent(engine, clock, scene)
    await engine.spawn_children(scene.leases["x"], born(scene), group=scene.joins["x"])
    scene.flow_id = parent_flow_id(scene.id("x"))
    graph = Graph(engine, scene.flow_id, scene.ids)
    await graph.claim("kid a", ttl=3600)
    await known(graph, scene)


async def put_down(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x waits for its children: one runs, the other has succeeded, which was not carried on."""
    await waited(engine, clock, scene)
    await engine.wait_children([ChildWait(lease=scene.leases["x"], groups=(scene.joins["x"],))])
    assert scene.flow_id is not None
    await Graph(engine, scene.flow_id, scene.ids).complete("kid b")


async def about_to_wait(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x runs, and both of its children have succeeded, which was not carried on."""
    await waited(engine, clock, scene)
    assert scene.flow_id is not None
    graph = Graph(engine, scene.flow_id, scene.ids)
    graph.leases = dict(scene.leases)
    await graph.complete("kid a")
    await graph.complete("kid b")


async def orphaned(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x has failed, which was not carried on; its children go on."""
    await waited(engine, clock, scene)
    assert scene.flow_id is not None
    graph = Graph(engine, scene.flow_id, scene.ids)
    graph.leases = dict(scene.leases)
    await graph.fail("x")


async def parent_again(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x has failed and its children were cancelled with it; now it runs once more."""
    await orphaned(engine, clock, scene)
    assert scene.flow_id is not None
    graph = Graph(engine, scene.flow_id, scene.ids)
    await engine.dispatch()
    await graph.tick()
    await engine.replay_execution(scene.id("x"))
    [scene.leases["x"]] = await graph.claim("x", ttl=3600)


FAMILY_SITUATIONS = tuple(
    Situation(build.__name__, build)
    for build in (parent, waited, put_down, about_to_wait, orphaned, parent_again)
)
