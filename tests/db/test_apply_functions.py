"""Functions: one per file, applied again when the file changes, dropped when it is gone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from graphlib import CycleError
from pathlib import Path

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db import apply_functions as module
from flowfabric.db import migrate as migrate_module
from flowfabric.db.apply_functions import (
    Function,
    apply_functions,
    callees_first,
    differing_functions,
    functions,
    stored_functions,
)
from flowfabric.db.migrate import migrate, migrations
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.errors import FlowFabricError, Unavailable
from tests.all_cases import all_cases
from tests.walls.sources import bare

FILES = Path(module.__file__).parent / "functions"
KEPT = functions()


def made_up(name: str, sql: str) -> Function:
    return Function(name=name, sql=sql, checksum=hashlib.sha256(sql.encode()).hexdigest())


def answering(name: str, answer: int, *, arguments: str = "") -> Function:
    return made_up(
        name,
        f"CREATE OR REPLACE FUNCTION ff.{name}({arguments}) RETURNS integer"
        f" LANGUAGE sql RETURN {answer};",
    )


@pytest.fixture
async def conn(ff_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to a migrated database of this test's own."""
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        yield conn
    finally:
        await conn.close()


def shipped(monkeypatch: pytest.MonkeyPatch, *more: Function) -> None:
    """A package that ships these functions besides ours."""
    monkeypatch.setattr(module, "functions", lambda: callees_first([*KEPT, *more]))


# The files.


@all_cases("function", KEPT, ids=lambda function: function.name)
def test_a_file_says_what_its_one_function_is_for_and_creates_it(function: Function) -> None:
    created = re.findall(r"^CREATE\b.*", function.sql, re.MULTILINE)

    assert function.sql.startswith("-- ")
    assert [text.partition("(")[0] for text in created] == [
        f"CREATE OR REPLACE FUNCTION ff.{function.name}"
    ]
    assert function.checksum == hashlib.sha256(function.sql.encode()).hexdigest()
    assert (FILES / f"{function.name}.sql").read_text(encoding="utf-8") == function.sql


def test_every_file_is_shipped_after_the_functions_that_it_calls() -> None:
    names = [function.name for function in KEPT]

    assert sorted(names) == sorted(path.stem for path in FILES.glob("*.sql"))
    for number, function in enumerate(KEPT):
        assert function.calls & set(names) <= set(names[:number]), function.name


def test_migrations_call_no_function_of_ours() -> None:
    names = {function.name for function in KEPT}

    for migration in migrations():
        called = set(re.findall(r"\bff\.(\w+) ?\(", bare(migration.sql)))
        assert called & names == set()
        assert "FUNCTION" not in bare(migration.sql).upper().replace("DROP FUNCTION", "")


def test_functions_whose_plans_are_cached_bind_the_settings_of_the_planner() -> None:
    small = {"partition_config"}
    unbound = {
        function.name
        for function in KEPT
        if "LANGUAGE plpgsql" in function.sql
        and set(re.findall(r"\b(?:FROM|JOIN) ff\.(\w+)\b(?! ?\()", bare(function.sql))) - small
        and "SET enable_seqscan = off" not in function.sql
    }

    assert unbound == set()


def test_functions_that_call_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(CycleError):
        callees_first([made_up("a", "ff.b()"), made_up("b", "ff.a()")])


def test_a_call_in_a_comment_is_no_call() -> None:
    assert made_up("a", "-- like ff.b()\nSELECT ff.a(), ff.c (1)").calls == {"c"}


# Applying them.


async def test_a_function_whose_file_changed_is_applied_again_and_no_other(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(monkeypatch, answering("one", 1))
    assert (await migrate(ff_dsn)).functions == ["one"]

    shipped(monkeypatch, answering("one", 2))
    done = await migrate(ff_dsn)

    assert (done.migrations, done.functions, done.dropped) == ([], ["one"], [])
    assert await conn.fetchval("SELECT ff.one()") == 2
    assert (await stored_functions(conn))["one"].checksum == answering("one", 2).checksum
    assert (await migrate(ff_dsn)).functions == []


async def test_a_function_that_somebody_dropped_comes_back(ff_dsn: str, conn: Connection) -> None:
    await conn.execute("DROP FUNCTION ff.retry_allowed")
    assert await differing_functions(conn) == ["retry_allowed"]

    assert (await migrate(ff_dsn)).functions == ["retry_allowed"]
    assert await differing_functions(conn) == []


async def test_a_function_whose_file_is_gone_is_dropped_with_those_that_call_it(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = made_up(
        "caller",
        "CREATE OR REPLACE FUNCTION ff.caller() RETURNS integer LANGUAGE sql RETURN ff.callee();",
    )
    shipped(monkeypatch, answering("callee", 1), caller)
    assert (await migrate(ff_dsn)).functions == ["callee", "caller"]
    await conn.execute("CREATE FUNCTION ff.not_ours() RETURNS integer LANGUAGE sql RETURN 1")

    shipped(monkeypatch)
    assert await differing_functions(conn) == ["callee", "caller"]
    done = await migrate(ff_dsn)

    assert (done.functions, done.dropped) == ([], ["callee", "caller"])
    assert await conn.fetchval("SELECT to_regproc('ff.callee') IS NULL")
    assert await conn.fetchval("SELECT ff.not_ours()") == 1
    assert "callee" not in await stored_functions(conn)


async def test_a_function_that_somebody_else_needs_is_not_dropped(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(monkeypatch, answering("one", 1))
    await migrate(ff_dsn)
    await conn.execute("CREATE VIEW public.of_a_user AS SELECT ff.one() AS one")

    shipped(monkeypatch)
    with pytest.raises(Unavailable, match=r"cannot drop ff\.one\(\).*of_a_user") as error:
        await migrate(ff_dsn)

    assert error.value.operation == "migrate"
    assert await conn.fetchval("SELECT one FROM public.of_a_user") == 1


# Signatures.


@pytest.mark.parametrize(
    "changed",
    [
        made_up(
            "one",
            "CREATE OR REPLACE FUNCTION ff.one(a integer) RETURNS text LANGUAGE sql RETURN 'x';",
        ),
        answering("one", 1, arguments="b integer"),
        answering("one", 1, arguments="a text"),
        answering("one", 1, arguments="a integer, b integer"),
    ],
    ids=["result", "name of an argument", "type of an argument", "number of arguments"],
)
async def test_a_signature_that_changed_is_refused_by_the_functions_name(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch, changed: Function
) -> None:
    shipped(monkeypatch, answering("one", 7, arguments="a integer"))
    await migrate(ff_dsn)

    shipped(monkeypatch, changed, answering("two", 2))
    with pytest.raises(Unavailable, match=r"ff\.one .*migration that drops the old") as error:
        await migrate(ff_dsn)

    assert error.value.operation == "migrate"
    assert await conn.fetchval("SELECT ff.one(1)") == 7
    assert "two" not in await stored_functions(conn)


async def test_a_migration_that_drops_the_function_makes_way_for_a_new_signature(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(monkeypatch, answering("one", 1, arguments="a integer"))
    await migrate(ff_dsn)
    drops = migrate_module.Migration(
        version=migrate_module.needed_version() + 1,
        name="new_signature",
        sql="DROP FUNCTION ff.one",
        backward_compatible=False,
        checksum="",
    )
    ours = migrations()
    monkeypatch.setattr(migrate_module, "migrations", lambda: [*ours, drops])
    shipped(monkeypatch, answering("one", 2, arguments="a text"))

    done = await migrate(ff_dsn)

    assert (done.migrations, done.functions) == ([drops], ["one"])
    assert await conn.fetchval("SELECT ff.one('x')") == 2


async def test_a_function_that_cannot_be_created_takes_the_migration_back_too(
    ff_dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = migrate_module.needed_version()
    later = migrate_module.Migration(
        version=version + 1,
        name="later",
        sql="CREATE TABLE ff.later ()",
        backward_compatible=True,
        checksum="",
    )
    ours = migrations()
    monkeypatch.setattr(migrate_module, "migrations", lambda: [*ours, later])
    shipped(monkeypatch, made_up("bad", "CREATE OR REPLACE FUNCTION ff.bad() nonsense"))

    with pytest.raises(FlowFabricError, match="function bad"):
        await migrate(ff_dsn)

    assert await conn.fetchval("SELECT to_regclass('ff.later') IS NULL")
    assert [row.version for row in await migrate_module.applied(conn)] == [
        each.version for each in ours
    ]


async def test_it_is_part_of_the_callers_transaction(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(monkeypatch, answering("one", 1))
    undone = conn.transaction()
    await undone.start()

    changed = await apply_functions(conn)

    assert (changed.applied, changed.dropped) == (["one"], [])
    await undone.rollback()
    assert await differing_functions(conn) == ["one"]
