"""The pulse: events of executions are read while somebody watches what they change."""

from __future__ import annotations

from flowfabric import Engine
from flowfabric.dashboard.pulse import Pulse, execution_topic
from flowfabric.engine.lifecycle.complete import Completion
from tests import given
from tests.worker.facts import eventually

FAMILIES = ("completions", "leases", "operators", "signals")


def read_by(engine: Engine) -> set[str]:
    """The outboxes that this process reads."""
    return {name for name in FAMILIES if getattr(engine.events, name).is_reading}


async def test_viewers_of_lists_do_not_make_the_server_read_every_event(
    ff_engine: Engine,
) -> None:
    pulse = Pulse(ff_engine)
    new = given.new()
    await ff_engine.create_execution([new])
    [task] = await ff_engine.claim(given.WORKER, ttl=600)
    topic = execution_topic(new.execution_id)

    async def reads(*families: str) -> None:
        async def so() -> bool:
            return read_by(ff_engine) == set(families)

        await eventually(so, within=30)

    with pulse.watching(frozenset({"overview", "list", "lanes"})):
        await reads("operators")
        with pulse.watching(frozenset({topic})) as viewer:
            await reads(*FAMILIES)
            await viewer.changed()  # the beat, so that what follows is told by the event
            await ff_engine.complete([Completion(task.lease)])
            assert await viewer.changed() == {topic}
    await pulse.close()
    await reads()
