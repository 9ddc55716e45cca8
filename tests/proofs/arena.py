"""Where a proof takes place: databases of its own, and a seed for everything that it draws."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Generator

from flowfabric.testing import TestServer


class Arena:
    """Hands out databases, chance and a voice."""

    def __init__(self, server: TestServer, seed: int, *, quiet: bool = False) -> None:
        self.server, self.seed, self._quiet = server, seed, quiet

    @contextlib.contextmanager
    def database(self) -> Generator[str]:
        """A migrated database that is dropped afterwards; not for use inside a running loop."""
        dsn = asyncio.run(self.server.create())
        try:
            yield dsn
        finally:
            asyncio.run(self.server.drop(dsn))

    def chance(self, name: str) -> random.Random:
        """The random numbers of this seed, a sequence of their own for each name."""
        return random.Random(f"{name} {self.seed}")

    def say(self, line: str) -> None:
        """Tell how far it is: long work without a sign of life looks like a hang."""
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)  # noqa: T201 the voice of a command
