"""Every SQL constant: it prepares, it carries its name, and it writes only what its room owns."""

from __future__ import annotations

import ast
import re

import asyncpg
import pytest

from flowfabric.db.rows import Connection, positional
from flowfabric.testing import Clock
from flowfabric.testing.empty_database import prepare_to_empty
from tests.all_cases import all_cases
from tests.walls.sources import (
    NAMED,
    Builder,
    Constant,
    bare,
    builders,
    constants,
    modules,
    names_in,
    statements,
    written,
)

OWNER = {
    "ff.exec_core": "lifecycle",
    "ff.ready": "lifecycle",
    "ff.lease": "lifecycle",
    "ff.exec_body": "lifecycle",
    "ff.exec_tag": "lifecycle",
    "ff.exec_idempotency": "lifecycle",
    "ff.route": "lifecycle",
    "ff.attempt": "lifecycle",
    "ff.completion_event": "lifecycle",
    "ff.lease_event": "lifecycle",
    "ff.claim_grant": "grants",
    "ff.cancel_backlog": "flows",
    "ff.cancel_backlog_member": "flows",
    "ff.edge": "joins",
    "ff.edge_group": "joins",
    "ff.flow_core": "flows",
    "ff.flow_summary": "flows",
    "ff.pending_cancel_groups": "joins",
    "ff.operator_event": "events",
    "ff.journal": "journal",
    "ff.stream_frame": "streams",
    "ff.stream_meta": "streams",
    "ff.stream_summary": "streams",
    "ff.suspension_current": "suspensions",
    "ff.waitpoint_pending": "suspensions",
    "ff.suspend_dedup": "suspensions",
    "ff.signal_dedup": "suspensions",
    "ff.signal_inbox": "suspensions",
    "ff.signal_event": "suspensions",
    "ff.schedule": "schedules",
    "ff.schedule_fire": "schedules",
    "ff.budget_policy": "budgets",
    "ff.budget_usage": "budgets",
    "ff.budget_usage_dedup": "budgets",
    "ff.budget_usage_by_exec": "budgets",
    "ff.budget_usage_history": "budgets",
    "ff.budget_usage_place": "budgets",
    "ff.quota_policy": "quotas",
    "ff.quota_key": "quotas",
    "ff.quota_window": "quotas",
    "ff.quota_admitted": "quotas",
    "ff.quota_wakeup": "quotas",
    "ff.lane_registry": "lanes",
    "ff.waitpoint_hmac": "keys",
    "ff.api_token": "access",
    "ff.web_session": "access",
    "ff.activity": "activity",
    "ff.bulk_action": "bulk",
    "ff.bulk_batch": "bulk",
    "ff.saved_query": "queries",
    "ff.activity_place": "activity",
    "ff.worker_registry": "workers",
    "ff.worker_registry_event": "workers",
    "ff.waiter": "db",
    "ff.sweeper": "reconcile",
    "ff.function_annotation": "db",
    "ff.migration_annotation": "db",
    "ff.role_annotation": "db",
    "ff.partition_config": "db",
    "ff_testing.clock": "testing",
}
# What another package than the owner writes too, and why it cannot be a statement of the owner's.
ALSO = {
    # A dispatch marks the completions that it resolves edges by, in the same statement.
    ("joins", "ff.completion_event"),
    # A submitted flow is one statement, so that it is all or nothing on an autocommit connection.
    ("flows", "ff.edge"),
    ("flows", "ff.edge_group"),
    # An execution that is claimed, held back or ended loses its grants by that same statement.
    ("lifecycle", "ff.claim_grant"),
    # A restart empties the journal: signals that its entries had consumed stay so by the statement.
    ("journal", "ff.signal_inbox"),
    # A suspended execution that ends loses its suspension and waitpoints by that same statement.
    ("lifecycle", "ff.suspension_current"),
    ("lifecycle", "ff.waitpoint_pending"),
    # A handler that sleeps gives up its lease and records the sleep by the same statement.
    ("lifecycle", "ff.journal"),
    # Leaving the queue, and losing a lease, make room for others of the limit by that statement.
    ("lifecycle", "ff.quota_wakeup"),
    # A replay from before a waitpoint deletes it, with the keys of its signals.
    ("lifecycle", "ff.signal_dedup"),
}
# Creating registers the lane in the same transaction (executions.md section 2). Retention removes
# what every room keeps of an execution, in one call.
WRITES_OF_FUNCTIONS = {
    "create_execution": {
        "ff.exec_core",
        "ff.exec_body",
        "ff.exec_tag",
        "ff.exec_idempotency",
        "ff.ready",
        "ff.route",
        "ff.lane_registry",
        "ff.quota_wakeup",
    },
    # What a limit allows is decided under the lock of its key, by the claim itself.
    "claimable_limited": {"ff.exec_core", "ff.ready", "ff.quota_key", "ff.quota_window"},
    "unblock_quota_keys": {"ff.exec_core", "ff.ready", "ff.quota_key"},
    "note_quota_keys": {"ff.quota_key"},
    "admit_by_key": {"ff.quota_window"},
    "emit_operator_event": {"ff.operator_event"},
    "report_usage": {
        "ff.budget_policy",
        "ff.budget_usage",
        "ff.budget_usage_dedup",
        "ff.budget_usage_by_exec",
    },
    "release_spend": {"ff.budget_usage", "ff.budget_usage_by_exec"},
    "reset_budgets": {"ff.budget_policy", "ff.budget_usage"},
    # What a claim finds to be out of budget leaves the queue in its transaction.
    "hold_out_of_budget": {"ff.exec_core", "ff.ready", "ff.quota_wakeup"},
    "claimable_in_budget": {"ff.quota_window"},
    "record_entry": {"ff.journal"},
    "append_frames": {"ff.stream_frame", "ff.stream_meta", "ff.stream_summary"},
    "delete_executions": {
        "ff.attempt",
        "ff.budget_usage_by_exec",
        "ff.cancel_backlog",
        "ff.cancel_backlog_member",
        "ff.claim_grant",
        "ff.completion_event",
        "ff.edge",
        "ff.edge_group",
        "ff.exec_body",
        "ff.exec_core",
        "ff.exec_idempotency",
        "ff.exec_tag",
        "ff.flow_core",
        "ff.flow_summary",
        "ff.journal",
        "ff.lease",
        "ff.lease_event",
        "ff.operator_event",
        "ff.pending_cancel_groups",
        "ff.quota_admitted",
        "ff.ready",
        "ff.signal_dedup",
        "ff.signal_event",
        "ff.signal_inbox",
        "ff.stream_frame",
        "ff.stream_meta",
        "ff.stream_summary",
        "ff.suspend_dedup",
        "ff.suspension_current",
        "ff.waitpoint_pending",
    },
}
FORBIDDEN = re.compile(
    r"\b(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|random|nextval"
    r"|gen_random_uuid|uuidv7|pg_advisory\w*|pg_try_advisory\w*|setval|dblink\w*)\s*\("
    r"|\b(CURRENT_TIMESTAMP|CURRENT_TIME|CURRENT_DATE|LOCALTIMESTAMP|TEMP|TEMPORARY)\b",
    re.IGNORECASE,
)


def label(constant: Constant) -> str:
    return f"{constant.module.name}.{constant.name}"


def test_there_are_statements_to_look_at() -> None:
    assert len(statements()) >= 35
    assert {"lifecycle", "executions", "lanes", "workers", "db"} <= {
        constant.module.room for constant in statements()
    }


async def test_every_statement_prepares_against_the_schema(db: Connection, clock: Clock) -> None:
    refused: dict[str, str] = {}
    await prepare_to_empty(db)  # a statement calls a function of its session
    for constant in statements():
        text, _ = positional(constant.text)
        try:
            await db.prepare(text)
        except asyncpg.PostgresError as error:
            refused[label(constant)] = str(error)

    assert refused == {}
    assert await clock.now_ms() > 0


@all_cases("constant", statements, ids=label)
def test_a_statement_is_declared_constant_and_named_after_its_room_and_operation(
    constant: Constant,
) -> None:
    assert constant.is_literal, "declare it Final[LiteralString]"
    first = constant.text.strip().split("\n", 1)[0]
    named = NAMED.fullmatch(first)

    assert named is not None, first
    assert named[1] == constant.module.room
    operations = {constant.module.name.rpartition(".")[2]} | {
        node.name
        for node in constant.module.tree.body
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    assert named[2] in operations


def test_a_name_stands_for_one_statement() -> None:
    names = [constant.text.strip().split("\n", 1)[0] for constant in statements()]

    assert sorted(names) == sorted(set(names))


def test_sql_that_has_no_name_is_a_part_of_one_that_has() -> None:
    mentions: dict[str, set[str]] = {}
    for module in modules():
        for node in module.tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    mentions.setdefault(name, set()).update(names_in(value))
    for builder in builders():
        mentions.setdefault(builder.name, set()).update(names_in(builder.tree))
    used: set[str] = set()
    found = {constant.name for constant in statements()}
    while found:
        used |= found
        found = set().union(*(mentions.get(name, set()) for name in found)) - used
    nameless = {
        f"{part.module.name}.{part.name}"
        for part in (*constants(), *builders())
        if (isinstance(part, Builder) or (part.is_literal and not part.is_statement))
        and part.name not in used
        and part.module.room not in ("db", "testing")
    }

    assert nameless == set()


# Ownership.


@all_cases("constant", statements, ids=label)
def test_a_statement_writes_only_tables_of_its_room(constant: Constant) -> None:
    foreign = {
        table: OWNER.get(table, "nobody")
        for table in written(constant.text)
        if OWNER.get(table) != constant.module.room and (constant.module.room, table) not in ALSO
    }

    assert foreign == {}


def test_the_parts_of_statements_write_only_tables_of_their_room() -> None:
    foreign = {
        f"{part.module.name}.{part.name}": table
        for part in (*constants(), *builders())
        if (isinstance(part, Builder) or part.is_literal) and part.module.room != "testing"
        for table in written(part.text)
        if OWNER.get(table) != part.module.room and (part.module.room, table) not in ALSO
    }

    assert foreign == {}


async def test_every_table_has_one_owner(db: Connection) -> None:
    rows = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'ff'")

    assert {f"ff.{row['tablename']}" for row in rows} == {
        table for table in OWNER if table.startswith("ff.")
    }


async def test_functions_of_the_database_write_only_what_is_theirs(db: Connection) -> None:
    rows = await db.fetch(
        "SELECT proname, pg_get_functiondef(oid) AS text FROM pg_proc"
        " WHERE pronamespace = 'ff'::regnamespace"
    )
    writes = {
        row["proname"]: written(row["text"].partition("$function$")[2])
        for row in rows
        if written(row["text"].partition("$function$")[2])
    }

    assert writes == WRITES_OF_FUNCTIONS


async def test_no_table_has_a_row_trigger(db: Connection) -> None:
    rows = await db.fetch(
        "SELECT tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid"
        " WHERE c.relnamespace = 'ff'::regnamespace AND NOT tgisinternal"
    )

    assert [row["tgname"] for row in rows] == []


# A lock of the session is what it is for; its connection is not one of the pool.
HOLDS_A_LOCK = "flowfabric.engine.workers.hold_worker_lock.HOLD_WORKER_LOCK"


@all_cases(
    "constant",
    lambda: [
        constant
        for constant in statements()
        if constant.module.room not in ("db", "testing") and label(constant) != HOLDS_A_LOCK
    ],
    ids=label,
)
def test_a_statement_takes_its_time_from_ff_now_ms_and_leaves_no_session_state(
    constant: Constant,
) -> None:
    assert FORBIDDEN.search(bare(constant.text).replace("ff.now_ms(", "(")) is None


def test_only_migrations_and_renewers_take_an_advisory_lock() -> None:
    taken = {label(each) for each in constants() if re.search(r"pg_(try_)?advisory", each.text)}

    assert taken == {"flowfabric.db.migrate.LEDGER_LOCK", HOLDS_A_LOCK}


# Can these tests see what they look for?


def test_what_a_builder_writes_is_seen() -> None:
    def built(source: str) -> Builder:
        [tree] = ast.parse(source).body
        assert isinstance(tree, ast.FunctionDef)
        return Builder(modules()[0], tree.name, tree)

    fixed = built(
        "def f(x):\n    'INSERT INTO ff.doc'\n    return f'a{x} INSERT INTO ff.route' + x"
    )
    split = built("def f(x):\n    return g('UPDATE ' + f'ff.edge e', y='DELETE FROM ff.waiter')")
    given = built("def f(x):\n    return f'INSERT INTO {x} AS t' + 'UPDATE ' + x + ' SET a = 1'")

    assert written(fixed.text) == {"ff.route"}
    assert written(split.text) == {"ff.edge", "ff.waiter"}
    assert written(given.text) == {"given"}, "a table that is not written down has no owner"


def test_the_builders_of_the_lifecycle_are_looked_at() -> None:
    tables = {builder.name: written(builder.text) for builder in builders()}

    assert tables["record_lease_event"] == {"ff.lease_event"}
    assert tables["record_completion_event"] == {"ff.completion_event"}
    assert tables["save_attempt"] == {"ff.attempt"}


@all_cases(
    ("sql", "tables"),
    [
        ("INSERT INTO ff.attempt AS a (x) SELECT 1", {"ff.attempt"}),
        ("WITH x AS (UPDATE\n  ff.exec_core e SET a = 1) SELECT 1", {"ff.exec_core"}),
        ("delete from only ff.waiter; TRUNCATE route", {"ff.waiter", "route"}),
        ("MERGE INTO ff.route USING x ON true", {"ff.route"}),
        ("SELECT * FROM ff.route FOR UPDATE SKIP LOCKED", set()),
        ("SELECT * FROM ff.route e FOR NO KEY\n UPDATE OF e", set()),
        ("INSERT INTO ff.route SELECT 1 ON CONFLICT (a) DO UPDATE SET a = 1", {"ff.route"}),
        ("SELECT 'UPDATE ff.route' -- DELETE FROM ff.route\n", set()),
    ],
)
def test_writes_are_found_in_any_form(sql: str, tables: set[str]) -> None:
    assert written(sql) == tables


@pytest.mark.parametrize(
    "sql",
    ["SELECT now()", "SET x = clock_timestamp()", "SELECT CURRENT_TIMESTAMP", "SELECT random ()"],
)
def test_a_clock_of_another_kind_is_found(sql: str) -> None:
    assert FORBIDDEN.search(bare(sql))
