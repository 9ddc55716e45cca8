"""The faults that the proofs must notice, one at least against every promise that a proof claims.

What is replaced is named by the columns and parameters of the specs. Names that are ours alone, of
CTEs, aliases and helpers, are variables (`$seen`), so that renaming them costs no mutant.
"""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.of_processes import OF_PROCESSES
from tests.proofs.mutants.place import Place

_LIFECYCLE = "engine/lifecycle"
_FLOWS = "engine/flows"
_JOINS = "engine/joins"

_FENCE = Place(folder="engine/lifecycle")
_FENCED = """($e.attempt_index, $e.lease_epoch, $e.lease_id)
           = ($held.$attempt, $held.$epoch, $held.$lease)"""
_END = Place(folder="engine/lifecycle/sql")
_TERMINALIZE = Place(folder="engine/lifecycle/terminalize.py")
_LEASE = Place(folder="engine/lifecycle/sql")

OF_LEASES: Final = (
    Mutant(
        "no epoch in the fence",
        ("G3",),
        (
            Edit(
                _FENCE,
                find=_FENCED,
                put="($e.attempt_index, $e.lease_id) = ($held.$attempt, $held.$lease)",
            ),
        ),
        proofs=("zombie", "history", "model_stateful"),
        tests=(f"{_LIFECYCLE}/test_fence_parts.py",),
    ),
    Mutant(
        "lease_id is not compared",
        ("G3", "S5"),
        (
            Edit(
                _FENCE,
                find=_FENCED,
                put="($e.attempt_index, $e.lease_epoch) = ($held.$attempt, $held.$epoch)",
            ),
        ),
        proofs=("zombie", "history"),
        tests=(f"{_LIFECYCLE}/test_fence_parts.py",),
    ),
    Mutant(
        "a lease that ran out still holds",
        ("G3",),
        (
            Edit(
                _FENCE,
                find="$e.lease_expires_at_ms > ff.now_ms() AND ($e.attempt_index,",
                put="$e.lifecycle_phase = 'active' AND ($e.attempt_index,",
            ),
        ),
        proofs=("zombie", "model_stateful"),
        tests=(
            f"{_LIFECYCLE}/test_fence.py::test_5_a_lease_that_ran_out_is_expired_before_any_sweep",
        ),
    ),
    Mutant(
        "no terminal check",
        ("G2",),
        (
            Edit(_TERMINALIZE, find="lifecycle_phase <> 'terminal'", put="true"),
            Edit(_END, find="AND $e.lifecycle_phase <> 'terminal'", put=""),
        ),
        proofs=("interleave",),
        tests=(f"{_LIFECYCLE}/test_terminalize.py",),
    ),
    Mutant(
        "the clock of the process in a lease",
        ("G15",),
        (
            Edit(
                _LEASE,
                find="lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint",
                put="lease_expires_at_ms = %(ttl_ms)s::bigint",
            ),
            Edit(
                Place(function="claim"),
                find="ttl_ms=milliseconds(ttl),",
                put='ttl_ms=__import__("time").time_ns() // 1_000_000 + milliseconds(ttl),',
            ),
            Edit(
                Place(function="claim_by_id"),
                find="ttl_ms=$request.ttl_ms, lease_id",
                put='ttl_ms=__import__("time").time_ns() // 1_000_000 + $request.ttl_ms, lease_id',
            ),
        ),
        proofs=("skew",),
        tests=(
            f"{_LIFECYCLE}/test_claim.py",
            f"{_LIFECYCLE}/test_expire_leases.py",
        ),
    ),
    Mutant(
        "renewal on the event loop",
        ("G17",),
        (
            Edit(
                Place(function="Renewer.start"),
                find="self.$thread.start()",
                put="self._task = asyncio.get_running_loop()"
                ".create_task(self._renew_until_stopped())",
            ),
            Edit(
                Place(function="Renewer.stop"),
                find="asyncio.to_thread(self.$thread.join, $seconds)",
                put="self._task",
            ),
        ),
        proofs=("blocked_loop",),
        tests=("stories/test_blocked_loop.py",),
    ),
    Mutant(
        "attempts are counted when they fail, not when they are claimed",
        ("G6",),
        (
            Edit(
                _LEASE,
                find="""total_attempt_count = greatest(
                    $e.total_attempt_count, $e.attempt_index + $found.reclaims::integer + 1)""",
                put="total_attempt_count = $e.total_attempt_count",
            ),
            Edit(
                _LEASE,
                find="($e.lease_lost OR $found.reclaims)::integer",
                put="$found.reclaims::integer",
            ),
        ),
        proofs=("poison",),
        tests=(
            f"{_LIFECYCLE}/test_claim.py",
            f"{_LIFECYCLE}/test_expire_leases.py",
        ),
    ),
    Mutant(
        "opposite lock order in one operation",
        ("G21",),
        (
            Edit(
                _FENCE,
                find="ORDER BY $e.partition_key, $e.execution_id, $held.ordinal FOR",
                put="ORDER BY $e.partition_key DESC, $e.execution_id DESC, $held.ordinal FOR",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "a serialization failure is reported as a lost lease",
        ("G21",),
        (
            Edit(
                Place(folder="db/faults.py"),
                find="return SerializationConflict($message)",
                put='return __import__("flowfabric.errors").errors.StaleLease('
                "$message, held=0, current=0)",
            ),
        ),
        proofs=("storm",),
        tests=("db/test_faults.py::test_a_serialization_failure_is_a_conflict",),
    ),
    Mutant(
        "a repeated completion is refused",
        ("G7",),
        (
            Edit(
                Place(folder="engine/lifecycle/complete.py"),
                find='$seen.terminal_outcome != "success" or not $seen.$ended(',
                put='$seen.terminal_outcome != "success" or $seen.$ended(',
            ),
        ),
        proofs=("lost_ack", "history", "model_stateful"),
        tests=(f"{_LIFECYCLE}/test_repeated_calls.py",),
    ),
    Mutant(
        "a claim looks into every namespace",
        ("S3",),
        (
            Edit(
                Place(folder="db"),
                find="$r.lane_id = ANY (p_lanes) AND $r.namespace = p_namespace",
                put="$r.lane_id = ANY (p_lanes)",
                every=True,
            ),
        ),
        proofs=("isolation",),
        tests=(f"{_LIFECYCLE}/test_claim_order.py::test_namespaces_are_separate",),
    ),
    Mutant(
        "the end of a key's grace is ignored",
        ("S4",),
        (
            Edit(
                Place(statement="verifying_key"),
                find="AND (active OR expires_at_ms >= ff.now_ms())",
                put="",
            ),
        ),
        tests=("engine/grants/test_verify_grant.py",),
    ),
)

OF_EVENTS: Final = (
    Mutant(
        "a reader that asks for id > last",
        ("G11",),
        (
            Edit(
                Place(folder="engine/events"),
                find="$found[$whole].event_id == self.$horizon + $whole + 1:",
                put="$found[$whole].event_id > self.$horizon:",
            ),
        ),
        tests=("engine/events/test_gaps.py",),
    ),
    Mutant(
        "ends are marked as dispatched before they are",
        ("G8",),
        (
            Edit(
                Place(function="dispatch_batch"),
                find="$partly = {$each.event_id for $each in $ends if $each.partly}",
                put='await conn.execute("UPDATE ff.completion_event SET dispatched_at_ms = 1'
                ' WHERE event_id = ANY ($1::bigint[])", [each.event_id for each in $ends]);'
                ' await conn.execute("COMMIT"); await conn.execute("BEGIN");'
                " $partly = {$each.event_id for $each in $ends if $each.partly}",
            ),
        ),
        proofs=("cascade_crash",),
    ),
)

OF_FLOWS: Final = (
    Mutant(
        "a group that was decided fires again",
        ("G8",),
        (
            Edit(
                Place(statement="resolve_edges"),
                find="""WHERE $decided.old_state = 'pending' AND ($decided.new_state <> 'pending'
                        OR $fed.sources IS NOT NULL)""",
                put="WHERE $decided.new_state <> 'pending' OR $fed.sources IS NOT NULL",
            ),
        ),
        proofs=("cascade_crash", "model_stateful"),
        tests=(f"{_JOINS}/test_late_ends.py",),
    ),
    Mutant(
        "an end is counted twice",
        ("G8",),
        (
            Edit(
                Place(statement="resolve_edges"),
                find="(count(*) FILTER (WHERE outcome = 'success'))::integer",
                put="(count(*) FILTER (WHERE outcome = 'success'))::integer * 2",
            ),
        ),
        proofs=("cascade_crash", "model_stateful"),
    ),
    Mutant(
        "siblings are struck off the list and run on",
        ("G8",),
        (
            Edit(
                Place(function="cancel_batch"),
                find="if $members: await terminalize(",
                put="if $members and not conn: await terminalize(",
            ),
        ),
        proofs=("cascade_crash", "model_stateful"),
        tests=(f"{_JOINS}/test_queue_siblings.py",),
    ),
    Mutant(
        "a skip does not go on",
        ("G8",),
        (
            Edit(
                Place(function="apply_decisions"),
                find="for $each in $lost if $each not in $listed]",
                put="for $each in $lost if $each in $listed]",
            ),
        ),
        proofs=("cascade_crash", "model_stateful"),
    ),
    Mutant(
        "a cancelled flow does not mark what runs",
        ("G9",),
        (
            Edit(
                Place(statement="park_members"),
                find="AND $seen.lifecycle_phase <> 'runnable'",
                put="AND false",
            ),
        ),
        proofs=("model_stateful",),
        tests=(
            f"{_FLOWS}/test_cancel_flow_header.py",
            "engine/operators/test_cancel_flow.py",
        ),
    ),
    Mutant(
        "a cancelled flow parks nobody",
        ("G9",),
        (
            Edit(
                Place(statement="park_members"),
                find="AND $seen.lifecycle_phase = 'runnable'",
                put="AND false",
            ),
        ),
        proofs=("model_stateful",),
        tests=(
            "engine/operators/test_cancel_flow_races.py"
            "::test_a_claim_that_comes_while_it_is_parked_gets_nothing",
        ),
    ),
)

MUTANTS: Final = (*OF_LEASES, *OF_EVENTS, *OF_FLOWS, *OF_PROCESSES)
