"""The faults that the suite must notice: those of guarantees.md section 6, and some of flows."""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Change, Mutant, proof, tests

_FENCE = "engine/lifecycle/fence.py"
_LEASING = "engine/lifecycle/leasing.py"
_TERMINALIZE = "engine/lifecycle/terminalize.py"
_DISPATCH = "engine/flows/dispatch_completions.py"
_SIBLINGS = "engine/flows/queue_siblings.py"
_LIFECYCLE = "engine/lifecycle"
_FLOWS = "engine/flows"

_FENCED = """(e.attempt_index, e.lease_epoch, e.lease_id)
             = (held.held_attempt, held.held_epoch, held.held_lease) AS holds"""

OF_LEASES: Final = (
    Mutant(
        "no epoch in the fence",
        (
            Change(
                _FENCE,
                _FENCED,
                "(e.attempt_index, e.lease_id) = (held.held_attempt, held.held_lease) AS holds",
            ),
        ),
        tests(f"{_LIFECYCLE}/test_fence_parts.py"),
    ),
    Mutant(
        "lease_id is not compared",
        (
            Change(
                _FENCE,
                _FENCED,
                "(e.attempt_index, e.lease_epoch) = (held.held_attempt, held.held_epoch) AS holds",
            ),
        ),
        tests(f"{_LIFECYCLE}/test_fence_parts.py"),
    ),
    Mutant(
        "a lease that ran out still holds",
        (
            Change(
                _FENCE,
                "           e.lease_expires_at_ms > ff.now_ms()\n           AND (",
                "           e.lifecycle_phase = 'active'\n           AND (",
            ),
        ),
        tests(
            f"{_LIFECYCLE}/test_fence.py::test_5_a_lease_that_ran_out_is_expired_before_any_sweep"
        ),
    ),
    Mutant(
        "no terminal check",
        (
            Change(
                _TERMINALIZE,
                "      FROM seen WHERE lifecycle_phase <> 'terminal'\n",
                "      FROM seen\n",
            ),
            Change(
                _TERMINALIZE, "       AND e.lifecycle_phase <> 'terminal'\n RETURNING", " RETURNING"
            ),
        ),
        tests(f"{_LIFECYCLE}/test_terminalize.py"),
    ),
    Mutant(
        "the clock of the process in a lease",
        (
            Change(
                _LEASING,
                "lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint,",
                "lease_expires_at_ms = %(ttl_ms)s::bigint,",
            ),
            Change(
                f"{_LIFECYCLE}/claim.py",
                "ttl_ms=milliseconds(ttl),",
                'ttl_ms=__import__("time").time_ns() // 1_000_000 + milliseconds(ttl),',
            ),
            Change(
                f"{_LIFECYCLE}/take.py",
                "        ttl_ms=taker.ttl_ms,\n        lease_id",
                '        ttl_ms=__import__("time").time_ns() // 1_000_000 + taker.ttl_ms,\n'
                "        lease_id",
            ),
        ),
        tests(f"{_LIFECYCLE}/test_claim.py", f"{_LIFECYCLE}/test_expire_leases.py"),
    ),
    Mutant(
        "renewal on the event loop",
        (
            Change(
                "worker/renewer.py",
                "        self._thread.start()\n",
                "        self._task = self._home.create_task(self._renew_until_stopped())\n",
            ),
            Change(
                "worker/renewer.py",
                "        await asyncio.to_thread(self._thread.join, 10.0)\n",
                "        await self._task\n",
            ),
        ),
        tests("stories/test_blocked_loop.py"),
    ),
    Mutant(
        "attempts are counted when they fail, not when they are claimed",
        (
            Change(
                _LEASING,
                """greatest(
                e.total_attempt_count, e.attempt_index + found.reclaims::integer + 1)""",
                "e.total_attempt_count",
            ),
            Change(
                _LEASING, "(e.lease_lost OR found.reclaims)::integer", "found.reclaims::integer"
            ),
        ),
        tests(f"{_LIFECYCLE}/test_claim.py", f"{_LIFECYCLE}/test_expire_leases.py"),
    ),
    Mutant(
        "opposite lock order in one operation",
        (
            Change(
                _TERMINALIZE,
                "     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e\n",
                "     ORDER BY e.partition_key DESC, e.execution_id DESC FOR NO KEY UPDATE OF e\n",
            ),
        ),
        tests(f"{_LIFECYCLE}/test_lock_order.py"),
    ),
    Mutant(
        "a serialization failure is reported as a lost lease",
        (
            Change(
                "db/faults.py",
                "        return SerializationConflict(message)\n",
                "        from flowfabric.errors import StaleLease\n\n"
                "        return StaleLease(operation, held=0, current=0)\n",
            ),
        ),
        tests("db/test_faults.py::test_a_serialization_failure_is_a_conflict"),
    ),
    Mutant(
        "a repeated completion is refused",
        (
            Change(
                f"{_LIFECYCLE}/complete.py",
                'if seen.terminal_outcome != "success" or not seen.was_left_by(lease):',
                'if seen.terminal_outcome != "success" or seen.was_left_by(lease):',
            ),
        ),
        tests(f"{_LIFECYCLE}/test_repeated_calls.py"),
    ),
    Mutant(
        "a claim looks into every namespace",
        (
            Change(
                "db/functions/claimable.sql",
                "r.lane_id = ANY (of_lanes) AND r.namespace = of_namespace",
                "r.lane_id = ANY (of_lanes)",
            ),
        ),
        tests(f"{_LIFECYCLE}/test_claim_order.py::test_namespaces_are_separate"),
    ),
    Mutant(
        "the end of a key's grace is ignored",
        (Change("engine/keys/key.py", " AND (active OR expires_at_ms >= ff.now_ms())", ""),),
        tests(f"{_LIFECYCLE}/test_verify_grant.py"),
    ),
)

OF_EVENTS: Final = (
    Mutant(
        "a reader that asks for id > last",
        (
            Change(
                "engine/events/reader.py",
                "found[whole].event_id == self.horizon + whole + 1:",
                "found[whole].event_id > self.horizon:",
            ),
        ),
        tests("engine/events/test_gaps.py"),
    ),
    Mutant(
        "ends are marked as dispatched before they are",
        (
            Change(
                _DISPATCH,
                "    siblings = await act(conn, await resolve(conn, ends))\n",
                "    await conn.execute(\n"
                '        "UPDATE ff.completion_event SET dispatched_at_ms = 1"\n'
                '        " WHERE event_id = ANY ($1::bigint[])", [end.event_id for end in ends])\n'
                '    await conn.execute("COMMIT")\n'
                '    await conn.execute("BEGIN")\n'
                "    siblings = await act(conn, await resolve(conn, ends))\n",
            ),
        ),
        proof("cascade_crash"),
    ),
)

OF_FLOWS: Final = (
    Mutant(
        "a group that was decided fires again",
        (
            Change(
                _DISPATCH,
                " WHERE decided.old_state = 'pending' AND (decided.new_state <> 'pending'"
                " OR fed.sources IS NOT NULL)",
                " WHERE decided.new_state <> 'pending' OR fed.sources IS NOT NULL",
            ),
        ),
        tests(f"{_FLOWS}/test_late_ends.py"),
    ),
    Mutant(
        "an end is counted twice",
        (
            Change(
                _DISPATCH,
                "(count(*) FILTER (WHERE outcome = 'success'))::integer AS succeeded",
                "(count(*) FILTER (WHERE outcome = 'success'))::integer * 2 AS succeeded",
            ),
        ),
        proof("cascade_crash"),
    ),
    Mutant(
        "siblings are struck off the list and run on",
        (Change(_SIBLINGS, "        if members:\n", "        if members and not reason:\n"),),
        tests(f"{_FLOWS}/test_queue_siblings.py"),
    ),
    Mutant(
        "a skip does not go on",
        (
            Change(
                _DISPATCH,
                "        skipped = [each for each in lost if each not in listed]\n",
                "        skipped = [each for each in lost if each in listed]\n",
            ),
        ),
        proof("cascade_crash"),
    ),
    Mutant(
        "a cancelled flow does not mark what runs",
        (
            Change(
                f"{_LIFECYCLE}/park_members.py",
                "       AND seen.lifecycle_phase <> 'runnable'\n",
                "       AND false\n",
            ),
        ),
        tests(f"{_FLOWS}/test_cancel_flow_header.py", f"{_FLOWS}/test_cancel_flow.py"),
    ),
    Mutant(
        "a cancelled flow parks nobody",
        (
            Change(
                f"{_LIFECYCLE}/park_members.py",
                "       AND seen.lifecycle_phase = 'runnable'\n), withdrawn",
                "       AND false\n), withdrawn",
            ),
        ),
        tests(
            f"{_FLOWS}/test_cancel_flow_races.py"
            "::test_a_claim_that_comes_while_it_is_parked_gets_nothing"
        ),
    ),
)

MUTANTS: Final = (*OF_LEASES, *OF_EVENTS, *OF_FLOWS)
