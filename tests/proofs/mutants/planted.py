"""The faults that the proofs must notice, one at least against every promise that a proof claims.

What is replaced is named by the columns and parameters of the specs. Names that are ours alone, of
CTEs, aliases and helpers, are variables (`$seen`), so that renaming them costs no mutant.
"""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.of_budgets import OF_BUDGETS
from tests.proofs.mutants.of_durable import OF_DURABLE
from tests.proofs.mutants.of_limits import OF_LIMITS
from tests.proofs.mutants.of_processes import OF_PROCESSES
from tests.proofs.mutants.place import Place

_LIFECYCLE = "engine/lifecycle"
_FLOWS = "engine/flows"
_JOINS = "engine/joins"

_FENCE = Place(folder="engine/lifecycle")
_FENCED = """($e.attempt_index, $e.lease_epoch, $e.lease_id)
           = ($held.$attempt, $held.$epoch, $held.$lease)"""
_HOLDING = Place(folder="engine/lifecycle/sql/fence.py")
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
                every=True,
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
                every=True,
            ),
        ),
        proofs=("zombie", "history", "lost_claim"),
        tests=(f"{_LIFECYCLE}/test_fence_parts.py",),
    ),
    Mutant(
        "a lease that ran out still holds",
        ("G3",),
        (
            Edit(
                _FENCE,
                find="$l.lease_expires_at_ms > ff.now_ms()",
                put="$l.lease_id IS NOT NULL",
                every=True,
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
            Edit(_END, find="AND $e.lifecycle_phase <> 'terminal'", put="", every=True),
        ),
        proofs=("interleave",),
        tests=(f"{_LIFECYCLE}/test_terminalize.py",),
    ),
    Mutant(
        "the epoch is not compared again when an execution ends",
        ("G2", "G3"),
        (
            Edit(
                _END,
                find="AND (NOT $ending.leased OR $e.lease_epoch = $ending.lease_epoch - 1)",
                put="",
            ),
            Edit(
                _END,
                find="<> 'terminal' AND $e.lease_epoch = $ending.lease_epoch - 1",
                put="<> 'terminal'",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "a lease stays when its execution ends",
        ("G2", "G3"),
        (
            Edit(
                _END,
                find="AND {where} RETURNING $e.partition_key, $e.execution_id, $e.attempt_index",
                put="AND false RETURNING $e.partition_key, $e.execution_id, $e.attempt_index",
            ),
        ),
        proofs=("interleave", "model_stateful"),
    ),
    Mutant(
        "an execution that is ended stays in the queue",
        ("G2",),
        (Edit(_TERMINALIZE, find='+ dequeued("ended", where="$leaving.was_eligible")', put=""),),
        proofs=("interleave", "model_stateful"),
        tests=(f"{_LIFECYCLE}/test_terminalize.py",),
    ),
    Mutant(
        "an execution that is requeued does not come into the queue",
        ("G2", "G5"),
        (Edit(_END, find='+ queued("requeued")', put=""),),
        proofs=("interleave", "model_stateful"),
        tests=(f"{_LIFECYCLE}/test_expire_leases.py",),
    ),
    Mutant(
        "the clock of the process in a lease",
        ("G15",),
        (
            Edit(
                _LEASE,
                find="lease_epoch, now_ms + %(ttl_ms)s::bigint,",
                put="lease_epoch, %(ttl_ms)s::bigint,",
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
                find="""greatest($e.total_attempt_count, $e.attempt_index
                    + $found.reclaims::integer + 1) AS total_attempt_count""",
                put="$e.total_attempt_count AS total_attempt_count",
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
        "one look at the lock of a worker is enough",
        ("G5",),
        (
            Edit(
                Place(folder="engine/workers/recover_dead_workers.py"),
                find="APART_MS: Final = 2_000",
                put="APART_MS: Final = 0",
            ),
        ),
        proofs=("liveness",),
        tests=("engine/workers/test_recover_dead_workers.py",),
    ),
    Mutant(
        "an expired lease keeps its epoch",
        ("G3",),
        (
            Edit(
                Place(folder="engine/lifecycle/sql/expire_lease.py"),
                find="attempt_outcome=\"'lease_expired_reclaimable'\",",
                put='attempt_outcome="\'lease_expired_reclaimable\'", bumps_epoch="false",',
            ),
        ),
        proofs=("model_stateful",),
        tests=(
            "engine/workers/test_recover_dead_workers.py",
            f"{_LIFECYCLE}/test_expire_leases.py",
        ),
    ),
    Mutant(
        "opposite lock order in one operation",
        ("G21",),
        (
            Edit(
                _HOLDING,
                find="ORDER BY $held.$partition, $held.$execution, $held.ordinal",
                put="ORDER BY $held.$partition DESC, $held.$execution DESC, $held.ordinal",
                every=True,
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
        proofs=("grant_keys",),
        tests=("engine/keys/test_rotate_waitpoint_hmac_secret_all.py",),
    ),
    Mutant(
        "a grant counts whatever its signature is",
        ("S4",),
        (
            Edit(
                Place(function="verify_grant"),
                find="hmac.compare_digest($signer.sign($message), $key.signature) and",
                put="",
            ),
        ),
        proofs=("grant_keys",),
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
        proofs=("outbox_gap",),
        tests=("engine/events/test_gaps.py",),
    ),
    Mutant(
        "a subscription from now on does not wait for writers",
        ("G11",),
        (
            Edit(
                Place(function="newest_final_id"),
                find="await wait_for_writers(pool)",
                put="",
            ),
        ),
        proofs=("outbox_gap",),
        tests=("engine/events/test_gaps.py",),
    ),
    Mutant(
        "a lease event is delivered before it is flushed",
        ("G11",),
        (
            Edit(
                Place(function="Reader._read_flushed"),
                find="if $found and self.$outbox.is_flushed_later:",
                put="if False:",
            ),
        ),
        proofs=("lost_claim",),
        tests=("engine/events/test_flush.py",),
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
                find="terminalize( conn, $free, outcome",
                put="terminalize( conn, [], outcome",
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
    ),
)

OF_STREAMS: Final = (
    Mutant(
        "a reader goes on one frame too late",
        ("G12",),
        (
            Edit(
                Place(function="following"),
                find="FrameId($place.ms, $place.seq + 1)",
                put="FrameId($place.ms, $place.seq + 2)",
            ),
        ),
        proofs=("streams",),
        tests=("engine/streams/test_reads.py",),
    ),
    Mutant(
        "frames of a repeated append are appended again",
        ("G12", "G7"),
        (
            Edit(
                Place(folder="db/functions/append_frames.sql"),
                find="coalesce($m.append_id = append_ids[$holder.caller], false) AS repeated",
                put="false AS repeated",
            ),
        ),
        proofs=("streams",),
        tests=("engine/streams/test_append_frame.py",),
    ),
)

OF_SCHEDULES: Final = (
    Mutant(
        "an instant that another process has fired is fired again",
        ("G7",),
        (
            Edit(
                Place(folder="engine/schedules/fire_schedules.py"),
                find="""AND $seen.next_fire_at_ms = $planned.seen_ms
                        AND $seen.revision = $planned.revision""",
                put="",
            ),
        ),
        proofs=("schedules",),
    ),
)

MUTANTS: Final = (
    *OF_SCHEDULES,
    *OF_LIMITS,
    *OF_STREAMS,
    *OF_LEASES,
    *OF_EVENTS,
    *OF_FLOWS,
    *OF_PROCESSES,
    *OF_DURABLE,
    *OF_BUDGETS,
)
