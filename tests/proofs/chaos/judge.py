"""What a run came to: the figures of G1, G2, G4, G5, G8 and the invariants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from tests.engine.joins.invariants import broken_invariants as broken_flows
from tests.proofs.chaos.invariants import broken_invariants
from tests.proofs.chaos.load import Acked
from tests.proofs.chaos.orphans import Orphan, orphans
from tests.proofs.chaos.schedule import Size
from tests.proofs.chaos.stage import Stage
from tests.proofs.figures import Figure

SCAN: Final = 1.0
SPARE: Final = 1.0
"""The recovery bound is TTL, scan and this."""
RESUMED: Final = 15.0
FLUSHED_WITHIN_MS: Final = 1_000
"""The WAL of a claim is flushed within 600 ms of its commit: three times `wal_writer_delay`."""

_LOST: Final = """
SELECT count(*) FROM unnest($1::uuid[]) AS acked (execution_id)
 WHERE NOT EXISTS (SELECT FROM ff.execution e WHERE e.execution_id = acked.execution_id
                      AND e.public_state = 'completed')
"""
_LOST_MEMBERS: Final = """
SELECT $2::integer - count(*) FROM ff.execution
 WHERE flow_id = ANY($1::uuid[]) AND public_state = 'completed'
"""
_TWICE: Final = """
SELECT count(*) FROM (SELECT FROM ff.completion_event GROUP BY execution_id HAVING count(*) > 1)
    AS twice
"""
_SIDE: Final = """
SELECT (SELECT count(*) FROM side), (SELECT count(DISTINCT execution_id) FROM side),
       (SELECT count(*) FROM side s JOIN ff.attempt a USING (execution_id, lease_epoch)
         WHERE a.outcome = 'success'),
       (SELECT count(*) FROM ff.execution e JOIN ff.route r USING (route_id)
         WHERE r.execution_kind = 'booked')
"""
_BEGINNINGS: Final = """
SELECT execution_id, count(*) FILTER (WHERE event_type = 'acquired') AS acquired,
       count(*) FILTER (WHERE event_type = 'expired' OR reason IN ('retry', 'released')) AS excused,
       array_agg(lease_id) FILTER (WHERE event_type = 'acquired') AS leases,
       max(lease_id::text) FILTER (WHERE reason = 'completed') AS won
  FROM ff.lease_event WHERE event_type <> 'renewed' GROUP BY execution_id
"""
_SERVED: Final = """
SELECT count(DISTINCT worker_instance_id) FROM ff.lease_event WHERE worker_instance_id = ANY($1)
"""
_NEXT_CLAIM: Final = """
SELECT coalesce(min(occurred_at_ms), $1::bigint + 3600000) FROM ff.lease_event  -- never is an hour
 WHERE event_type = 'acquired' AND occurred_at_ms >= $1
"""
_SUMS: Final = """
SELECT count(*) FILTER (WHERE a.result = '55'), count(*) FROM ff.execution e
  JOIN ff.route r USING (route_id)
  LEFT JOIN ff.attempt a ON a.execution_id = e.execution_id AND a.outcome = 'success'
 WHERE r.execution_kind = 'join'
"""

_UNCARRIED: Final = """
SELECT count(*) FROM ff.completion_event WHERE flow_id IS NOT NULL AND dispatched_at_ms IS NULL
"""


async def figures(stage: Stage) -> list[Figure]:
    """Look at the database, at the file of starts and at what was struck."""
    db = await asyncpg.connect(stage.server.dsn)
    try:
        lost = await orphans(db)
        away = [await _away(db, outage) for outage in stage.server.outages]
        return [
            await _struck(db, stage),
            *await _kept(db, stage.acked, stage.size),
            *await _starts(db, stage),
            *_recovered(lost, away, stage),
            *await _sound(db, stage.size),
        ]
    finally:
        await db.close()


async def _struck(db: asyncpg.Connection[Any], stage: Stage) -> Figure:
    size, kinds = stage.size, Counter(fault.kind for fault in stage.struck)
    cuts = sum((proxy.sprung for proxy in stage.proxies), Counter())
    # One that finds no database when it starts ends at once, and is started again.
    left = [name for crew in stage.crews for name in crew.gave_up]
    given_up = await db.fetchval(_SERVED, left)
    return Figure(
        "G1, G19",
        "kill -9 of workers, of Postgres; freezes; cuts (after, before, inside a commit, plain)",
        f"{kinds['kill']}, {kinds['postgres']}; {kinds['freeze']}; {cuts['after']}, "
        f"{cuts['before']}, {cuts['inside']}, {cuts['cut']}; {given_up} gave up; "
        f"exit codes {stage.exit_codes}",
        f"{size.kills}, {size.postgres_kills}; {size.freezes}; some; 0 gave up; 0, 0",
        held=(kinds["kill"], kinds["postgres"], kinds["freeze"])
        == (size.kills, size.postgres_kills, size.freezes)
        and cuts["after"] > 0
        and not given_up
        and stage.exit_codes == [0] * len(stage.crews),
    )


async def _kept(db: asyncpg.Connection[Any], acked: Acked, size: Size) -> Sequence[Figure]:
    members = size.executions - size.booked - size.plain
    lost = await db.fetchval(_LOST, [each.uuid for each in acked.executions])
    lost += await db.fetchval(_LOST_MEMBERS, acked.flows, members)
    told = len(acked.executions) + members
    there = await db.fetchval("SELECT count(*) FROM ff.exec_core")
    going = await db.fetchval(
        "SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal'"
    )
    twice = await db.fetchval(_TWICE)
    [(rows, distinct, fenced, booked)] = await db.fetch(_SIDE)
    return [
        Figure(
            "G1",
            "acknowledged executions: lost, of how many; not ended; made twice",
            f"{lost} of {told}; {going}; {there - told}",
            f"0 of {size.executions}; 0; 0",
            held=not lost and not going and told == size.executions and _fits(there, told, acked),
        ),
        Figure("G2", "executions with two ends", f"{twice}", "0", held=twice == 0),
        Figure(
            "G4",
            "rows written in the completing transaction; distinct; by the lease that won",
            f"{rows}; {distinct}; {fenced} of {booked}",
            f"{size.booked} each",
            held=rows == distinct == fenced == booked and booked >= size.booked,
        ),
    ]


def _fits(there: int, told: int, acked: Acked) -> bool:
    """Whatever is there was acknowledged, or asked for by a call without an answer."""
    return there == told if not acked.unsure else there >= told


class _Start(NamedTuple):
    """A handler began under this lease."""

    lease_id: str
    at_ms: int


async def _starts(db: asyncpg.Connection[Any], stage: Stage) -> list[Figure]:
    started: defaultdict[str, list[_Start]] = defaultdict(list)
    for line in stage.starts.read_text().splitlines():
        execution_id, lease_id, at_ms = line.split()
        started[execution_id].append(_Start(lease_id, int(at_ms)))
    unstarted = over = unheld = undone = 0
    for row in await db.fetch(_BEGINNINGS):
        starts = started.pop(str(row["execution_id"]), [])
        leases = [start.lease_id for start in starts]
        recorded = {str(lease_id) for lease_id in row["leases"]}
        lost = [start for start in starts if start.lease_id not in recorded]
        unstarted += row["won"] not in leases
        over += len(starts) > 1 + row["excused"] + len(lost)
        unheld += len(set(leases)) < len(leases) or not all(_undone(each, stage) for each in lost)
        undone += len(lost)
    unheld += len(started)
    return [
        Figure(
            "G4",
            "executions that ended without a start; started more often than 1 + its lost "
            "leases and failures; started twice on a lease, or without one that was claimed; "
            "starts by claims that a kill of Postgres took back",
            f"{unstarted}; {over}; {unheld}; {undone}",
            "0; 0; 0; any",
            held=not (unstarted or over or unheld),
        )
    ]


def _undone(start: _Start, stage: Stage) -> bool:
    """Was its claim taken back by a kill of Postgres? A claim does not wait for its flush.

    The handler may begin later than its claim, but not after its lease would have expired.
    """
    return any(
        began - FLUSHED_WITHIN_MS <= start.at_ms <= up + stage.size.ttl * 1000
        for began, up in stage.server.outages
    )


async def _away(db: asyncpg.Connection[Any], outage: tuple[int, int]) -> tuple[int, int]:
    """The outage, up to the first claim after it: until then nobody was there to take over."""
    began, up = outage
    return began, await db.fetchval(_NEXT_CLAIM, up)


def _recovered(
    lost: Sequence[Orphan], away: Sequence[tuple[int, int]], stage: Stage
) -> list[Figure]:
    bound = stage.size.ttl + SCAN + SPARE
    waits = sorted(orphan.waited_ms(away) / 1000 for orphan in lost)
    in_time = sum(wait <= bound for wait in waits)
    unexplained = [orphan for orphan in lost if not _explained(orphan, stage)]
    back = max(
        (on - up) / 1000 for (_, up), (_, on) in zip(stage.server.outages, away, strict=True)
    )
    return [
        Figure(
            "G5",
            "orphans; claimed again within TTL + scan + 1 s of the last renewal, leaving out the "
            "time from a kill of Postgres to the first claim after it; the longest",
            f"{len(waits)}; {in_time}; {waits[-1] if waits else 0:.2f} s",
            f"all within {bound:g} s",
            held=in_time == len(waits) > 0,
        ),
        Figure(
            "G19",
            "from the moment that Postgres answers again to the first claim, at most",
            f"{back:.2f} s",
            f"{RESUMED:g} s",
            held=back <= RESUMED,
        ),
        Figure(
            "G4",
            "lost leases that no fault explains",
            f"{len(unexplained)}",
            "0",
            held=not unexplained,
        ),
    ]


def _explained(orphan: Orphan, stage: Stage) -> bool:
    """Its holder was killed, frozen or cut off, or Postgres was away."""
    place = int(orphan.instance[1])
    blows = [
        (blow.began_ms, blow.ended_ms)
        for blow in stage.crews[place].blows
        if blow.instance == orphan.instance
    ]
    cuts = [(at, at) for at in stage.proxies[place].cuts_ms]
    return orphan.meets([*blows, *cuts, *stage.server.outages])


async def _sound(db: asyncpg.Connection[Any], size: Size) -> list[Figure]:
    executions, flows = await broken_invariants(db), await broken_flows(db)
    [(right, joins)] = await db.fetch(_SUMS)
    undone = await db.fetchval(_UNCARRIED)
    return [
        Figure(
            "G2, G3",
            "invariants I1-I10 of executions that are broken",
            ", ".join(f"{claim}: {number}" for claim, number in executions.items()) or "0",
            "0",
            held=not executions,
        ),
        Figure(
            "G8",
            "invariants of flows that are broken; ends not carried; joins with the right sum",
            f"{', '.join(flows) or 0}; {undone}; {right} of {joins}",
            f"0; 0; {size.fans} of {size.fans}",
            held=not flows and not undone and right == joins == size.fans,
        ),
    ]
