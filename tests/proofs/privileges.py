"""S13: the runtime role does everything but change the schema; the read role only reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from flowfabric import App, Client, Ctx
from flowfabric.client.open_engine import on_database
from flowfabric.config import DatabaseConfig
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.states import RoleAccess
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.tour import TOUR, settle, unclassified

PASSWORD: Final = "of no secret"
OTHER: Final = """
CREATE SCHEMA other;
CREATE TABLE other.payroll (salary integer);
CREATE FUNCTION other.pay() RETURNS void LANGUAGE sql SECURITY DEFINER
    AS 'DELETE FROM other.payroll';
"""
"""What somebody else keeps in the same database."""

NOT_FOR_RUNTIME: Final = (
    "CREATE TABLE ff.mine (x integer)",
    "CREATE UNLOGGED TABLE ff.mine (x integer)",
    "CREATE TABLE ff.mine AS SELECT 1",
    "CREATE VIEW ff.mine AS SELECT 1",
    "CREATE MATERIALIZED VIEW ff.mine AS SELECT 1",
    "CREATE SEQUENCE ff.mine",
    "CREATE TYPE ff.mine AS (x integer)",
    "CREATE DOMAIN ff.mine AS text",
    "CREATE FUNCTION ff.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE INDEX mine ON ff.exec_core (priority)",
    "CREATE TRIGGER mine BEFORE UPDATE ON ff.exec_core FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE mine AS ON DELETE TO ff.exec_core DO INSTEAD NOTHING",
    "CREATE POLICY mine ON ff.exec_core",
    "CREATE SCHEMA mine",
    "CREATE TABLE public.mine (x integer)",
    "CREATE ROLE mine",
    "ALTER TABLE ff.exec_core ADD COLUMN mine integer",
    "ALTER TABLE ff.exec_core DROP CONSTRAINT exec_core_lifecycle_phase",
    "ALTER TABLE ff.exec_core DISABLE TRIGGER ALL",
    "ALTER TABLE ff.exec_core SET (fillfactor = 10)",
    "ALTER TABLE ff.exec_core OWNER TO CURRENT_USER",
    "ALTER SCHEMA ff RENAME TO gg",
    "ALTER FUNCTION ff.now_ms() COST 5",
    "CREATE OR REPLACE FUNCTION ff.now_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
    "DROP TABLE ff.exec_core",
    "DROP VIEW ff.settled_flow",
    "DROP FUNCTION ff.submit",
    "DROP INDEX ff.route_lane",
    "DROP SCHEMA ff CASCADE",
    "TRUNCATE ff.exec_core",
    "COMMENT ON TABLE ff.exec_core IS 'mine'",
    "CLUSTER ff.exec_core USING exec_core_pkey",
    "REINDEX TABLE ff.exec_core",
    "INSERT INTO ff.migration_annotation VALUES (9, 'mine', 0, true, '')",
    "DELETE FROM ff.migration_annotation",
    "UPDATE ff.function_annotation SET checksum = ''",
    "INSERT INTO ff.role_annotation VALUES ('mine', 'runtime')",
    "SELECT * FROM other.payroll",
    "INSERT INTO other.payroll VALUES (1)",
    "SELECT other.pay()",
    "SELECT pg_read_file('postgresql.conf')",
    "COPY ff.exec_core TO '/tmp/mine'",
    "SET ROLE postgres",
)
"""Every kind of DDL, what empties a table, the ledgers of migrations, and another schema."""

NOT_FOR_READERS: Final = (
    "SELECT secret FROM ff.waitpoint_hmac",
    "SELECT ff.submit('job')",
    "SELECT FROM ff.exec_core FOR UPDATE",
)

app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    await ctx.progress(50)
    return 2 * number


@app.task("parent")
async def parent(ctx: Ctx, number: int) -> int:
    """Waits for children, and writes in a transaction of its own."""
    doubled = await ctx.gather([double.call(number), double.call(number + 1)])
    conn = await ctx.transaction()
    await conn.execute("SELECT 1")
    return sum(doubled)


@asynccontextmanager
async def _roles(dsn: str) -> AsyncGenerator[tuple[str, str]]:
    """The DSNs of a runtime role and a read role, which `ff migrate` has granted to."""
    names = [f"ff_proof_{access}_{os.getpid()}" for access in RoleAccess]
    owner = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        await owner.execute(OTHER)
        for name in names:
            await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        await migrate(dsn, roles=dict(zip(names, RoleAccess, strict=True)))
        yield _as(dsn, names[0]), _as(dsn, names[1])
    finally:
        for name in names:
            await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
        await owner.close()


def _as(dsn: str, role: str) -> str:
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}:{PASSWORD.replace(' ', '%20')}@{place}"))


def _denied(error: BaseException | None) -> bool:
    """Was it refused for want of a right?"""
    while error is not None:
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            return True
        error = error.__cause__
    return False


async def _outcome(call: Any) -> str:
    """How a call ended: `denied`, `refused` for another reason, or `done`."""
    try:
        answer = await call
    except FlowFabricError as error:
        return "denied" if _denied(error) else "refused"
    refusals = (
        [each for each in answer if isinstance(each, FlowFabricError)]
        if isinstance(answer, list)
        else []
    )
    return "refused" if refusals else "done"


async def _tour(owner: Engine, engine: Engine, access: RoleAccess) -> dict[str, str]:
    """How each operation ends for this role; a role that writes gets a new place for each."""
    outcomes: dict[str, str] = {}
    place = await settle(owner, f"place-{access}")
    for number, (name, stop) in enumerate(TOUR.items()):
        if access is RoleAccess.RUNTIME and stop.access == "write":
            place = await settle(owner, f"place-{number}")
        outcomes[name] = await _outcome(stop.call(engine, place))
    return outcomes


async def _refused(conn: Connection, statements: Sequence[str]) -> list[str]:
    """The statements that this connection was *not* kept from."""
    allowed: list[str] = []
    for statement in statements:
        undone = conn.transaction()
        await undone.start()
        try:
            await conn.execute(statement)
            allowed.append(statement)
        except asyncpg.PostgresError as error:
            if not isinstance(error, asyncpg.InsufficientPrivilegeError):
                allowed.append(f"{statement}: {error}")
        finally:
            await undone.rollback()
    return allowed


async def _story(dsn: str) -> tuple[int, str]:
    """How many results a client saw of a worker with flows and children; what went wrong."""
    right = 0
    try:
        async with await Client.connect(dsn) as client, app.worker(dsn=dsn):
            right = await _served(client)
            for sweep in SWEEPS:
                await sweep_all(on_database(client.engine).pool, sweep)
    except FlowFabricError as error:
        return right, f"; {error!r}"[:200]
    return right, ""


async def _served(client: Client) -> int:
    handles = [await client.submit(parent.call(number)) for number in range(5)]
    flow = app.flow("pair")
    flow.add(double.call(2)).after(flow.add(double.call(1)))
    started = await client.start(flow)
    results = [await handle.result(timeout=30) for handle in handles]
    await started.result(timeout=30)
    return sum(result == 2 * (2 * number + 1) for number, result in enumerate(results))


async def _prove(dsn: str) -> list[Figure]:
    owner = await Engine.connect(DatabaseConfig(dsn=dsn))
    try:
        async with _roles(dsn) as (runtime, read):
            return [*await _runtime(owner, runtime), *await _read(owner, read)]
    finally:
        await owner.close()


async def _runtime(owner: Engine, dsn: str) -> list[Figure]:
    await owner.seed_waitpoint_hmac_secret("k0", "ef" * 32)
    await owner.register_lanes(["aside"], registered_by="proof")
    right, trouble = await _story(dsn)
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    conn = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        outcomes = await _tour(owner, engine, RoleAccess.RUNTIME)
        allowed = await _refused(conn, NOT_FOR_RUNTIME)
    finally:
        await conn.close()
        await engine.close()
    denied = sorted(name for name, outcome in outcomes.items() if outcome == "denied")
    done = sum(outcome == "done" for outcome in outcomes.values())
    return [
        Figure(
            promise="S13",
            what="operations of Engine that are not on the tour",
            reached=f"{len(unclassified())} {sorted(unclassified()) or ''}".strip(),
            target="0",
            held=not unclassified(),
        ),
        Figure(
            promise="S13",
            what="runtime role: handlers with children, flows and transactions that ended rightly",
            reached=f"{right} of 5{trouble}",
            target="all",
            held=right == 5 and not trouble,
        ),
        Figure(
            promise="S13",
            what="runtime role: operations that it may call",
            reached=f"{len(outcomes) - len(denied)} of {len(outcomes)} ({done} done)"
            + "".join(f"; {each}" for each in denied),
            target="all",
            held=not denied and done > 0.8 * len(outcomes),
        ),
        Figure(
            promise="S13",
            what="runtime role: DDL, TRUNCATE, ledgers and another schema",
            reached=f"{len(NOT_FOR_RUNTIME) - len(allowed)} of {len(NOT_FOR_RUNTIME)} denied"
            + "".join(f"; {each}" for each in allowed),
            target="all",
            held=not allowed,
        ),
    ]


async def _read(owner: Engine, dsn: str) -> list[Figure]:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, listen=False))
    conn = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        outcomes = await _tour(owner, engine, RoleAccess.READ)
        allowed = await _refused(conn, (*NOT_FOR_RUNTIME, *NOT_FOR_READERS))
    finally:
        await conn.close()
        await engine.close()
    by_access = {
        access: {name: outcomes[name] for name, stop in TOUR.items() if stop.access == access}
        for access in ("read", "write")
    }
    kept_from = sorted(name for name, how in by_access["read"].items() if how == "denied")
    written = sorted(name for name, how in by_access["write"].items() if how != "denied")
    return [
        Figure(
            promise="S13",
            what="read role: read operations that it may call",
            reached=f"{len(by_access['read']) - len(kept_from)} of {len(by_access['read'])}"
            f" {kept_from or ''}",
            target="all",
            held=not kept_from,
        ),
        Figure(
            promise="S13",
            what="read role: operations that write, and statements of its own",
            reached=f"{len(by_access['write']) - len(written)} of {len(by_access['write'])} denied"
            + "".join(f"; {each}" for each in (*written, *allowed)),
            target="all",
            held=not written and not allowed,
        ),
    ]


def full(arena: Arena) -> Sequence[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_prove(dsn))


PRIVILEGES: Final = Proof("privileges", quick=full, full=full, claims=("S13",))
