"""Checks of a database: version, durability settings, schema, sweeps and notifications."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from typing import Final, LiteralString

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.apply_functions import differing_functions
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
SELECT (SELECT count(*) FROM ff.exec_core
         WHERE lifecycle_phase = 'active' AND lease_expires_at_ms < ff.now_ms() - 60000) AS leases,
       (SELECT count(*) FROM ff.exec_core WHERE delay_until_ms < ff.now_ms() - 60000) AS delayed
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


class Verdict(StrEnum):
    """How a check ended; `fail` means that the database cannot be used safely."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check; `advice` says what to do, or what would be better still."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


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


class _Unreadable(msgspec.Struct, frozen=True):
    number: int
    ids: list[str]


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
            findings += [await _functions(conn), await _stored_values(conn)]
        if schema is not Verdict.FAIL:
            findings += [await _sweeps(conn), await _privileges(conn)]
        findings.append(_polling() if config.pooler else await _listen(conn))
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
    overdue = await fetch_one(conn, OVERDUE, _Overdue)
    return _check(
        "sweeps",
        f"{overdue.leases} expired leases, {overdue.delayed} overdue delays",
        Verdict.WARN if overdue.leases or overdue.delayed else Verdict.OK,
        "No worker handles them: start one; every worker runs the sweeps.",
    )


async def _stored_values(conn: Connection) -> Finding:
    found = await fetch_one(conn, UNREADABLE, _Unreadable, last_ms=LAST_MS)
    more = ", …" if found.number > len(found.ids) else ""
    listed = f"{found.number} executions with values out of range: {', '.join(found.ids)}{more}"
    return _check(
        "stored values",
        listed if found.number else "all in range",
        Verdict.WARN if found.number else Verdict.OK,
        "Another writer stored them. They run with defaults for what cannot be read: "
        "cancel them and submit them again, or correct the policy in ff.exec_body.",
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


def _polling() -> Finding:
    """LISTEN through a pooler would stay on a connection of other clients."""
    return Finding(check="wake-ups", verdict=Verdict.OK, found="polling, behind a pooler")


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
