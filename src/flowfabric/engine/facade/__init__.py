"""Every operation by its spec name, each in its own transaction: the seam all doors stand on."""

from __future__ import annotations

from flowfabric.config import DatabaseConfig
from flowfabric.db import boot
from flowfabric.db.pool import Pool
from flowfabric.engine.facade.children import Children
from flowfabric.engine.facade.controls import Controls
from flowfabric.engine.facade.flows import Flows
from flowfabric.engine.facade.grants import Grants
from flowfabric.engine.facade.moves import Moves
from flowfabric.engine.facade.reads import Reads
from flowfabric.engine.facade.registries import Registries
from flowfabric.engine.facade.secrets import Secrets
from flowfabric.engine.facade.subscriptions import Subscriptions


class Engine(Moves, Flows, Children, Grants, Controls, Reads, Registries, Secrets, Subscriptions):
    """The engine on one database. Many callers may share it; each call takes one connection."""

    @classmethod
    async def connect(cls, config: DatabaseConfig, *, role: str = "client") -> Engine:
        """Open the pool and check that this code can work on this database."""
        pool = await Pool.open(config, role=role)
        try:
            async with pool.connection() as conn:
                await boot.check(conn, config.partitions)
        except BaseException:
            await pool.close()
            raise
        return cls(pool)
