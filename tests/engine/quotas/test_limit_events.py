"""Who changed a limit, and from what."""

import json

from flowfabric.db.rows import Connection
from flowfabric.engine.quotas.create_quota_policy import create_quota_policy
from flowfabric.engine.quotas.delete_quota_policy import delete_quota_policy
from flowfabric.engine.quotas.update_quota_policy import update_quota_policy
from flowfabric.limits import QuotaLimits


async def test_one_operator_event_tells_of_each_change_and_none_of_a_repeat(db: Connection) -> None:
    for _ in range(2):
        await create_quota_policy(db, "bank", QuotaLimits(max_concurrent=2), actor="eve")
    for cap in (2, 3, 3):
        await update_quota_policy(
            db, "bank", QuotaLimits(max_concurrent=cap), actor="ann", reason="month end"
        )
    await delete_quota_policy(db, "bank", actor="bob", reason="gone")
    made, changed, deleted = await db.fetch("SELECT * FROM ff.operator_event ORDER BY event_id")
    assert [made[each] for each in ("event_type", "actor")] == ["limit_created", "eve"]
    facts = json.loads(made["details"])
    assert (facts["limit"], facts["namespace"], facts["max_concurrent"]) == ("bank", "default", 2)
    assert [changed[each] for each in ("event_type", "actor", "reason")] == [
        "limit_changed",
        "ann",
        "month end",
    ]
    facts = json.loads(changed["details"])
    assert (facts["limit"], facts["namespace"]) == ("bank", "default")
    assert (facts["old_max_concurrent"], facts["max_concurrent"]) == (2, 3)
    assert [deleted[each] for each in ("event_type", "actor")] == ["limit_deleted", "bob"]
    assert json.loads(deleted["details"])["limit"] == "bank"
