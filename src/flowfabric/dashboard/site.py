"""What the requests to one dashboard share."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from flowfabric.dashboard.access import Access
from flowfabric.dashboard.assets import Assets
from flowfabric.dashboard.clock import DatabaseClock
from flowfabric.dashboard.flows.drawing import Layouts
from flowfabric.dashboard.flows.reading import FlowReader
from flowfabric.dashboard.flows.watching import FlowWatch
from flowfabric.dashboard.pulse import Pulse
from flowfabric.dashboard.regions import SharedAnswers
from flowfabric.dashboard.settings import DashboardSettings
from flowfabric.engine.engine import Engine
from flowfabric.server.limits import CallbackMeter
from flowfabric.server.settings import Settings

_KEPT: Final = 10.0


class Site:
    """The engine, and what pages need beside it."""

    def __init__(
        self,
        engine: Engine,
        access: Access,
        *,
        settings: DashboardSettings,
        server: Settings | None,
        draining: asyncio.Event,
        callbacks: CallbackMeter | None = None,
    ) -> None:
        self.engine, self.access, self.settings = engine, access, settings
        self.server = server
        """Settings of the server that listens; None inside another application."""
        self.draining = draining
        self.callbacks = callbacks
        """Counts answers by link; None where nobody can answer without a login."""
        self.assets = Assets()
        self.clock = DatabaseClock(engine.pool)
        self.regions = SharedAnswers[bytes]()
        self.parts = SharedAnswers[Any]()
        """What pages have in common: counts, lists of workers, parts of the overview."""
        self.pulse = Pulse(engine)
        self.flows, self.layouts = FlowReader(engine), Layouts()
        self.flow_watch = FlowWatch(engine)
        self._namespaces: tuple[float, list[str]] | None = None

    async def namespaces(self) -> list[str]:
        """Every namespace that has executions or workers, read every ten seconds at most."""
        now = time.monotonic()
        if self._namespaces is None or now - self._namespaces[0] > _KEPT:
            self._namespaces = now, await self.engine.list_namespaces() or ["default"]
        return self._namespaces[1]

    def changed(self) -> None:
        """Something was changed by this process: the next page shows it."""
        self.regions.clear()
        self.parts.clear()

    async def close(self) -> None:
        """Nothing is read any more on behalf of viewers."""
        await self.pulse.close()
        await self.flow_watch.close()
