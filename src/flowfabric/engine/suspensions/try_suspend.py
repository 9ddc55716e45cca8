"""active → suspended: one execution; the lease is given back if there is nothing to wait for."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendAnswer, SuspendRequest
from flowfabric.errors import EngineError


async def try_suspend(conn: Connection, request: SuspendRequest) -> SuspendAnswer:
    """As `suspend` for one execution; raises what that answers as a refusal. Needs a transaction.

    With `SatisfiedAlready` and `NothingToSuspendFor` the caller keeps its lease and goes on. A
    caller that must be suspended passes the answer to `require_suspended`.
    """
    [answer] = await suspend(conn, [request])
    if isinstance(answer, EngineError):
        raise answer
    return answer
