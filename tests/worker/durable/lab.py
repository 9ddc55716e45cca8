"""A handler under test: run to where it waits, with its journal and what it did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg.connection
import msgspec
import pytest

from flowfabric import App, Client, Handle
from flowfabric.db.faults import statement_name
from flowfabric.db.rows import Connection
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.ids import ExecutionId
from tests import given

KEY = "00" * 32


class Lab:
    """An app, a client and a database; `run` runs what can run."""

    def __init__(self, client: Client, dsn: str, db: Connection) -> None:
        self.client, self.dsn, self.db = client, dsn, db
        self.engine = client.engine
        self.app = App()
        self.did: list[Any] = []
        """What handlers and steps did, in order."""

    async def run(self, **settings: Any) -> None:
        """Run everything that is claimable, also what becomes so meanwhile."""
        settings.setdefault("lease_ttl", 5)
        await self.app.worker(dsn=self.dsn, **settings).run_until_idle()

    async def submitted(self, call: Any, **settings: Any) -> Handle[Any]:
        """The call, run as far as it goes."""
        handle = await self.client.submit(call)
        await self.run(**settings)
        return handle

    async def state(self, handle: Handle[Any]) -> str:
        return (await self.row(handle))["public_state"]

    async def row(self, handle: Handle[Any]) -> dict[str, Any]:
        return await given.row(self.db, handle.execution_id)

    async def detail(self, handle: Handle[Any]) -> str:
        """Why the execution does not go on, in words."""
        return (await self.row(handle))["blocking_detail"] or ""

    async def entries(self, handle: Handle[Any]) -> list[dict[str, Any]]:
        """The journal of the execution."""
        eid = handle.execution_id
        rows = await self.db.fetch(
            "SELECT * FROM ff.journal WHERE (partition_key, execution_id) = ($1, $2) ORDER BY seq",
            eid.partition_key,
            eid.uuid,
        )
        return [dict(row) for row in rows]

    async def journal(self, handle: Handle[Any]) -> list[str]:
        """The journal of the execution, each entry as `name:item#n state`."""
        return [
            f"{row['name']}{':' + row['item'] if row['item'] else ''}#{row['occurrence']}"
            f" {row['state']}"
            for row in await self.entries(handle)
        ]

    async def signal(
        self, handle: Handle[Any] | ExecutionId, name: str, payload: Any = None, **more: Any
    ) -> None:
        eid = handle if isinstance(handle, ExecutionId) else handle.execution_id
        data = None if payload is None else msgspec.json.encode(payload)
        encoding = None if payload is None else "json"
        signal = NewSignal(
            execution_id=eid, signal_name=name, payload=data, encoding=encoding, **more
        )
        await self.engine.send_signal(signal)

    async def seed_key(self) -> None:
        """Waitpoints can have tokens."""
        async with self.db.transaction():
            await seed_waitpoint_hmac_secret(self.db, "k1", KEY)


class Statements:
    """The statements that this process sends, by name, from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        connection: Any = asyncpg.connection.Connection
        original = connection._execute

        async def counted(conn: Any, query: str, *args: Any, **more: Any) -> Any:
            self.sent[statement_name(query)] += 1
            return await original(conn, query, *args, **more)

        monkeypatch.setattr(connection, "_execute", counted)

    def of(self, *packages: str) -> dict[str, int]:
        """How often each statement of these packages was sent."""
        return {
            name: count for name, count in self.sent.items() if name.startswith(tuple(packages))
        }
