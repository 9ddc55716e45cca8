"""Executions that a claim passes over because another transaction has locked them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from flowfabric.db.faults import is_trouble
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.errors import FlowFabricError

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 0.5


class PassedOver:
    """Asks after an empty claim whether something is claimable after all.

    A sweep or an operator's call may have locked the execution for a moment. When it unlocks the
    execution without having moved it, nobody is notified, so the worker claims again after a pause
    that grows until nothing is passed over any more, or a claim finds something.
    """

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE

    async def look(
        self,
        engine: EngineLike,
        claimant: Claimant,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> bool:
        """True, after a pause by `sleep`, if the worker has to claim again.

        What is claimable need not be locked: it may have been queued after the claim. Then there is
        a notification, which should end the sleep.
        """
        try:
            passed_over = claimant.kinds != () and bool(
                await engine.count_claimable(claimant, at_most=1)
            )
        except FlowFabricError as error:
            if not is_trouble(error):
                raise
            return False
        if not passed_over:
            self.found()
            return False
        pause, self._pause = self._pause, min(2 * self._pause, _LAST_PAUSE)
        await sleep(pause)
        return True

    def found(self) -> None:
        """A claim found something, or nothing is passed over: the next pause is short again."""
        self._pause = _FIRST_PAUSE
