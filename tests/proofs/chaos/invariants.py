"""What holds of executions after a run that nobody replayed in (executions.md 14), in SQL."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from flowfabric.states import EligibilityState, LifecyclePhase, TerminalOutcome, derive_public_state
from tests.proofs.queue import QUEUE

_LEASES: Final = """
WITH told AS (        -- beginnings and ends of leases, each with the one before
    SELECT *, event_type IN ('acquired', 'reclaimed') AS begins,
           lag(event_type IN ('acquired', 'reclaimed')) OVER of_one AS began,
           lag(lease_id) OVER of_one AS lease_before, lag(lease_epoch) OVER of_one AS epoch_before,
           lead(event_id) OVER of_one IS NULL AS last
      FROM ff.lease_event WHERE event_type <> 'renewed'
    WINDOW of_one AS (PARTITION BY execution_id ORDER BY event_id)
)
"""

BROKEN: Final = {
    "I2 a lease is held exactly while active, and at the attempt that runs": """
        SELECT execution_id FROM ff.execution e
         WHERE (lease_expires_at_ms IS NOT NULL) <> (lifecycle_phase = 'active')
            OR (lifecycle_phase = 'terminal' AND attempt_index <> total_attempt_count - 1)""",
    "I3 epochs never fall": f"""{_LEASES}
        SELECT execution_id FROM told WHERE lease_epoch < epoch_before
         UNION ALL
        SELECT execution_id FROM told WHERE begins AND lease_epoch = epoch_before""",
    "I4 an end is told once, and as it stands": """
        SELECT execution_id FROM ff.execution e LEFT JOIN (
               SELECT partition_key, execution_id, count(*) AS ends, min(outcome) AS outcome
                 FROM ff.completion_event GROUP BY partition_key, execution_id) AS told
         USING (partition_key, execution_id)
         WHERE coalesce(told.ends, 0) <> (e.lifecycle_phase = 'terminal')::integer
            OR told.outcome <> e.terminal_outcome OR e.replay_count <> 0""",
    "I5 nothing happens to what has ended": """
        SELECT e.execution_id FROM ff.execution e
         WHERE e.lifecycle_phase = 'terminal'
           AND (e.last_mutation_at_ms <> e.terminal_at_ms
                OR (SELECT l.event_type IN ('acquired', 'reclaimed', 'renewed')
                      FROM ff.lease_event l WHERE l.execution_id = e.execution_id
                     ORDER BY l.event_id DESC LIMIT 1))""",
    "I6 what is delayed has an instant": """
        SELECT execution_id FROM ff.execution
         WHERE eligibility_state = 'not_eligible_until_time' AND delay_until_ms IS NULL""",
    "I7 it began with its first lease": """
        SELECT e.execution_id FROM ff.execution e
         WHERE e.started_at_ms IS DISTINCT FROM (
               SELECT min(l.occurred_at_ms) FROM ff.lease_event l
                WHERE l.execution_id = e.execution_id AND l.event_type = 'acquired')""",
    "I8 every lease that began ended before the next": f"""{_LEASES}
        SELECT execution_id FROM told
         WHERE begins = coalesce(began, false) OR (NOT begins AND lease_id <> lease_before)
            OR (last AND begins)""",
    "I8 only the lease that is held is renewed": """
        SELECT r.execution_id FROM ff.lease_event r
         WHERE r.event_type = 'renewed'
           AND (SELECT (l.lease_id, l.lease_epoch, l.event_type::text) FROM ff.lease_event l
                 WHERE l.execution_id = r.execution_id AND l.event_id < r.event_id
                   AND l.event_type <> 'renewed' ORDER BY l.event_id DESC LIMIT 1)
            <> (r.lease_id, r.lease_epoch, 'acquired'::text)""",
    "I9 the newest lease wrote the outcome": f"""{_LEASES}
        SELECT t.execution_id FROM told t JOIN ff.attempt a USING (partition_key, execution_id)
         WHERE t.last AND a.outcome = 'success'
           AND (a.lease_id, a.lease_epoch, a.attempt_index)
            <> (t.lease_id, t.lease_epoch, t.attempt_index)
         UNION ALL
        SELECT e.execution_id FROM ff.execution e
         WHERE e.terminal_outcome = 'success'
           AND (SELECT count(*) FROM ff.attempt a
                 WHERE a.execution_id = e.execution_id AND a.outcome = 'success') <> 1""",
    "I10 the words of states are checked": """
        SELECT conname FROM pg_constraint
         WHERE conrelid = 'ff.exec_core'::regclass AND contype = 'c' AND NOT convalidated""",
    **QUEUE,
}

_STATES: Final = """
SELECT DISTINCT lifecycle_phase, eligibility_state, terminal_outcome, resume_pending, public_state
  FROM ff.execution
"""


async def broken_invariants(db: asyncpg.Connection[Any]) -> dict[str, int]:
    """What does not hold, and of how many."""
    found = {claim: len(await db.fetch(sql)) for claim, sql in BROKEN.items()}
    found["I1 the public state is the derived one"] = sum(
        public
        != derive_public_state(
            LifecyclePhase(phase),
            EligibilityState(eligible),
            TerminalOutcome(outcome),
            resume_pending=resume,
        )
        for phase, eligible, outcome, resume, public in await db.fetch(_STATES)
    )
    return {claim: number for claim, number in found.items() if number}
