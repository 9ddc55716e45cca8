"""Where tests of compensations begin: calls that are armed, and what is made of them."""

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.compensation import (
    CompensationInput,
)
from flowfabric.engine.journal.disarm_compensations import disarm_compensations
from flowfabric.engine.journal.read_compensation import read_compensation
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.journal.journals import (
    COMPENSATION,
    entry,
    refund,
    rows,
)


async def arm(db: Connection, lease: Lease, *payloads: bytes) -> None:
    """The execution has armed these calls too."""
    for payload in payloads:
        seq = len(await rows(db, lease.execution_id)) + 1
        write = entry(lease, seq, "undo", kind=COMPENSATION, occurrence=seq)
        async with db.transaction():
            assert await arm_compensation(db, write, refund(payload)) is None


async def disarm(db: Connection, lease: Lease) -> None:
    seq = len(await rows(db, lease.execution_id)) + 1
    async with db.transaction():
        assert await disarm_compensations(db, entry(lease, seq, "off", kind=COMPENSATION)) is None


async def started(db: Connection, limit: int = 100) -> int:
    async with db.transaction():
        return await start_compensations(db, limit)


async def compensates(db: Connection, execution_id: ExecutionId) -> bool:
    return (await given.row(db, execution_id))["compensates"]


async def calls(db: Connection, execution_id: ExecutionId) -> list[bytes]:
    """What the execution that compensates for this one does, in order."""
    made = await read_compensation(db, execution_id)
    assert made is not None
    payload = await db.fetchval(
        "SELECT payload FROM ff.exec_body WHERE execution_id = $1", made.uuid
    )
    return [call.payload for call in CompensationInput.decode(payload).calls]


async def failed(db: Connection, lease: Lease) -> None:
    await fail(db, [Failure(lease=lease, reason="boom", category="permanent")])
