"""Rights of roles: what `ff migrate` grants, and grants again in every run."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.grant_roles import Granted
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import ConfigError, PermissionDenied
from flowfabric.states import RoleAccess
from tests import given

pytestmark = pytest.mark.session("logs in as other roles; PgBouncer is asked for one user")

WORKER = f"ff_test_worker_{os.getpid()}"
READER = f"ff_test_reader_{os.getpid()}"

CREATE = "CREATE ROLE {} LOGIN PASSWORD 'x'"
PRIVILEGES = """
SELECT c.relname::text AS name, string_agg(p, ' ' ORDER BY p) AS rights
  FROM pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                                'TRIGGER']) AS p
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'v')
   AND has_table_privilege($1, c.oid, p)
 GROUP BY c.relname
"""


@pytest.fixture
async def owner(ff_dsn: str) -> AsyncGenerator[Connection]:
    """The owner of the schema, beside two roles that may log in."""
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        for role in (WORKER, READER):
            await conn.execute(CREATE.format(role))
        yield conn
    finally:
        for role in (WORKER, READER):
            await conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await conn.close()


def of(dsn: str, role: str) -> str:
    """The DSN of another role."""
    place = urlsplit(dsn).netloc.rpartition("@")[2]
    return urlunsplit(urlsplit(dsn)._replace(netloc=f"{role}:x@{place}"))


VIEWS = ("execution", "settled_flow", "unused_grant", "worker_liveness")


async def rights(owner: Connection, role: str) -> dict[str, str]:
    return {row["name"]: row["rights"] for row in await owner.fetch(PRIVILEGES, role)}


async def test_a_runtime_role_may_change_rows_and_only_read_the_ledgers(
    ff_dsn: str, owner: Connection
) -> None:
    done = await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME})

    assert done.roles == [Granted(WORKER, RoleAccess.RUNTIME)]
    found = await rights(owner, WORKER)
    ledgers = {name for name in found if name.endswith("_annotation")}
    assert {found.pop(name) for name in (*ledgers, *VIEWS)} == {"SELECT"}
    assert set(found.values()) == {"DELETE INSERT SELECT UPDATE"}
    assert "exec_core" in found


async def test_a_read_role_may_read_everything_but_secrets(ff_dsn: str, owner: Connection) -> None:
    await migrate(ff_dsn, roles={READER: RoleAccess.READ})

    found = await rights(owner, READER)
    assert set(found.values()) == {"SELECT"}
    assert "waitpoint_hmac" not in found
    secret = "SELECT has_column_privilege($1, 'ff.waitpoint_hmac', $2, 'SELECT')"
    assert await owner.fetchval(secret, READER, "kid")
    assert not await owner.fetchval(secret, READER, "secret")


async def test_every_run_grants_again_also_what_is_new(ff_dsn: str, owner: Connection) -> None:
    await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME, READER: RoleAccess.READ})
    await owner.execute("CREATE TABLE ff.new_here (number integer)")

    await migrate(ff_dsn)

    assert (await rights(owner, WORKER))["new_here"] == "DELETE INSERT SELECT UPDATE"
    assert (await rights(owner, READER))["new_here"] == "SELECT"


async def test_a_role_that_is_given_less_loses_the_rest(ff_dsn: str, owner: Connection) -> None:
    await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME})
    await owner.execute(
        f"GRANT ALL ON ff.exec_core TO {WORKER}; GRANT ALL ON SCHEMA ff TO {WORKER}"
    )

    await migrate(ff_dsn, roles={WORKER: RoleAccess.READ})

    assert set((await rights(owner, WORKER)).values()) == {"SELECT"}
    create = "SELECT has_schema_privilege($1, 'ff', 'CREATE')"
    assert not await owner.fetchval(create, WORKER)


async def test_a_role_that_is_gone_does_not_stop_a_later_run(
    ff_dsn: str, owner: Connection
) -> None:
    await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME, READER: RoleAccess.READ})
    await owner.execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}")

    done = await migrate(ff_dsn)

    assert done.roles == [Granted(WORKER, RoleAccess.RUNTIME)]
    await owner.execute(CREATE.format(READER))


@pytest.mark.parametrize(
    ("role", "why"),
    [("nobody_of_that_name", "does not exist"), ("postgres", "is a superuser")],
)
async def test_a_role_that_cannot_be_given_less_is_refused_and_nothing_is_granted(
    ff_dsn: str, owner: Connection, role: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{role}' {why}"):
        await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME, role: RoleAccess.READ})

    assert await rights(owner, WORKER) == {}


async def test_the_name_of_a_role_is_quoted(ff_dsn: str, owner: Connection) -> None:
    name = f'Worker "{os.getpid()}"; DROP SCHEMA ff'
    quoted = '"' + name.replace('"', '""') + '"'
    await owner.execute(CREATE.format(quoted))
    try:
        await migrate(ff_dsn, roles={name: RoleAccess.READ})
        assert await rights(owner, name)
    finally:
        await owner.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


async def test_a_role_that_may_only_read_connects_and_is_told_what_it_may_not(
    ff_dsn: str, owner: Connection
) -> None:
    await migrate(ff_dsn, roles={READER: RoleAccess.READ})

    engine = await Engine.connect(DatabaseConfig(dsn=of(ff_dsn, READER)))
    try:
        assert await engine.count_by_lane() == []
        with pytest.raises(PermissionDenied, match="may only read; use a runtime role") as error:
            await engine.create_execution([given.new()])
        assert str(error.value).startswith(f"role {READER!r} may not do this: permission denied")
    finally:
        await engine.close()


async def test_a_role_that_does_not_own_the_schema_cannot_migrate(
    ff_dsn: str, owner: Connection
) -> None:
    await migrate(ff_dsn, roles={WORKER: RoleAccess.RUNTIME})
    owner_name = await owner.fetchval("SELECT current_user")

    with pytest.raises(PermissionDenied) as error:
        await migrate(of(ff_dsn, WORKER), roles={READER: RoleAccess.READ})

    assert str(error.value) == (
        f"role {WORKER!r} does not own schema ff; migrate as its owner {owner_name!r}"
    )
    assert await rights(owner, READER) == {}


async def test_a_role_without_rights_is_told_which_it_needs(
    ff_dsn: str, empty_dsn: str, owner: Connection
) -> None:
    with pytest.raises(PermissionDenied, match="--read-role"):
        await Engine.connect(DatabaseConfig(dsn=of(ff_dsn, WORKER)))
    with pytest.raises(PermissionDenied, match=r"GRANT CREATE ON DATABASE \w+ TO"):
        await migrate(of(empty_dsn, WORKER))


async def test_functions_run_with_the_rights_of_the_caller_and_a_fixed_search_path(
    owner: Connection,
) -> None:
    unsafe = await owner.fetch(
        "SELECT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
        " WHERE p.pronamespace = 'ff'::regnamespace"
        "   AND (p.prosecdef OR l.lanname = 'plpgsql' AND NOT EXISTS ("
        "        SELECT FROM unnest(p.proconfig) s WHERE s = 'search_path=pg_catalog, pg_temp'))"
    )

    assert [row["proname"] for row in unsafe] == []


async def test_what_others_put_into_the_public_schema_is_not_called_instead(
    ff_dsn: str, owner: Connection
) -> None:
    """A function whose arguments fit better than those of the one in Postgres."""
    await owner.execute(
        "CREATE FUNCTION public.format(text, smallint, uuid) RETURNS text LANGUAGE plpgsql"
        " AS $$BEGIN RAISE EXCEPTION 'not yours'; END$$"
    )
    theirs = await asyncpg.connect(ff_dsn)
    try:
        assert await theirs.fetchval("SELECT ff.submit('job')")
    finally:
        await theirs.close()
