"""The keys that sign grants and waitpoint tokens."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.facade.base import Base
from flowfabric.engine.keys.list_waitpoint_hmac_kids import KidList, list_waitpoint_hmac_kids
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import (
    PartitionRotation,
    Rotated,
    rotate_waitpoint_hmac_secret_all,
)
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import (
    AlreadySeeded,
    Seeded,
    seed_waitpoint_hmac_secret,
)
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.states import OperatorEventType


class Secrets(Base):
    """Seed, rotate and list; a secret goes in and never comes out."""

    async def seed_waitpoint_hmac_secret(self, kid: str, secret_hex: str) -> Seeded | AlreadySeeded:
        return await self._transact(
            "seed_waitpoint_hmac_secret",
            lambda conn: seed_waitpoint_hmac_secret(conn, kid, secret_hex),
        )

    async def rotate_waitpoint_hmac_secret_all(
        self, new_kid: str, new_secret_hex: str, grace_ms: int, *, actor: str = SOMEBODY
    ) -> list[PartitionRotation]:
        check_actor(actor)

        async def rotate(conn: Connection) -> list[PartitionRotation]:
            answers = await rotate_waitpoint_hmac_secret_all(
                conn, new_kid, new_secret_hex, grace_ms
            )
            for answer in answers:
                if isinstance(answer.result, Rotated):
                    await operator_event(
                        conn,
                        OperatorEventType.KEY_ROTATED,
                        actor=actor,
                        reason=None,
                        old_kid=answer.result.previous_kid,
                        new_kid=answer.result.new_kid,
                        grace_ms=grace_ms,
                    )
            return answers

        return await self._transact("rotate_waitpoint_hmac_secret_all", rotate)

    async def list_waitpoint_hmac_kids(self) -> KidList:
        return await self._run("list_waitpoint_hmac_kids", list_waitpoint_hmac_kids)
