"""Faults of durable handlers: their journals, suspensions and signals."""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.place import Place

_RESUME = Place(folder="engine/lifecycle/resume.py")
_TIMED_OUT = Place(folder="engine/suspensions/expire_suspensions.py")
_SEND = Place(folder="engine/suspensions/send_signal.py")
_TOKEN = Place(folder="engine/suspensions/verify_waitpoint_token.py")

OF_DURABLE: Final = (
    Mutant(
        "a call gets its key when it is awaited",
        ("G4",),
        (
            Edit(
                Place(folder="worker/durable/calls.py"),
                find="return StepRun($durable, $durable.allot($step.name, key), $step, $args)"
                ".result()",
                put="""async def at_await() -> Any:
            run = StepRun($durable, $durable.allot($step.name, key), $step, $args)
            return await run.result()

        return at_await()""",
            ),
        ),
        proofs=("chaos_steps",),
    ),
    Mutant(
        "a step returns before it is recorded",
        ("G4",),
        (
            Edit(
                Place(function="AttemptJournal.record"),
                find="return self._write($everything)",
                put="import asyncio; self._lost = asyncio.create_task(self._write($everything)); "
                "return asyncio.sleep(0)",
            ),
        ),
        proofs=("chaos_steps",),
    ),
    Mutant(
        "entries are recorded without the lease",
        ("G3",),
        (
            Edit(
                Place(folder="engine/lifecycle/sql/entries.py"),
                find="""WHERE (SELECT count(*) FROM {leases}) = cardinality(%(lease_id)s::uuid[])
        OR caller IN (SELECT ordinal FROM {leases})""",
                put="WHERE true",
            ),
        ),
        proofs=("zombie",),
        tests=("engine/journal/test_record_entries.py",),
    ),
    Mutant(
        "signals are decided on before the lock",
        ("G10",),
        (
            Edit(
                _SEND,
                find="locked = await lock_executions(conn, storable) if storable else []",
                put="locked = storable",
            ),
            Edit(
                _SEND,
                find="return {places[$row.ordinal - 1]: $row for $row in $rows}",
                put="""await lock_executions(conn, storable)
    return {places[$row.ordinal - 1]: $row for $row in $rows}""",
            ),
        ),
        proofs=("interleave", "suspend_wake"),
    ),
    Mutant(
        "a suspension does not lock the joins that it waits for",
        ("G10",),
        (
            Edit(
                Place(folder="engine/suspensions/suspend.py"),
                find="ORDER BY $g.partition_key, $g.group_id FOR NO KEY UPDATE OF g",
                put="ORDER BY $g.partition_key, $g.group_id",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "a timeout is applied to what was due before the lock",
        ("G10",),
        (
            Edit(
                _TIMED_OUT,
                find="due = await still_due(conn, await lock_executions(conn, named,"
                " pass_over_locked=True))",
                put="""due = await still_due(conn, named)
    await lock_executions(conn, named)""",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "a signal with a token is decided on before the lock",
        ("G10",),
        (
            Edit(
                Place(folder="engine/suspensions/deliver_signal.py"),
                find="""if not await lock_executions(conn, [execution_id]):
        raise NotFound("execution", execution_id)""",
                put="",
            ),
            Edit(
                Place(folder="engine/suspensions/deliver_signal.py"),
                find="ORDER BY w.waitpoint_id FOR NO KEY UPDATE OF w",
                put="ORDER BY w.waitpoint_id",
            ),
            Edit(
                Place(folder="engine/suspensions/deliver_signal.py"),
                find="waitpoint = locked.pop(waitpoint_id)",
                put="""await lock_executions(conn, [execution_id])
    waitpoint = locked.pop(waitpoint_id)""",
            ),
        ),
        proofs=("interleave",),
    ),
    Mutant(
        "a resume leaves the timeout of the suspension",
        ("G10",),
        (
            Edit(
                _RESUME,
                find="timeout_at_ms = NULL, close_reason = %(close_reason)s",
                put="close_reason = %(close_reason)s",
            ),
            Edit(
                Place(folder="db/migrations"),
                find="closed_at_ms IS NULL OR timeout_at_ms IS NULL)",
                put="true)",
            ),
            Edit(
                _TIMED_OUT,
                find="""WHERE {open_suspension("named.partition_key", "named.execution_id")}
          AND s.timeout_at_ms + 0 <= ff.now_ms() AND e.lifecycle_phase = 'suspended'""",
                put="""WHERE (s.partition_key, s.execution_id)
            = (named.partition_key, named.execution_id)
          AND s.timeout_at_ms + 0 <= ff.now_ms()""",
            ),
        ),
        proofs=("suspend_wake",),
        tests=("engine/suspensions/test_expire_suspensions.py",),
    ),
    Mutant(
        "signals that came before the suspension do not count",
        ("G10",),
        (
            Edit(
                Place(function="Plans._signals"),
                find="extend(decode_signals($row.signals))",
                put="extend(decode_signals($row.signals)[:0])",
            ),
        ),
        proofs=("model_stateful",),
        tests=("engine/suspensions/test_suspend.py",),
    ),
    Mutant(
        "a resume leaves waitpoints open that the suspension did not use",
        ("G10",),
        (
            Edit(
                _RESUME,
                find="AND ($w.state <> 'pending' OR NOT $s.keeps_waitpoints)",
                put="AND $w.state <> 'pending'",
            ),
        ),
        proofs=("model_stateful",),
    ),
    Mutant(
        "a token is compared only with the stored one",
        ("S4",),
        (Edit(_TOKEN, find="if not known.verifies:\n        raise TokenExpired", put=""),),
        proofs=("tokens",),
        tests=("engine/suspensions/test_deliver_refused.py",),
    ),
)
