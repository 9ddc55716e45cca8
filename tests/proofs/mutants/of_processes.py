"""Faults of workers, clients, connections and sweeps."""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.place import Place

OF_WORKERS: Final = (
    Mutant(
        "a renewal counts from its answer, not from its sending",
        ("G3",),
        (
            Edit(
                Place(function="Renewer._renew"),
                find="$attempt.renewed_at, $attempt.failures = $sent_at, 0",
                put="$attempt.renewed_at, $attempt.failures = time.monotonic(), 0",
            ),
        ),
        proofs=("renewal",),
    ),
    Mutant(
        "a claim counts from its answer, not from its sending",
        ("G3",),
        (
            Edit(
                Place(folder="worker"),
                find="RunningAttempt($each, $call.begun_at, $answered_at)",
                put="RunningAttempt($each, time.monotonic(), $answered_at)",
            ),
        ),
        proofs=("renewal",),
    ),
    Mutant(
        "a drain without renewal",
        ("G18",),
        (
            Edit(
                Place(function="Worker._running"),
                find="self._stopping.set()",
                put="self._stopping.set(); renewer._stopping.set()",
            ),
        ),
        proofs=("drain",),
    ),
    Mutant(
        "a handler's statements commit apart from its completion",
        ("G4",),
        (
            Edit(
                Place(function="HandlerTransaction.complete"),
                find="[$answer] = await complete(self.$conn, [$completion])",
                put='await self.$conn.execute("COMMIT"); await self.$conn.execute("BEGIN");'
                " [$answer] = await complete(self.$conn, [$completion])",
            ),
        ),
        proofs=("chaos_crash",),
        tests=("worker/test_transaction.py",),
    ),
    Mutant(
        "a worker ends when the database is away",
        ("G19",),
        (
            Edit(
                Place(function="Claims.claim"),
                find="pause = min(pause * 2, $longest)",
                put="raise",
            ),
        ),
        proofs=("chaos_crash", "restart", "remote_chaos"),
    ),
    Mutant(
        "trouble with the database fails a handler",
        ("G19",),
        (
            Edit(
                Place(function="repeat_while_leased"),
                find="if isinstance($error, Unavailable) or not is_trouble($error): raise",
                put="raise",
            ),
            Edit(
                Place(function="outcome_of"),
                find="if $trouble is not None:",
                put="if False and $trouble is not None:",
            ),
        ),
        proofs=("restart",),
        tests=("worker/test_ctx_in_trouble.py",),
    ),
)

OF_CLIENTS: Final = (
    Mutant(
        "a client mints new ids when it repeats a submit without a key",
        ("G7",),
        (
            Edit(
                Place(function="Batcher._send_batch"),
                find="repeated(lambda: next($sends)($requests))",
                put="repeated(lambda tried=[]: next($sends)($requests if not tried and"
                " not tried.append(1) else [__import__('msgspec').structs.replace(each,"
                " execution_id=type(each.execution_id).mint())"
                " if getattr(each, 'execution_id', None) and each.idempotency_key is None"
                " else each for each in $requests]))",
            ),
        ),
        proofs=("lost_ack",),
    ),
    Mutant(
        "a submit that was not answered counts as acknowledged",
        ("G1",),
        (
            Edit(
                Place(function="Batcher._send_batch"),
                find="$answers = await repeated(lambda: next($sends)($requests))",
                put="""$answers = await self._send($requests)
        except __import__("flowfabric.errors").errors.TransportError:
            if not hasattr($requests[0], "execution_id"):
                raise
            from flowfabric.engine.lifecycle.create_execution import Created
            $answers = [Created(execution_id=each.execution_id) for each in $requests]""",
            ),
        ),
        proofs=("chaos_crash",),
    ),
    Mutant(
        "a client mints new ids when it repeats a batch",
        ("G7",),
        (
            Edit(
                Place(function="create_in_chunks"),
                find="engine.create_execution($chunk, fresh=$fresh)",
                put="engine.create_execution($chunk if $fresh else"
                " [__import__('msgspec').structs.replace(each,"
                " execution_id=type(each.execution_id).mint()) for each in $chunk], fresh=$fresh)",
            ),
        ),
        proofs=("lost_ack",),
    ),
    Mutant(
        "a client calls the ids of a repeated submit fresh",
        ("G7",),
        (
            Edit(
                Place(function="Batcher._send_batch"),
                find="repeat(self._send)",
                put="repeat(self._first_send)",
            ),
        ),
        proofs=("lost_ack",),
    ),
)

OF_THE_DATABASE: Final = (
    Mutant(
        "an operation takes a second connection while it holds one",
        ("G22",),
        (
            Edit(
                Place(function="transact"),
                find="async with pool.connection(operation) as $conn:",
                put="async with pool.connection(), pool.connection(operation) as $conn:",
            ),
        ),
        proofs=("pool",),
    ),
    Mutant(
        "who does not listen does not poll",
        ("G16",),
        (
            Edit(
                Place(function="Waiter.pause"),
                find="self._pause * random.uniform(0.5, 1.0)",
                put="3600.0",
            ),
        ),
        proofs=("notify",),
    ),
    Mutant(
        "statements are prepared behind a pooler",
        ("G16",),
        (
            Edit(
                Place(folder="db/pool.py"),
                find='return {"statement_cache_size": 0,',
                put='return {"statement_cache_size": 200,',
            ),
        ),
        proofs=("pooler",),
        tests=("worker/test_pgbouncer.py",),
    ),
    Mutant(
        "a runtime role has every right on the tables",
        ("S13",),
        (
            Edit(
                Place(folder="db/grant_roles.py"),
                find="GRANT INSERT, UPDATE, DELETE ON ff.%I TO %I",
                put="GRANT ALL ON ff.%I TO %I",
            ),
        ),
        proofs=("privileges",),
        tests=("db/test_grant_roles.py",),
    ),
)

OF_SWEEPS: Final = (
    Mutant(
        "retention deletes rows of neighbours",
        ("G1",),
        (
            Edit(
                Place(folder="db"),
                find="DELETE FROM ff.attempt $t USING unnest(old_partitions, old_ids)"
                " AS $old (partition_key, execution_id) WHERE ($t.partition_key, $t.execution_id)"
                " = ($old.partition_key, $old.execution_id)",
                put="DELETE FROM ff.attempt $t USING unnest(old_partitions, old_ids)"
                " AS $old (partition_key, execution_id) WHERE $t.partition_key"
                " = $old.partition_key",
                every=True,
            ),
        ),
        proofs=("retention",),
    ),
    Mutant(
        "retention deletes members of flows that go on",
        ("G1",),
        (
            Edit(
                Place(statement="delete_finished"),
                find="$e.flow_id IS NULL OR EXISTS",
                put="true OR EXISTS",
            ),
        ),
        proofs=("retention",),
        tests=("engine/flows/test_flow_retention.py",),
    ),
    Mutant(
        "leases that ran out are looked for too rarely",
        ("G5",),
        (
            Edit(
                Place(folder="reconcile/sweeps.py"),
                find="Sweep(expire_leases, every=1.0)",
                put="Sweep(expire_leases, every=9.0)",
            ),
        ),
        proofs=("chaos_crash",),
    ),
    Mutant(
        "a claim sorts the whole queue",
        ("G20",),
        (
            Edit(
                Place(folder="db"),
                find="ORDER BY $e.priority DESC, $e.created_at_ms, $e.execution_id LIMIT",
                put="ORDER BY $e.priority + 0 DESC, $e.created_at_ms, $e.execution_id LIMIT",
                every=True,
            ),
        ),
        proofs=("plans",),
    ),
    Mutant(
        "operators lock their batches in the opposite order",
        ("G21",),
        (
            Edit(
                Place(folder="db"),
                find="ORDER BY partition_key, execution_id) AS named",
                put="ORDER BY partition_key DESC, execution_id DESC) AS named",
                every=True,
            ),
        ),
        proofs=("interleave",),
    ),
)

OF_THE_SERVER: Final = (
    Mutant(
        "a duration that is too long is an unexpected error",
        ("S6",),
        (
            Edit(
                Place(folder="api"),
                find="except (OverflowError, ValueError):",
                put="except ZeroDivisionError:",
            ),
        ),
        proofs=("fuzz",),
        tests=("server/test_bad_input.py",),
    ),
    Mutant(
        "a token may open any number of streams",
        ("S12",),
        (
            Edit(
                Place(folder="server"),
                find="if use.streams >= self.limits.streams:",
                put="if use.streams < 0:",
            ),
        ),
        proofs=("fair_use",),
    ),
    Mutant(
        "the log of the server has the headers of requests",
        ("S11",),
        (
            Edit(
                Place(folder="server"),
                find="state.principal.label, state.request_id, )",
                put="state.request_headers, state.request_id, )",
            ),
        ),
        proofs=("canary",),
    ),
)

OF_PROCESSES: Final = (*OF_WORKERS, *OF_CLIENTS, *OF_THE_DATABASE, *OF_SWEEPS, *OF_THE_SERVER)
