"""Every operation that changes an execution, as one of two that meet over it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.retention.trim import Trim
from flowfabric.states import CancellationPolicy
from tests import given
from tests.proofs.interleave.scene import Scene

Call: TypeAlias = Callable[[Engine, Scene, int], Coroutine[Any, Any, Any]]
Sweep: TypeAlias = Callable[[Connection, int], Awaitable[Any]]

LANE = "default"


class Operation(msgspec.Struct, frozen=True):
    """One operation on the executions of a scene; `call` is told which side it stands on."""

    name: str
    call: Call
    needs: tuple[str, ...] = ("x",)
    """What must be there for it to be called at all."""
    passes_over: bool = False
    """Does it leave rows in use to its next turn?"""
    counts_rows: bool = True
    """Does a sweep count rows? Of a batch that is done in two turns it counts each turn."""
    counts_as: str = ""
    """The sweep that does the same: what one of the two moves, the other does not."""
    next_turn: Call | None = None
    """Who goes on with what it left, if it is not called again itself."""
    in_the_end: Callable[[Any], str] | None = None
    """What of its answer has to be the same whether or not rows were in use."""
    ends: tuple[str, ...] = ()
    """Whom it cancels: no success of theirs may be recorded once it has answered."""
    atomic: bool = True
    """Is it one transaction? Of several only the promises are asked, not the order."""

    def passed_over(self, answer: Any) -> bool:
        """May there be something left for its next turn? A claimer comes back if it got nothing."""
        if not self.passes_over or isinstance(answer, Exception):
            return False
        return not answer if isinstance(answer, list) else True

    def acked(self, answer: Any) -> bool:
        """Does the answer promise that those are cancelled?"""
        if not self.ends or (isinstance(answer, list) and not answer):
            return False
        only = answer[0] if isinstance(answer, list) else answer
        # Of a flow that was cancelled before, only what waited may have been meant.
        meant = getattr(only, "stored_cancellation_policy", CancellationPolicy.CANCEL_ALL)
        return not isinstance(only, Exception) and meant is CancellationPolicy.CANCEL_ALL


def moved(answer: Any) -> int:
    """How much a turn of a sweep did."""
    return len(answer) if isinstance(answer, list) else getattr(answer, "completions", answer)


def swept(
    name: str,
    sweep: Sweep,
    needs: tuple[str, ...] = ("x",),
    *,
    counts_rows: bool = True,
    counts_as: str = "",
) -> Operation:
    """A sweep over a batch of ten."""

    async def call(engine: Engine, _scene: Scene, _side: int) -> Any:
        return await transact(engine.pool, name, lambda conn: sweep(conn, 10))

    return Operation(
        name,
        call,
        needs,
        passes_over=True,
        counts_rows=counts_rows,
        counts_as=counts_as or name,
    )


def holder(name: str, of: str, call: Call, **flags: Any) -> Operation:
    """What the holder of a lease does."""
    return Operation(name, call, (of, f"held {of}"), **flags)


def complete(of: str) -> Operation:
    return holder(
        f"complete {of}",
        of,
        lambda engine, scene, _: engine.complete([Completion(scene.leases[of], b"done")]),
    )


def fail(of: str) -> Operation:
    return holder(
        f"fail {of}",
        of,
        lambda engine, scene, _: engine.fail(
            [Failure(lease=scene.leases[of], reason="boom", category="permanent")]
        ),
    )


def retry(of: str) -> Operation:
    return holder(
        f"retry {of}",
        of,
        lambda engine, scene, _: engine.fail([Failure(lease=scene.leases[of], reason="boom")]),
    )


def release(of: str) -> Operation:
    return holder(f"release {of}", of, lambda engine, scene, _: engine.release([scene.leases[of]]))


def cancel_execution(of: str) -> Operation:
    return Operation(
        f"cancel_execution {of}",
        lambda engine, scene, side: engine.cancel_execution(scene.id(of), reason=f"side {side}"),
        (of,),
        ends=(of,),
    )


def replay(of: str) -> Operation:
    return Operation(
        f"replay_execution {of}",
        lambda engine, scene, _: engine.replay_execution(scene.id(of)),
        (of,),
    )


def change_priority(of: str) -> Operation:
    return Operation(
        f"change_priority {of}",
        lambda engine, scene, side: engine.change_priority(scene.id(of), 100 + side),
        (of,),
    )


CLAIM = Operation(
    "claim",
    lambda engine, _, side: engine.claim(
        Claimant(worker_id="w", worker_instance_id=f"w-{side}", lanes=(LANE,)), ttl=30
    ),
    passes_over=True,
)

EXECUTIONS = (
    Operation(
        "create",
        lambda engine, scene, side: engine.create_execution(
            [given.new(execution_id=scene.id("x"), input_payload=b"%d" % side)]
        ),
    ),
    CLAIM,
    holder(
        "renew x",
        "x",
        lambda engine, scene, side: engine.renew(
            [scene.leases["x"]], ttl=timedelta(hours=1 + side), record=True
        ),
    ),
    holder(
        "progress x",
        "x",
        lambda engine, scene, side: engine.progress(
            scene.leases["x"], percent=50 + side, message=f"side {side}"
        ),
    ),
    complete("x"),
    fail("x"),
    retry("x"),
    holder(
        "delay x",
        "x",
        lambda engine, scene, side: engine.delay(
            [DelayRequest(lease=scene.leases["x"], delay=60 + side)]
        ),
    ),
    release("x"),
    holder(
        "cancel x",
        "x",
        lambda engine, scene, side: engine.cancel(
            [Cancellation(scene.leases["x"], f"side {side}")]
        ),
        ends=("x",),
    ),
    cancel_execution("x"),
    Operation(
        "revoke_lease x",
        lambda engine, scene, _: engine.revoke_lease(scene.id("x"), reason="stuck"),
    ),
    Operation(
        "override_complete x",
        lambda engine, scene, side: engine.override_complete(
            scene.id("x"), result=b"%d" % side, reason=f"side {side}"
        ),
    ),
    Operation(
        "override_fail x",
        lambda engine, scene, side: engine.override_fail(scene.id("x"), reason=f"side {side}"),
    ),
    Operation(
        "override_delay x",
        lambda engine, scene, side: engine.override_delay(scene.id("x"), delay=60 + side),
    ),
    change_priority("x"),
    replay("x"),
    Operation(
        "block x",
        lambda engine, scene, _: engine.block_execution_for_admission(
            scene.id("x"), "paused_by_operator"
        ),
    ),
    Operation("unblock x", lambda engine, scene, _: engine.unblock_execution(scene.id("x"))),
    Operation(
        "claim_execution x",
        lambda engine, scene, side: engine.claim_execution(
            scene.id("x"),
            worker_id="w",
            worker_instance_id=f"w-{side}",
            expected_attempt_index=0,
            lease_ttl=30,
        ),
    ),
    Operation(
        "issue_claim_grant x",
        lambda engine, scene, side: engine.issue_claim_grant(
            scene.id("x"), lane_id=LANE, worker_id=f"w{side}", worker_instance_id=f"w-{side}"
        ),
    ),
    Operation(
        "mark_lease_expired x",
        lambda engine, scene, _: engine.mark_lease_expired_if_due(scene.id("x")),
    ),
    Operation(
        "set_execution_tag x",
        lambda engine, scene, side: engine.set_execution_tag(scene.id("x"), "a.b", f"side {side}"),
    ),
    swept("expire_leases", expire_leases),
    swept("promote_due", promote_due),
    swept("expire_executions", expire_executions),
    swept("expire_attempts", expire_attempts),
    Operation(
        "trim_retention",
        lambda engine, _scene, _side: engine.trim_retention(
            Trim(lane_id=LANE, retention=timedelta(0))
        ),
        passes_over=True,
    ),
)
