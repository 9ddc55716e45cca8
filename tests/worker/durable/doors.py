"""A handler that waits at waitpoints, and what outsiders and operators do there."""

from __future__ import annotations

from typing import Any

from flowfabric import Ctx, Handle, Signal, SignalTimeout
from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.worker.durable.lab import Lab

Waiting = tuple[Handle[Any], list[HandlerWaitpoint]]


async def waiting(
    lab: Lab, condition: Any, *, expires: tuple[float, ...] = (6000, 6000), **settings: Any
) -> Waiting:
    """A handler that is suspended for a condition on waitpoints `a`, `b` …, and the waitpoints.

    It returns the names and sources of the signals, or what a timeout says.
    """
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        made[:] = [
            await ctx.waitpoint(name, expires=seconds)
            for name, seconds in zip("ab", expires, strict=False)
        ]
        try:
            return names(await ctx.wait(condition(*made), **settings))
        except SignalTimeout as error:
            return [str(error)]

    return await lab.submitted(job.call()), made


def names(signals: list[Signal]) -> list[str]:
    return [f"{each.signal_name} {each.source_identity}" for each in signals]


async def deliver(
    lab: Lab, handle: Any, waitpoint: HandlerWaitpoint, name: str, source: str = "ann"
) -> None:
    """An outsider with the token signals the waitpoint."""
    await lab.engine.deliver_signal(
        handle.execution_id,
        waitpoint.waitpoint_id,
        waitpoint.token,
        name,
        source_type="user",
        source_identity=source,
        payload=b'{"by": "ann"}',
        encoding="json",
    )


async def close(lab: Lab, handle: Any, waitpoint: HandlerWaitpoint) -> bool:
    """An operator closes the waitpoint; does the handler run again?"""
    [answer] = await lab.engine.close_waitpoints(
        handle.execution_id, [waitpoint.waitpoint_id], reason="nobody answers"
    )
    assert isinstance(answer, ClosedWaitpoint)
    return answer.resumed
