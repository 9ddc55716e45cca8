"""The real side: one engine on one database that is emptied between runs, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.engine.engine import Engine
from flowfabric.testing import Clock
from tests.given import WRITTEN
from tests.proofs.model.answers import attempt
from tests.proofs.model.invariants import BROKEN
from tests.proofs.model.views import EXECUTIONS, GRAPHS

START_MS: Final = 1_800_000_000_000
EMPTY: Final = ";".join(f"DELETE FROM ff.{table}" for table in WRITTEN)
CHEAP: Final = "SET enable_seqscan = on; SET enable_hashjoin = on; SET synchronous_commit = off"
VACUUM_EVERY: Final = 25
KID: Final = "k"
SECRET: Final = "ab" * 32
"""The key that signs the tokens of waitpoints."""


class Real:
    """The engine, its clock, and a connection of our own that looks at what is stored."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._emptied = 0
        config = DatabaseConfig(dsn=dsn, pool_size=1, listen=False)
        self._look = self.wait(connect(config, role="proof"))
        self.wait(self._look.execute(CHEAP))
        self._clock = self.wait(Clock.install(self._look))
        self.engine = self.wait(Engine.connect(config, role="proof"))

    def close(self) -> None:
        self.wait(self.engine.close())
        self.wait(self._look.close())
        self._runner.close()

    def wait(self, call: Awaitable[Any]) -> Any:
        return self._runner.get_loop().run_until_complete(call)

    def ask(self, call: Callable[[Engine], Awaitable[Any]]) -> Any:
        """What the engine answers, or the typed error that it raises."""
        return attempt(lambda: self.wait(call(self.engine)))

    def empty(self) -> None:
        """Nothing is stored, and it is the first moment again."""

        async def emptied() -> None:
            await self._look.execute(EMPTY)
            await self._clock.advance((START_MS - await self._clock.now_ms()) / 1000)
            await self.engine.seed_waitpoint_hmac_secret(KID, SECRET)
            if self._emptied % VACUUM_EVERY == 0:
                for table in WRITTEN:
                    await self._look.execute(f"VACUUM ff.{table}")

        self._emptied += 1
        self.wait(emptied())

    def advance(self, seconds: float) -> None:
        self.wait(self._clock.advance(seconds))

    def plant(self, fault: str) -> None:
        """Store what no operation stores."""
        self.wait(self._look.execute(fault))

    def look(self) -> tuple[list[Any], list[Any], list[str]]:
        """Every execution, every line of every flow, and which invariants are broken."""

        async def looked() -> tuple[list[Any], list[Any], list[str]]:
            executions = [tuple(row) for row in await self._look.fetch(EXECUTIONS)]
            graphs = [tuple(row) for row in await self._look.fetch(GRAPHS)]
            broken = [str(row["claim"]) for row in await self._look.fetch(BROKEN)]
            return executions, graphs, broken

        return self.wait(looked())
