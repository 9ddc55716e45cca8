"""A process whose clock is wrong: `python -m tests.proofs.skewed DSN '{"skew": 600, ...}'`.

Only its wall clock: what Python says of the time of day, not how fast time passes. It is put wrong
before anything of ours is imported.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from typing import Any


def put_wrong(seconds: float) -> None:
    """From now on, every way to ask for the time of day answers so many seconds later."""
    by = datetime.timedelta(seconds=seconds)
    time_of_day, nanoseconds, real = time.time, time.time_ns, datetime.datetime

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Wrong(real, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return real.now(tz) + by

        @classmethod
        def utcnow(cls) -> datetime.datetime:  # type: ignore[override]
            return real.now(datetime.UTC).replace(tzinfo=None) + by

        @classmethod
        def today(cls) -> datetime.datetime:  # type: ignore[override]
            return real.now() + by

    time.time = lambda: time_of_day() + seconds
    time.time_ns = lambda: nanoseconds() + int(seconds * 1_000_000_000)
    datetime.datetime = Wrong  # type: ignore[misc]


async def _work(dsn: str, settings: dict[str, Any]) -> None:
    from tests.stories.shop import app

    await app.worker(dsn=dsn, **settings).run()


async def _submit(dsn: str, *, number: int, long: float, delay: float, deadline: float) -> None:
    from flowfabric import Client
    from tests.stories.shop import nap

    async with await Client.connect(dsn) as client:
        kinds = {
            "long": {},
            "delayed": {"delay": delay},
            "overdue": {"deadline": deadline},
            "unserved": {"deadline": deadline, "lane": "nobody"},
        }
        for kind, options in kinds.items():
            seconds = {"long": long, "overdue": 60.0}.get(kind, 0.01)
            calls = [nap.call(seconds) for _ in range(number)]
            await client.submit_many(calls, tags={"proof.kind": kind}, **options)


def main() -> None:
    """Submit, if that is asked for, else work; with the clock put wrong."""
    dsn, settings = sys.argv[1], json.loads(sys.argv[2])
    put_wrong(settings.pop("skew"))
    submit = settings.pop("submit", None)
    asyncio.run(_submit(dsn, **submit) if submit else _work(dsn, settings))


if __name__ == "__main__":
    main()
