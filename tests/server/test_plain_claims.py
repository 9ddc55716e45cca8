"""Claims after whose outcomes nothing else has to go on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from flowfabric.engine import Claimed, Lease
from flowfabric.ids import ExecutionId
from flowfabric.server.plain_claims import PlainClaims
from flowfabric.states import AttemptType


def claimed(lease_id: UUID, **facts: Any) -> Claimed:
    return Claimed(
        lease=Lease(ExecutionId.mint(), 0, 1, lease_id),
        lane_id="default",
        execution_kind="job",
        input_payload=b"",
        payload_encoding=None,
        tags={},
        attempt_type=AttemptType.INITIAL,
        total_attempt_count=1,
        attempt_timeout=None,
        deadline=None,
        claimed_at=datetime.now(UTC),
        **facts,
    )


def test_only_claims_without_flow_limit_and_children_are_plain() -> None:
    plain, flow, limit, parent = (uuid4() for _ in range(4))
    claims = {
        "plain": [claimed(plain), claimed(plain)],
        "flow": [claimed(flow), claimed(flow, flow_id=uuid4())],
        "limit": [claimed(limit, quota_key_id=7)],
        "parent": [claimed(parent)],
        "unknown": [claimed(uuid4())],
    }
    known = PlainClaims()
    for name, found in claims.items():
        if name != "unknown":
            known.note(found)
    known.forget(claims["parent"][0].lease)
    leases = {name: [each.lease for each in found] for name, found in claims.items()}
    assert [name for name, each in leases.items() if known.include(each)] == ["plain"]
    assert not known.include([*leases["plain"], *leases["limit"]])
