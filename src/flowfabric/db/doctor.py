"""Checks of a database: version, durability settings, schema, sweeps and notifications."""

from __future__ import annotations

import asyncio
import time
from typing import Final, LiteralString

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.apply_functions import differing_functions
from flowfabric.db.doctor_pooler import behind_pooler
from flowfabric.db.finding import Finding as Finding
from flowfabric.db.finding import Verdict as Verdict
from flowfabric.db.listen import CHANNEL
from flowfabric.db.migrate import applied, needed_version
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.instants import LAST_MS

EXAMINE: Final[LiteralString] = """
-- db.doctor: settings and activity
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_num,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') AS autovacuum,
       current_setting('server_encoding') AS server_encoding,
       current_setting('max_connections')::integer AS max_connections,
       current_setting('max_locks_per_transaction')::integer AS max_locks,
       pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
       pg_is_in_recovery() AS standby,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
          FROM pg_stat_activity WHERE datname = current_database()) AS oldest_transaction,
       extract(epoch FROM clock_timestamp())::float8 AS clock
"""

OVERDUE: Final[LiteralString] = """
-- db.doctor: rows that the sweeps should have moved
SELECT (SELECT count(*) FROM ff.lease
         WHERE lease_expires_at_ms < ff.now_ms() - 60000) AS leases,
       (SELECT count(*) FROM ff.exec_core WHERE delay_until_ms < ff.now_ms() - 60000) AS delayed,
       (SELECT worker_instance_id FROM ff.sweeper
         WHERE NOT standby AND held_until_ms > ff.now_ms()) AS swept_by,
       (SELECT count(*) FROM ff.worker_registry
         WHERE last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()) AS workers
"""

# Policies are compared as text: as JSON, 1500.0 is equal to 1500, and only the latter is valid.
UNREADABLE: Final[LiteralString] = """
-- db.doctor: unfinished executions with values that no entry point accepts
WITH unfinished AS (
    SELECT format('{fp:%%s}:%%s', e.partition_key, e.execution_id) AS id, b.policy::text AS policy,
           jsonb_typeof(e.tags) <> 'object' OR coalesce(
               greatest(e.delay_until_ms, e.not_before_ms, e.deadline_at_ms) > %(last_ms)s::bigint,
               false) AS strange
      FROM ff.exec_core e JOIN ff.exec_body b USING (partition_key, execution_id)
     WHERE e.lifecycle_phase <> 'terminal' LIMIT 100000
), faulty AS (        -- each policy is checked once, however many executions have it
    SELECT policy FROM (SELECT DISTINCT policy FROM unfinished) AS given
     WHERE ff.policy_fault(policy::jsonb) IS NOT NULL
)
SELECT count(*) AS number, coalesce((array_agg(id ORDER BY id))[1:5], '{}') AS ids
  FROM unfinished WHERE strange OR policy IN (SELECT policy FROM faulty)
"""

MISPLACED: Final[LiteralString] = """
-- db.doctor: executions that are claimable, queued and leased in a combination that cannot be
WITH unfinished AS (  -- a claimable execution is in ff.ready or in ff.lease, any other in neither
    SELECT e.partition_key, e.execution_id, e.eligibility_state = 'eligible_now' AS claimable,
           EXISTS (SELECT FROM ff.ready r
                    WHERE (r.route_id, r.priority, r.created_at_ms, r.execution_id, r.partition_key)
                        = (e.route_id, e.priority, e.created_at_ms, e.execution_id, e.partition_key)
                  ) AS queued,
           EXISTS (SELECT FROM ff.lease l
                    WHERE (l.partition_key, l.execution_id, l.lease_epoch)
                        = (e.partition_key, e.execution_id, e.lease_epoch + 1)) AS leased
      FROM ff.exec_core e WHERE e.lifecycle_phase <> 'terminal' LIMIT 100000
), misplaced AS (
    SELECT partition_key, execution_id FROM unfinished
     WHERE claimable::integer <> queued::integer + leased::integer
     UNION
    SELECT r.partition_key, r.execution_id FROM (SELECT * FROM ff.ready LIMIT 100000) AS r
     WHERE NOT EXISTS (SELECT FROM ff.exec_core e
                        WHERE (e.partition_key, e.execution_id) = (r.partition_key, r.execution_id)
                          AND (e.route_id, e.priority, e.created_at_ms)
                            = (r.route_id, r.priority, r.created_at_ms)
                          AND e.eligibility_state = 'eligible_now')
     UNION
    SELECT l.partition_key, l.execution_id FROM (SELECT * FROM ff.lease LIMIT 100000) AS l
     WHERE NOT EXISTS (SELECT FROM ff.exec_core e
                        WHERE (e.partition_key, e.execution_id) = (l.partition_key, l.execution_id)
                          AND e.lease_epoch = l.lease_epoch - 1
                          AND e.eligibility_state = 'eligible_now')
), named AS (
    SELECT format('{fp:%%s}:%%s', partition_key, execution_id) AS id FROM misplaced
)
SELECT count(*) AS number, coalesce((array_agg(id ORDER BY id))[1:5], '{}') AS ids FROM named
"""

PRIVILEGES: Final[LiteralString] = """
-- db.doctor: may this role change the schema?
SELECT current_user::text AS name, r.rolsuper AS superuser,
       pg_has_role(r.oid, n.nspowner, 'USAGE') AS owner
  FROM pg_roles r, pg_namespace n
 WHERE r.rolname = current_user AND n.nspname = 'ff'
"""

NOTIFY: Final[LiteralString] = """
-- db.doctor: does a notification arrive?
SELECT pg_notify('ff_wake', 'doctor')
"""


class _Facts(msgspec.Struct, frozen=True):
    version: str
    version_num: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    server_encoding: str
    max_connections: int
    max_locks: int
    shared_buffers: int
    standby: bool
    connections: int
    oldest_transaction: float
    clock: float


class _Overdue(msgspec.Struct, frozen=True):
    leases: int
    delayed: int
    swept_by: str | None
    workers: int


class _Executions(msgspec.Struct, frozen=True):
    number: int
    ids: list[str]

    @property
    def listed(self) -> str:
        """The first five, and a sign that there are more."""
        return ", ".join(self.ids) + (", …" if self.number > len(self.ids) else "")


class _Role(msgspec.Struct, frozen=True):
    name: str
    superuser: bool
    owner: bool


async def examine(dsn: str) -> list[Finding]:
    """The results of all checks; raises only if the database cannot be reached."""
    config = DatabaseConfig(dsn=dsn)
    conn = await connect(config, role="doctor")
    try:
        facts = await fetch_one(conn, EXAMINE, _Facts)
        here = time.time()
        findings = [*_server(facts), *_durability(facts), *_capacity(facts)]
        findings += [_clock(facts, here), await _schema(conn)]
        schema = findings[-1].verdict
        if schema is Verdict.OK:  # a newer schema has functions of a newer release
            findings += [await _functions(conn), await _stored_values(conn), await _queue(conn)]
        if schema is not Verdict.FAIL:
            findings += [await _sweeps(conn), await _privileges(conn)]
        findings += await behind_pooler(conn) if config.pooler else [await _listen(conn)]
        return findings
    finally:
        await conn.close()


def _server(facts: _Facts) -> list[Finding]:
    return [
        _check(
            "postgres version",
            facts.version,
            Verdict.OK if facts.version_num >= 150000 else Verdict.FAIL,
            "FlowFabric needs PostgreSQL 15 or newer.",
        ),
        _check(
            "role",
            "standby" if facts.standby else "primary",
            Verdict.FAIL if facts.standby else Verdict.OK,
            "Connect to the primary: target_session_attrs=read-write.",
        ),
        _check(
            "server_encoding",
            facts.server_encoding,
            Verdict.OK if facts.server_encoding == "UTF8" else Verdict.FAIL,
            "Create the database with ENCODING 'UTF8'.",
        ),
    ]


def _durability(facts: _Facts) -> list[Finding]:
    return [
        _check(
            "fsync",
            facts.fsync,
            Verdict.OK if facts.fsync == "on" else Verdict.FAIL,
            "A crash loses committed work: set fsync = on.",
        ),
        _check(
            "full_page_writes",
            facts.full_page_writes,
            Verdict.OK if facts.full_page_writes == "on" else Verdict.FAIL,
            "A crash can corrupt pages: set full_page_writes = on.",
        ),
        _check(
            "synchronous_commit",
            facts.synchronous_commit,
            Verdict.FAIL if facts.synchronous_commit == "off" else Verdict.OK,
            "A crash loses the last committed work: set synchronous_commit = on.",
        ),
    ]


def _capacity(facts: _Facts) -> list[Finding]:
    megabytes = facts.shared_buffers // 2**20
    free = facts.max_connections - facts.connections
    return [
        _check(
            "autovacuum",
            facts.autovacuum,
            Verdict.OK if facts.autovacuum == "on" else Verdict.FAIL,
            "Tables and indexes grow without limit: set autovacuum = on.",
        ),
        _check(
            "shared_buffers",
            f"{megabytes} MB",
            Verdict.OK if megabytes >= 256 else Verdict.WARN,
            "Use about a quarter of the machine's memory; the default of 128 MB is small.",
        ),
        _check(
            "connections",
            f"{facts.connections} of {facts.max_connections}",
            Verdict.OK if free >= 20 else Verdict.WARN,
            "A worker process uses up to 8 connections: raise max_connections or use a pooler.",
        ),
        _check(
            "max_locks_per_transaction",
            str(facts.max_locks),
            Verdict.OK if facts.max_locks >= 64 else Verdict.WARN,
            "Set max_locks_per_transaction to 64 or more.",
        ),
        _check(
            "oldest transaction",
            f"{facts.oldest_transaction:.0f} s",
            Verdict.OK if facts.oldest_transaction < 600 else Verdict.WARN,
            "It prevents vacuum from removing dead rows: end it (see pg_stat_activity).",
        ),
    ]


def _clock(facts: _Facts, here: float) -> Finding:
    skew = facts.clock - here
    return _check(
        "clock",
        f"{skew:+.1f} s against this machine",
        Verdict.OK if abs(skew) < 5 else Verdict.WARN,
        "The database's clock decides when work is due: compare the clocks of both machines.",
    )


async def _schema(conn: Connection) -> Finding:
    ledger = await applied(conn)
    needed = needed_version()
    found = ledger[-1].version if ledger else 0
    if found < needed:
        return Finding(
            check="schema",
            verdict=Verdict.FAIL,
            found=f"version {found} of {needed}" if found else "absent",
            advice="Run: ff migrate",
        )
    verdict = Verdict.OK if found == needed else Verdict.WARN
    return _check(
        "schema",
        f"version {found}",
        verdict,
        "The schema is newer than this ff: upgrade flowfabric.",
    )


async def _functions(conn: Connection) -> Finding:
    differ = await differing_functions(conn)
    return _check(
        "functions",
        f"differ from this version: {', '.join(differ)}" if differ else "as in this version",
        Verdict.WARN if differ else Verdict.OK,
        "Run: ff migrate",
    )


async def _sweeps(conn: Connection) -> Finding:
    """A database without workers needs no sweeps as long as nothing is overdue."""
    found = await fetch_one(conn, OVERDUE, _Overdue)
    late = found.leases or found.delayed
    missing = found.workers and not found.swept_by
    return _check(
        "sweeps",
        f"run by {found.swept_by or 'no process'}; "
        f"{found.leases} expired leases, {found.delayed} overdue delays",
        Verdict.WARN if late or missing else Verdict.OK,
        "No worker handles them: start one; one of the workers without reconcile=False sweeps."
        if late
        else "Every worker has reconcile=False: start one without.",
    )


async def _stored_values(conn: Connection) -> Finding:
    found = await fetch_one(conn, UNREADABLE, _Executions, last_ms=LAST_MS)
    return _check(
        "stored values",
        f"{found.number} executions with values out of range: {found.listed}"
        if found.number
        else "all in range",
        Verdict.WARN if found.number else Verdict.OK,
        "Another writer stored them. They run with defaults for what cannot be read: "
        "cancel them and submit them again, or correct the policy in ff.exec_body.",
    )


async def _queue(conn: Connection) -> Finding:
    found = await fetch_one(conn, MISPLACED, _Executions)
    return _check(
        "queue",
        f"{found.number} executions whose state contradicts the queue: {found.listed}"
        if found.number
        else "as the executions say",
        Verdict.WARN if found.number else Verdict.OK,
        "Another writer changed ff.exec_core, ff.ready or ff.lease. Executions that are claimable "
        "but not queued never run: cancel the named executions and replay them.",
    )


async def _privileges(conn: Connection) -> Finding:
    """A hint and no warning: `ff migrate` needs the owner, and many run everything as one role."""
    role = await fetch_one(conn, PRIVILEGES, _Role)
    if not (role.superuser or role.owner):
        return Finding(check="privileges", verdict=Verdict.OK, found=f"{role.name}: only data")
    return Finding(
        check="privileges",
        verdict=Verdict.OK,
        found=f"{role.name} {'is a superuser' if role.superuser else 'owns the schema'}",
        advice="Workers and clients need less: ff migrate --runtime-role NAME.",
    )


async def _listen(conn: Connection) -> Finding:
    arrived = asyncio.Event()
    await conn.add_listener(CHANNEL, lambda _conn, _pid, _channel, _payload: arrived.set())
    await execute(conn, NOTIFY)
    try:
        async with asyncio.timeout(2.0):
            await arrived.wait()
    except TimeoutError:
        return Finding(
            check="wake-ups",
            verdict=Verdict.WARN,
            found="a NOTIFY did not arrive within 2 s",
            advice="Probably a pooler in transaction mode: start workers with --pooler; they poll.",
        )
    return Finding(check="wake-ups", verdict=Verdict.OK, found="NOTIFY arrives")


def _check(check: str, found: str, verdict: Verdict, advice: str) -> Finding:
    return Finding(
        check=check, verdict=verdict, found=found, advice="" if verdict is Verdict.OK else advice
    )
