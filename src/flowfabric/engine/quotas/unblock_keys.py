"""Executions that limits hold back are claimable, as many of each key as have room."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.errors import invalid_input

UNBLOCK_KEYS: Final[LiteralString] = """
-- quotas.unblock_keys
SELECT ff.unblock_quota_keys(%(quota_key_id)s::bigint[], %(wait)s::boolean) AS moved
"""


class UnblockedKeys(msgspec.Struct, frozen=True):
    """How many executions became claimable."""

    moved: int


async def unblock_keys(
    conn: Connection, quota_key_ids: Collection[int], *, wait: bool = True
) -> int:
    """Of each key the best that are held back are claimable; how many in all.

    A key never has more claimable and running executions together than its limit allows. The
    caller that ends an execution calls this after its commit, with the key of the execution.
    Unless `wait`, keys that another transaction uses are left alone.
    """
    for each in quota_key_ids:
        if type(each) is not int:
            raise invalid_input("quota_key_id", each, "must be a whole number")
    if not quota_key_ids:
        return 0
    answer = await fetch_one(
        conn, UNBLOCK_KEYS, UnblockedKeys, quota_key_id=sorted(set(quota_key_ids)), wait=wait
    )
    return answer.moved
