"""A worker of the tasks that keep a process busy: `python -m tests.proofs.spinner`."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from tests.proofs.spinning import app

if __name__ == "__main__":
    settings = msgspec.json.decode(sys.argv[2])
    asyncio.run(app.worker(dsn=sys.argv[1], **settings).run())
