"""What a schedule remembers of its executions: the last ten, and older ones that are waited for."""

from flowfabric.engine.schedules.overlap import OpenExecution, kept_latest
from flowfabric.ids import ExecutionId

IDS = [ExecutionId.mint() for _ in range(15)]


def test_ten_executions_are_kept_however_many_there_were() -> None:
    assert kept_latest(IDS[:4], []) == IDS[:4]
    assert kept_latest(IDS, []) == IDS[5:]
    assert kept_latest(IDS, [OpenExecution(IDS[0], held=False)]) == IDS[5:]


def test_an_older_one_is_kept_while_another_waits_for_it() -> None:
    waiting = OpenExecution(IDS[14], held=True)

    assert kept_latest(IDS, [OpenExecution(IDS[2], held=False), waiting]) == IDS[2:]
    assert kept_latest(IDS, [waiting]) == IDS[5:]
    assert kept_latest(IDS, [OpenExecution(IDS[9], held=True)]) == IDS[5:]
