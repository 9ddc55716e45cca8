"""Claims of executions outside flows and limits: when those end, nothing else has to go on."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.lease import Claimed

_MOST: Final = 10_000
_lease_id: Final = attrgetter("lease_id")


class PlainClaims:
    """Remembers the claims of this process whose executions have neither a flow nor a limit.

    The outcomes of others are followed by a dispatch and a look for what waits for their slots. A
    claim that was forgotten, or that another process answered, counts as one of those. An execution
    that gets children by another process than the one of its claim is left to the sweeps.
    """

    def __init__(self) -> None:
        self._lease_ids: dict[UUID, None] = {}

    def note(self, claimed: Sequence[Claimed]) -> None:
        """Remember the executions of one claim, unless one of them has a flow or a limit."""
        if not claimed:
            return
        lease_id = claimed[0].lease.lease_id
        if any(each.flow_id is not None or each.quota_key_id is not None for each in claimed):
            self._lease_ids.pop(lease_id, None)
            return
        if len(self._lease_ids) >= _MOST:
            del self._lease_ids[next(iter(self._lease_ids))]
        self._lease_ids[lease_id] = None

    def forget(self, lease: Lease) -> None:
        """The execution has children now, which belong to a flow with it."""
        self._lease_ids.pop(lease.lease_id, None)

    def include(self, leases: Sequence[Lease]) -> bool:
        """Is each of the leases one of these claims?"""
        return self._lease_ids.keys() >= set(map(_lease_id, leases))
