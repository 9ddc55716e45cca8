"""A handler gives up its lease, and the execution runs again before the handler has the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import Ctx
from flowfabric.db.signals import signals_at_end
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.signal_holders import signal_holders
from tests.worker.durable.lab import Lab, Statements
from tests.worker.facts import eventually

pytestmark = [pytest.mark.timeout(60), pytest.mark.direct("delays answers of the engine")]

LOOK = "lifecycle.find_lost_leases"


class LateAnswer:
    """An operation whose answer comes when the renewer has looked at the next run's lease."""

    def __init__(self, statements: Statements, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.runs_again, self.ended = asyncio.Event(), asyncio.Event()
        self._sent = statements.sent
        operation: Callable[..., Awaitable[Any]] = getattr(Engine, name)

        async def late(*args: Any, **kwargs: Any) -> Any:
            answer = await operation(*args, **kwargs)
            await self.on_commit()
            await self.runs_again.wait()
            before = self._sent[LOOK]
            for looks in (1, 2):  # the first is answered when the second is sent
                with signals_at_end():
                    signal_holders(["w"])
                await eventually(lambda looks=looks: self._sent[LOOK] >= before + looks)
            return answer

        monkeypatch.setattr(Engine, name, late)

    async def on_commit(self) -> None:
        """What happens before the execution can run again."""

    async def run(self, lab: Lab, gives_up: Callable[[], Awaitable[Any]]) -> None:
        """A run of the handler; the next one waits until the first has ended."""
        lab.did.append("begins")
        if lab.did.count("begins") == 2:
            self.runs_again.set()
            await self.ended.wait()
        try:
            await gives_up()
        except BaseException as error:
            lab.did.append(type(error).__name__)
            raise
        finally:
            self.ended.set()


async def test_a_restart_is_no_lost_lease(
    lab: Lab,
    statements: Statements,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = LateAnswer(statements, monkeypatch, "restart_execution")

    @lab.app.task("job")
    async def job(ctx: Ctx, turn: int = 0) -> int:
        async def again() -> None:
            if turn == 0:
                await ctx.restart(1)

        await answer.run(lab, again)
        return turn

    handle = await lab.submitted(job.call(), worker_instance_id="w", lease_ttl=30)

    assert await handle.result(5) == 1
    assert lab.did == ["begins", "begins", "AttemptSuspended"]
    assert "lost the lease" not in caplog.text


async def test_a_suspension_that_is_over_at_once_is_no_lost_lease(
    lab: Lab,
    statements: Statements,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = LateAnswer(statements, monkeypatch, "suspend")
    got: list[str] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def waits() -> None:
            got.append(await ctx.wait_for_signal("go", type=str))

        async def signalled() -> None:
            await lab.signal(ctx.execution_id, "go", "now")

        answer.on_commit = signalled
        await answer.run(lab, waits)
        return got[-1]

    handle = await lab.submitted(job.call(), worker_instance_id="w", lease_ttl=30)

    assert await handle.result(5) == "now"
    assert lab.did == ["begins", "begins", "AttemptSuspended"]
    assert "lost the lease" not in caplog.text
