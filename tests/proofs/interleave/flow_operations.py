"""Every operation that changes a flow, its graph or its members, as one of two that meet."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.flows.end_cancelled_members import end_cancelled_members
from flowfabric.engine.flows.reconcile_cancels import reconcile_cancels
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.joins.dispatch_completions import dispatch_batch
from flowfabric.engine.joins.reconcile_siblings import reconcile_siblings
from flowfabric.engine.joins.redispatch_lost_completions import redispatch_lost_completions
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.wait_children import ChildWait
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import ExecutionTerminal, FlowAlreadyTerminal, NotBlockedByDeps
from flowfabric.joins import AnyOf
from flowfabric.states import CancellationPolicy
from tests.proofs.interleave.actor import told
from tests.proofs.interleave.families import ARROWS, born, new_flow
from tests.proofs.interleave.operations import (
    CLAIM,
    Operation,
    cancel_execution,
    change_priority,
    complete,
    fail,
    holder,
    release,
    replay,
    retry,
    swept,
)
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.waits import LOOK

MEMBERS = ("a", "b", "c", "d", "e")

DISPATCH = partial(dispatch_batch, lock_timeout="60s")
"""It waits as long as it is held: how fast the steps are is not to decide what it does."""
DISPATCH_FREE = partial(dispatch_batch, pass_over_locked=True)
"""What a dispatcher does that has waited in vain."""


async def _lock_everybody(engine: Engine, scene: Scene, _side: int) -> None:
    everybody = list(scene.ids.values())
    await transact(engine.pool, "lock", lambda conn: lock_executions(conn, everybody))


# Changes nothing, but locks every execution in the order of ids.
EVERYBODY = Operation("lock everybody", _lock_everybody, ())

# Each call of a batch stands for itself: why one was refused is read after the others were done.

# Locks nothing but the leases, in the order of ids.
RENEW_EVERYBODY = Operation(
    "renew everybody",
    lambda engine, scene, _: engine.renew(list(scene.leases.values()), ttl=3600),
    (),
    atomic=False,
)

RELEASE_EVERYBODY = Operation(
    "release everybody",
    lambda engine, scene, _: engine.release(list(scene.leases.values())),
    (),
    atomic=False,
)

COMPLETE_EVERYBODY = Operation(
    "complete everybody",
    lambda engine, scene, _: engine.complete(
        [Completion(lease, b"done") for lease in scene.leases.values()]
    ),
    (),
    atomic=False,
)


def flow(scene: Scene) -> UUID:
    assert scene.flow_id is not None
    return scene.flow_id


def stage_edge(arrow: str) -> Operation:
    up, down = arrow.split(">")
    return Operation(
        f"stage {arrow}",
        lambda engine, scene, side: engine.stage_dependency_edge(
            flow(scene),
            scene.uuid(1000 + side),
            scene.id(up),
            scene.id(down),
            expected_graph_revision=scene.revision,
        ),
        ("flow", up, down),
    )


def apply_edge(arrow: str) -> Operation:
    return Operation(
        f"apply {arrow}",
        lambda engine, scene, _: engine.apply_dependency_to_child(flow(scene), scene.edges[arrow]),
        ("flow", f"edge {arrow}"),
    )


RECONCILE_CANCELS = swept("reconcile_cancels", reconcile_cancels, ("flow",), counts_rows=False)
CANCEL_SIBLINGS = swept("cancel_siblings", cancel_siblings, ("flow",), counts_rows=False)


def _cancelled(answer: Any) -> str:
    """Members in use are listed though they may be about to end, so which ones may differ."""
    if isinstance(answer, FlowCancelAccepted | FlowAlreadyCancelled):
        unnamed: dict[str, Any] = {"member_execution_ids": []}
        if isinstance(answer, FlowCancelAccepted):
            unnamed["cancel_pending"] = 0
        answer = msgspec.structs.replace(answer, **unnamed)
    return told(answer)


async def _reconcile(engine: Engine, scene: Scene, side: int) -> int:
    ended = await RECONCILE_CANCELS.call(engine, scene, side)
    return ended + await CANCEL_SIBLINGS.call(engine, scene, side)


GOES_ON: dict[str, Any] = {
    "passes_over": True,
    "next_turn": _reconcile,
    "in_the_end": _cancelled,
}
"""A cancel lists the members that are in use, and the reconciler ends them.

A cancel does not wait for the join of members that it ends. A dispatcher that has decided the join
lists them as siblings to cancel if it looks before they have ended, and has nothing to list if it
looks after, though it holds the waiter all the while. The turn that cancels siblings finds that
those have ended, and drops the listing.
"""


def _refused(answer: Any) -> str:
    """A member of a cancelled flow is refused by other names until it is parked, and has ended."""
    cancelled = isinstance(answer, FlowAlreadyTerminal | NotBlockedByDeps) or (
        isinstance(answer, ExecutionTerminal) and answer.public_state == "cancelled"
    )
    return "its flow was cancelled" if cancelled else told(answer)


def cancel_header(policy: CancellationPolicy) -> Operation:
    return Operation(
        f"cancel_flow_header {policy}",
        lambda engine, scene, side: engine.cancel_flow_header(
            flow(scene), policy=policy, reason=f"side {side}", grace=0
        ),
        ("flow",),
        **GOES_ON,
    )


CANCEL_AT_ONCE = Operation(
    "cancel_flow_header at once",
    lambda engine, scene, side: engine.cancel_flow_header(
        flow(scene), reason=f"side {side}", grace=0, end_at_once=1000
    ),
    ("flow",),
    **GOES_ON,
)


async def _end_members(engine: Engine, scene: Scene, _side: int) -> Any:
    return await transact(
        engine.pool,
        "end_cancelled_members",
        lambda conn: end_cancelled_members(conn, flow(scene), partitions=engine.partitions),
    )


def spawn(name: str, wait: str) -> Operation:
    return Operation(
        name,
        lambda engine, scene, _: engine.spawn_children(
            scene.leases["x"], born(scene), group=scene.joins[wait]
        ),
        ("x", "held x", f"wait {wait}"),
    )


FLOWS = (
    EVERYBODY,
    RENEW_EVERYBODY,
    Operation(
        "add_execution_to_flow n",
        lambda engine, scene, _: engine.add_execution_to_flow(flow(scene), scene.id("n")),
        ("flow", "n"),
    ),
    stage_edge("e>d"),
    stage_edge("d>e"),
    apply_edge("e>c"),
    Operation(
        "set_edge_group_policy e",
        lambda engine, scene, side: engine.set_edge_group_policy(
            flow(scene), scene.id("e"), AnyOf("let_run" if side else "cancel_remaining")
        ),
        ("flow", "e"),
    ),
    swept("dispatch", DISPATCH, ("flow",)),
    swept("dispatch what is free", DISPATCH_FREE, ("flow",), counts_as="dispatch"),
    CANCEL_SIBLINGS,
    swept("reconcile_siblings", reconcile_siblings, ("flow",)),
    swept("redispatch_lost_completions", redispatch_lost_completions, ("flow",)),
    Operation(
        "promote_blocked_to_eligible c",
        lambda engine, scene, _: engine.promote_blocked_to_eligible(scene.id("c")),
        ("flow", "c"),
        in_the_end=_refused,
    ),
    Operation(
        "submit_flow",
        lambda engine, scene, _: engine.submit_flow(new_flow(scene, ARROWS)),
        ("flow", "a"),
    ),
    cancel_header(CancellationPolicy.CANCEL_ALL),
    cancel_header(CancellationPolicy.CANCEL_PENDING),
    CANCEL_AT_ONCE,
    Operation("end_cancelled_members", _end_members, ("flow",), passes_over=True),
    RECONCILE_CANCELS,
    swept("end_parked_members", end_parked_members, ("flow",)),
    Operation(
        "cancel_flow",
        lambda engine, scene, side: engine.cancel_flow(flow(scene), reason=f"side {side}"),
        ("flow",),
        ends=MEMBERS,
        atomic=False,
    ),
    Operation(
        "replay_flow",
        lambda engine, scene, _: engine.replay_flow(flow(scene)),
        ("flow",),
        atomic=False,
    ),
    complete("a"),
    fail("a"),
    retry("a"),
    release("a"),
    cancel_execution("a"),
    cancel_execution("c"),
    cancel_execution("e"),
    replay("a"),
    replay("c"),
    replay("d"),
    change_priority("e"),
    CLAIM,
    swept("expire_leases", expire_leases, ("flow",)),
    swept("expire_executions", expire_executions, ("flow",)),
    Operation(
        "project_flow_summary",
        lambda engine, scene, _: engine.project_flow_summary(flow(scene)),
        ("flow",),
    ),
    Operation(
        "set_flow_tag",
        lambda engine, scene, side: engine.set_flow_tag(flow(scene), "a.b", f"side {side}"),
        ("flow",),
    ),
)

FAMILIES = (
    EVERYBODY,
    RENEW_EVERYBODY,
    RELEASE_EVERYBODY,
    COMPLETE_EVERYBODY,
    spawn("spawn_children x", "x"),
    spawn("spawn_children x once more", "x once more"),
    holder(
        "spawn_apart x",
        "x",
        lambda engine, scene, _: engine.spawn_apart(
            scene.leases["x"], {scene.joins["x apart"]: born(scene)[0]}
        ),
    ),
    CANCEL_AT_ONCE,
    holder(
        "wait_children x",
        "x",
        lambda engine, scene, _: engine.wait_children(
            [ChildWait(lease=scene.leases["x"], groups=(scene.joins["x"],))]
        ),
    ),
    holder(
        "suspend x for children",
        "x",
        lambda engine, scene, side: engine.suspend(
            [
                SuspendRequest(
                    lease=scene.leases["x"],
                    suspension_id=scene.uuid(4000 + side),
                    keeps_waitpoints=True,
                    awaits_joins=(scene.joins["x"].uuid,),
                )
            ]
        ),
    ),
    complete("x"),
    fail("x"),
    release("x"),
    cancel_execution("x"),
    replay("x"),
    complete("kid a"),
    fail("kid a"),
    cancel_execution("kid b"),
    replay("kid a"),
    CLAIM,
    swept("dispatch", DISPATCH),
    swept("dispatch what is free", DISPATCH_FREE, counts_as="dispatch"),
    LOOK,
    swept("cancel_siblings", cancel_siblings, counts_rows=False),
    swept("expire_leases", expire_leases),
    Operation(
        "cancel_flow_header cancel_all",
        lambda engine, scene, side: engine.cancel_flow_header(
            flow(scene), policy=CancellationPolicy.CANCEL_ALL, reason=f"side {side}", grace=0
        ),
        ("x", "flow"),
        **GOES_ON,
    ),
)
