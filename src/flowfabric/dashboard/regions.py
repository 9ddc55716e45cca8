"""Regions: the parts of a page that are fetched again when something has changed.

A region is a block `region_<name>` of the template of its page. The URL of the page with
`?_region=<name>` answers the block alone, with an ETag.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeAlias, TypeVar

KEPT: Final = 1.0
"""Seconds for which equal requests share an answer."""
_MOST_KEPT: Final = 2_000
_TIMES: Final = re.compile(rb"(<time\b[^>]*>)[^<]*(?=</time>)")

SharedKey: TypeAlias = tuple[str, ...]
T = TypeVar("T")


def etag(body: bytes) -> str:
    """Changes with the content, and not with how long ago something was."""
    digest = hashlib.sha256(_TIMES.sub(rb"\1", body)).hexdigest()
    return f'"{digest[:24]}"'


class SharedAnswers(Generic[T]):
    """Answers to equal questions within a second are computed once, for everybody who asks."""

    def __init__(self) -> None:
        self._kept: dict[SharedKey, tuple[float, asyncio.Future[T]]] = {}

    async def of(self, key: SharedKey, compute: Callable[[], Awaitable[T]]) -> T:
        """The answer; what `compute` raises is raised for everybody who waits for it."""
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT:
            return await asyncio.shield(kept[1])
        if len(self._kept) >= _MOST_KEPT:
            self._kept = {
                each: found for each, found in self._kept.items() if now - found[0] < KEPT
            }
        computing = asyncio.ensure_future(compute())
        self._kept[key] = now, computing
        try:
            return await asyncio.shield(computing)
        except BaseException:
            if self._kept.get(key) == (now, computing):
                del self._kept[key]
            raise

    def clear(self) -> None:
        """Something was changed here: the next answers are new ones."""
        self._kept.clear()
