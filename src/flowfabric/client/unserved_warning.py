"""Warns once if a submitted kind is served by no live worker here, and by one elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flowfabric.engine.lifecycle.alike_batch import examples_of
from flowfabric.errors import FlowFabricError

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import NewExecution
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.client")

_REMEMBERED: Final = 1000
"""How many pairs of kind and lane are checked; further ones are not."""
_CLOSING: Final = 1.0
"""Seconds that a check which runs at the close may still take."""


class UnservedWarning:
    """Checks each pair of kind and lane once, in the background, at its first submit.

    One statement checks all pairs that came while another check ran. A submit never waits for it.
    """

    def __init__(self, engine: EngineLike, namespace: str) -> None:
        self._engine, self._namespace = engine, namespace
        self._seen: set[tuple[str, str]] = set()
        self._unchecked: list[tuple[str, str]] = []
        self._check: asyncio.Task[None] | None = None

    def note(self, executions: Sequence[NewExecution]) -> None:
        """These are submitted; needs a running event loop."""
        seen = self._seen
        for new in examples_of(executions):
            pair = (new.execution_kind, new.lane_id)
            if pair not in seen and len(seen) < _REMEMBERED:
                seen.add(pair)
                self._unchecked.append(pair)
        if self._unchecked and (self._check is None or self._check.done()):
            self._check = asyncio.create_task(self._check_all())

    async def close(self) -> None:
        """A check that runs ends, or is cancelled after a second."""
        if self._check is not None and not self._check.done():
            await asyncio.wait([self._check], timeout=_CLOSING)
            self._check.cancel()

    async def _check_all(self) -> None:
        while self._unchecked:
            pairs, self._unchecked = self._unchecked, []
            try:
                found = await self._engine.find_unserved(self._namespace, pairs)
            except FlowFabricError as error:
                log.debug("could not check whether a worker serves %s: %s", pairs, error)
                continue
            for unserved in found:
                if unserved.elsewhere:
                    log.warning("%s; the execution waits", unserved)
