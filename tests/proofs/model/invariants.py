"""What is true after every step, in one statement, and between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.engine.joins import invariants
from tests.proofs.model.views import NAMES
from tests.proofs.queue import QUEUE

EXECUTIONS: Final = {
    "I2, I8: an active execution was leased last, and that lease has not ended": """
        SELECT e.execution_id FROM ff.execution e LEFT JOIN last_lease l USING (execution_id)
         WHERE (e.lifecycle_phase = 'active')
            <> coalesce(l.event_type IN ('acquired', 'reclaimed', 'renewed'), false)
            OR (e.lifecycle_phase = 'active'
                AND (l.lease_id, l.lease_epoch, l.attempt_index)
                 <> (e.lease_id, e.lease_epoch, e.attempt_index))""",
    "I8: every lease that was given out ended once before the next": """
        SELECT * FROM (
            SELECT event_type, lease_id, lag(event_type) OVER lives AS before,
                   lag(lease_id) OVER lives AS lease_before
              FROM ff.lease_event WHERE event_type <> 'renewed'
            WINDOW lives AS (PARTITION BY execution_id ORDER BY event_id)) AS told
         WHERE (event_type IN ('acquired', 'reclaimed'))
             = coalesce(before IN ('acquired', 'reclaimed'), false)
            OR (event_type IN ('expired', 'revoked') AND lease_id <> lease_before)""",
    "I6: a delayed execution has a moment to wait for": """
        SELECT FROM ff.execution
         WHERE (eligibility_state = 'not_eligible_until_time') <> (delay_until_ms IS NOT NULL)""",
    "every attempt but the current one is in the ledger": """
        SELECT e.execution_id FROM ff.execution e CROSS JOIN LATERAL (
               SELECT count(*) AS attempts, bool_or(a.attempt_index = e.attempt_index) AS current
                 FROM ff.attempt a WHERE (a.partition_key, a.execution_id)
                                       = (e.partition_key, e.execution_id)) AS ledger
         WHERE ledger.attempts <> e.total_attempt_count
             - (e.attempt_index < e.total_attempt_count
                AND ledger.current IS NOT TRUE)::integer""",
}

# A member that was cancelled before its group was decided and is replayed begins at once: a replay
# waits for dependencies again only where the member had been skipped.
BEGINS: Final = "nobody begins before its group is decided"

SHARED: Final = (
    invariants.SHARED
    + """, last_lease AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) * FROM ff.lease_event ORDER BY execution_id, event_id DESC
)
"""
)

CLAIMS: Final = {
    **invariants.BROKEN,
    BEGINS: invariants.BROKEN[BEGINS] + " AND d.replay_count = 0",
    **EXECUTIONS,
    **QUEUE,
}

BROKEN: Final = SHARED + " UNION ALL ".join(
    f"SELECT '{claim.replace(chr(39), chr(39) * 2)}' AS claim WHERE EXISTS ({sql})"
    for claim, sql in CLAIMS.items()
)
"""One row for each claim that does not hold."""

GROWING: Final = ("lease_epoch", "attempt_index", "total_attempt_count", "replay_count")
JOINING: Final = ("flow_id", "last_mutation_at_ms")


def broken_moves(before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    """What a step did to executions that no step may do: I3, I5 and I7."""
    broken: list[str] = []
    old = {line[0]: line for line in before}
    for line in after:
        if line != old.get(line[0], line):
            broken += [f"{why}: {line[0]}" for why in _broken(_named(old[line[0]]), _named(line))]
    gone = old.keys() - {line[0] for line in after}
    return broken + [f"it is gone: {each}" for each in gone]


def _named(line: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(NAMES, line, strict=True))


def _broken(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    broken = [f"I3: {name} fell" for name in GROWING if new[name] < old[name]]
    if old["started_at_ms"] not in (None, new["started_at_ms"]):
        broken.append("I7: started_at_ms changed")
    if old["lifecycle_phase"] == "terminal" and old["replay_count"] == new["replay_count"]:
        changed = [name for name in NAMES if old[name] != new[name] and name not in JOINING]
        broken += [f"I5: {name} of an end changed" for name in changed]
    return broken
