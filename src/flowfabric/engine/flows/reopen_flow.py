"""A cancelled flow is open again, once its cancel has ended every member that it was to end."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.flows.cancel_backlog import count_pending_members
from flowfabric.engine.lifecycle.unmark_members import unmark_members
from flowfabric.errors import FlowAlreadyTerminal, NotFound
from flowfabric.states import FlowState

# A cancel waits until this commits. Members are moved under a shared lock, so those go first.
LOCK: Final[LiteralString] = """
-- flows.reopen_flow: the flow
SELECT public_flow_state, cancel_reason, cancellation_policy FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR NO KEY UPDATE
"""

REOPEN: Final[LiteralString] = """
-- flows.reopen_flow: the graph may grow again
UPDATE ff.flow_core
   SET public_flow_state = 'open', terminal_at_ms = NULL, cancel_reason = NULL,
       cancellation_policy = NULL, last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""


class WasFlow(msgspec.Struct, frozen=True):
    """The flow as it was."""

    public_flow_state: str
    cancel_reason: str | None
    cancellation_policy: str | None


async def reopen_flow(conn: Connection, partition_key: int, flow_id: UUID) -> WasFlow:
    """The flow is open and locked; how it was before.

    Members that went on running after the cancel are not ended by it any more. Needs a transaction.
    Raises `NotFound(flow)`, and `FlowAlreadyTerminal` while the cancel has members to end.
    """
    where = {"partition_key": partition_key, "flow_id": flow_id}
    flow = await fetch_maybe(conn, LOCK, WasFlow, **where)
    if flow is None:
        raise NotFound("flow", flow_id)
    if flow.public_flow_state == FlowState.CANCELLED:
        pending = await count_pending_members(conn, partition_key, flow_id)
        if pending := pending or await unmark_members(conn, partition_key, flow_id):
            raise FlowAlreadyTerminal(flow_id, pending)
        await execute(conn, REOPEN, **where)
    return flow
