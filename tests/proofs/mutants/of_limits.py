"""Faults in the counting of limits."""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.place import Place

_ROOM: Final = Place(folder="db/functions/quota_room.sql")
_CLAIM: Final = Place(folder="db/functions/claimable_limited.sql")
_TESTS: Final = ("engine/quotas/test_claims.py",)
_SLOTS: Final = """SELECT count(*) FROM (SELECT FROM ff.lease $l WHERE $l.quota_key_id = key.k
    LIMIT policy.active_concurrency_cap) AS held"""
_COUNTED: Final = "AND w.admitted_at_ms > p_now_ms - policy.window_ms LIMIT policy"

OF_LIMITS: Final = (
    Mutant(
        "the slots of a limit are counted without the leases",
        ("G14",),
        (
            Edit(
                Place(folder="db/functions/quota_room.sql"),
                find="SELECT FROM ff.lease $l WHERE $l.quota_key_id = key.k",
                put="SELECT FROM ff.lease $l WHERE false AND $l.quota_key_id = key.k",
            ),
        ),
        proofs=("limits",),
        tests=("engine/quotas/test_claims.py",),
    ),
    Mutant(
        "a start leaves its window too early",
        ("G14",),
        (
            Edit(
                Place(folder="db/functions/quota_room.sql"),
                find="AND w.admitted_at_ms > p_now_ms - policy.window_ms\n"
                "                                                 LIMIT",
                put="AND w.admitted_at_ms > p_now_ms - policy.window_ms / 2\n"
                "                                                 LIMIT",
            ),
        ),
        proofs=("limits",),
        tests=("engine/quotas/test_claims.py",),
    ),
    Mutant(
        "the slots of a limit are a counter that a lost lease does not lower",
        ("G14",),
        (
            Edit(
                Place(folder="db/migrations/0001_initial.sql"),
                find="quota_policy_id uuid NOT NULL, dimension text NOT NULL, next_at_ms bigint",
                put="quota_policy_id uuid NOT NULL, dimension text NOT NULL, next_at_ms bigint,"
                " held integer NOT NULL DEFAULT 0",
            ),
            Edit(_ROOM, find=_SLOTS, put="SELECT q.held"),
            Edit(
                _CLAIM,
                find="SELECT array_agg(key.k) INTO full_keys",
                put="UPDATE ff.quota_key q SET held = q.held + more.n"
                " FROM (SELECT k, count(*) AS n FROM unnest(taken_keys) AS k GROUP BY k) AS more"
                " WHERE p_takes AND q.quota_key_id = more.k;"
                " SELECT array_agg(key.k) INTO full_keys",
            ),
            Edit(
                Place(folder="engine/lifecycle/sql/end.py"),
                find=" ended.ended_at_ms{more} )",
                put=""" ended.ended_at_ms{more}, l.quota_key_id AS held_key
), lowered AS (
    UPDATE ff.quota_key q SET held = q.held - fewer.n
      FROM (SELECT held_key, count(*) AS n FROM lease_ended
             WHERE held_key IS NOT NULL GROUP BY 1) AS fewer
     WHERE q.quota_key_id = fewer.held_key
)""",
            ),
        ),
        proofs=("interleave",),
        tests=("engine/quotas/test_admission.py",),
    ),
    Mutant(
        "a start leaves its window a millisecond too early",
        ("G14",),
        (
            Edit(
                _ROOM,
                find=_COUNTED,
                put="AND w.admitted_at_ms - 1 > p_now_ms - policy.window_ms LIMIT policy",
            ),
        ),
        proofs=("interleave",),
        tests=_TESTS,
    ),
    Mutant(
        "a start leaves its window a millisecond too late",
        ("G14",),
        (
            Edit(
                _ROOM,
                find=_COUNTED,
                put="AND w.admitted_at_ms >= p_now_ms - policy.window_ms LIMIT policy",
            ),
        ),
        proofs=("interleave",),
        tests=_TESTS,
    ),
    Mutant(
        "a later round of a claim counts anew what a key leaves",
        ("G14",),
        (Edit(_CLAIM, find="seen_keys := seen_keys || found_keys;", put=""),),
        proofs=("interleave",),
    ),
    Mutant(
        "a claim holds back executions of a key that has room",
        ("G14",),
        (
            Edit(
                _CLAIM,
                find="GROUP BY key.k HAVING max(key.room) <= sum(key.taken)",
                put="GROUP BY key.k HAVING true",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "executions of a key that no worker knows keep its room",
        ("G14",),
        (
            Edit(_CLAIM, find="WHERE held.route_id = ANY (p_routes)", put=""),
            Edit(_CLAIM, find="WHERE queued.route_id = ANY (p_routes)", put=""),
        ),
        proofs=("limits",),
        tests=("engine/quotas/test_routes.py",),
    ),
)
