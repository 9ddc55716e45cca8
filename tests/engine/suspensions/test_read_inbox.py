"""The inbox of an execution: what nobody has consumed, and the number of the last signal."""

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.read_inbox import Inbox, InboxSignal, read_inbox
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

CONSUME = """
INSERT INTO ff.journal (partition_key, seq, execution_id, attempt_index, started_at_ms,
                        recorded_at_ms, signal_seq, kind, state, name)
SELECT partition_key, 1, execution_id, 0, 0, 0, $2, 'signal', 'done', 'go'
  FROM ff.exec_core WHERE execution_id = $1
"""


async def test_signals_come_in_the_order_of_their_arrival(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    one, two = await given.created(db), await given.created(db)
    first = NewSignal(execution_id=one, signal_name="a", payload=b"1", encoding="json")
    await ff_engine.send_signals([first, NewSignal(execution_id=one, signal_name="b")])

    found = await read_inbox(db, [two, one, one, ExecutionId.mint()])

    assert found[two] == Inbox(signal_seq=0)
    assert set(found) == {one, two}
    assert found[one].signal_seq == 2
    assert found[one].signals[0] == InboxSignal(
        signal_seq=1,
        signal_id=first.signal_id,
        signal_name="a",
        payload=b"1",
        encoding="json",
        source_type="client",
        source_identity="",
        correlation_id="",
        accepted_at=await clock.now(),
    )
    assert [each.signal_name for each in found[one].signals] == ["a", "b"]
    assert await read_inbox(db, []) == {}


async def test_what_an_entry_of_the_journal_has_consumed_is_left_out(
    db: Connection, ff_engine: Engine
) -> None:
    one, two = await given.created(db), await given.created(db)
    signals = [NewSignal(execution_id=each, signal_name="go") for each in (one, two) for _ in "ab"]
    await ff_engine.send_signals(signals)
    await db.execute(CONSUME, one.uuid, 1)
    await db.execute("UPDATE ff.signal_inbox SET consumed = true WHERE execution_id = $1", two.uuid)

    found = await ff_engine.read_inbox([one, two])

    assert [each.signal_seq for each in found[one].signals] == [2]
    assert (found[one].signal_seq, found[two]) == (2, Inbox(signal_seq=2))
