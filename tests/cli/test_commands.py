"""Every command once as it should be, and once with each mistake a user makes."""

import os
from urllib.parse import urlsplit, urlunsplit

import pytest

from flowfabric.db.apply_functions import functions
from flowfabric.db.migrate import needed_version
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.ids import ExecutionId
from flowfabric.states import LaneState
from flowfabric.testing import TestServer
from tests import given
from tests.cli.conftest import Inside, Shell, one_line, usage_error


async def test_help_names_every_command(bare: Shell) -> None:
    answer = await bare.ff("--help")

    assert answer.code == 0
    for command in (
        "dev",
        "migrate",
        "worker",
        "submit",
        "executions",
        "explain",
        "lanes",
        "workers",
        "leases",
        "events",
        "retention",
        "keys",
        "doctor",
    ):
        assert command in answer.out


async def test_the_version_is_shown(bare: Shell) -> None:
    assert (await bare.ff("--version")).out.startswith("flowfabric ")


@pytest.mark.parametrize(
    "command",
    [
        ("migrate",),
        ("lanes",),
        ("workers",),
        ("doctor",),
        ("submit", "x"),
        ("executions", "list"),
        ("worker", "shop:app"),
    ],
    ids=" ".join,
)
async def test_a_missing_database_is_one_clear_line(bare: Shell, command: tuple[str, ...]) -> None:
    assert "FF_DATABASE_URL" in one_line(await bare.ff(*command), 4)


async def test_a_database_that_does_not_answer_is_one_clear_line_without_the_password(
    bare: Shell,
) -> None:
    url = "postgresql://ann:s3cret@127.0.0.1:1/x"

    line = one_line(await bare.ff("lanes", "--database-url", url), 4)

    assert "cannot reach" in line
    assert "s3cret" not in line


async def test_a_url_of_another_kind_is_refused(bare: Shell) -> None:
    assert "mysql://" in one_line(await bare.ff("lanes", "--database-url", "mysql://x/y"), 4)


async def test_an_unmigrated_database_says_what_to_run(bare: Shell, ff_server: TestServer) -> None:
    dsn = await ff_server.create_empty()
    try:
        line = one_line(await bare.ff("lanes", "--database-url", dsn), 4)
        first = await bare.ff("migrate", "--json", "--database-url", dsn)
        second = await bare.ff("migrate", "--json", "--database-url", dsn)
        after = await bare.ff("lanes", "--database-url", dsn)
    finally:
        await ff_server.drop(dsn)

    assert "ff migrate" in line
    assert len(first.json["applied"]) == first.json["version"] == needed_version()
    assert first.json["functions"] == [function.name for function in functions()]
    assert second.json == {
        "applied": [],
        "functions": [],
        "dropped": [],
        "version": needed_version(),
        "roles": [],
    }
    assert (after.code, "No lanes yet" in after.out) == (0, True)


async def test_migrate_says_what_it_applied(bare: Shell, ff_server: TestServer) -> None:
    dsn = await ff_server.create_empty()
    try:
        first = await bare.ff("migrate", "--database-url", dsn)
        second = await bare.ff("migrate", "--database-url", dsn)
    finally:
        await ff_server.drop(dsn)

    assert "applied 0001_initial" in first.out
    assert "applied function claimable" in first.out
    assert second.out.split("\n")[:2] == [
        "Up to date.",
        f"The schema is at version {needed_version()}.",
    ]


async def test_submit_creates_an_execution_and_warns_that_nobody_runs_it(
    shell: Shell, db: Connection
) -> None:
    answer = await shell.ff(
        "submit", "double", '{"n": 2}', "--priority", "7", "--tag", "shop.tenant=acme", "--json"
    )

    assert answer.code == 0
    assert answer.json["created"] is True
    assert "no live worker serves kind 'double' on lane 'default'" in answer.err
    stored = await given.row(db, ExecutionId.parse(answer.json["execution_id"]))
    assert (stored["priority"], stored["public_state"]) == (7, "waiting")


async def test_submit_warns_of_a_paused_lane_and_a_timeout_says_how_to_ask_why(
    ff: Inside, ff_engine: Engine
) -> None:
    await ff_engine.register_lanes(["slow"], registered_by="test")
    await ff_engine.set_lane_state("slow", LaneState.PAUSED, reason="upgrade")

    answer = await ff("submit", "double", "--lane", "slow", "--timeout", "0.1s")

    warning, _, timeout = answer.err.splitlines()
    assert warning.startswith("ff: warning: lane 'slow' is paused")
    assert warning.endswith(": upgrade; make it active again: ff lanes resume slow")
    assert (answer.code, timeout.rsplit("; ff explain ", 1)[1][-10:]) == (3, "' says why")


async def test_the_same_key_gives_the_first_execution(shell: Shell) -> None:
    first = await shell.ff("submit", "double", "--key", "k", "--json")
    second = await shell.ff("submit", "double", "--idempotency-key", "k", "--json")
    other = ("submit", "double", '{"n": 3}', "--idempotency-key", "k", "--json")
    refused = await shell.ff(*other)
    returned = await shell.ff(*other, "--on-conflict", "return")

    assert second.json == {"execution_id": first.json["execution_id"], "created": False}
    assert returned.json == second.json
    assert refused.code == 1
    assert "idempotency_key 'k' belongs to execution" in refused.err
    assert "another payload; use another key, or --on-conflict return to get that" in refused.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("{broken",), "PAYLOAD: '{broken' is not JSON"),
        (("--lane", "grö"), "--lane: 'grö' must be printable"),
        (("--tag", "nodot=1"), "--tag: 'nodot' must look like"),
        (("--tag", "novalue"), "--tag: 'novalue' must look like"),
        (("--requires", "a,b"), "invalid_capabilities: required:comma_in_token"),
        (("--delay", "nan"), "--delay: 'nan' must look like 90s"),
        (("--attempt-timeout", "-1"), "--attempt-timeout: '-1' must look like 90s"),
    ],
)
async def test_what_cannot_be_submitted_is_named(
    ff: Inside, db: Connection, arguments: tuple[str, ...], named: str
) -> None:
    answer = await ff("submit", "double", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert named in answer.err
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_executions_are_listed_shown_and_cancelled(shell: Shell, db: Connection) -> None:
    execution_id = str(await given.created(db, tags={"shop.tenant": "acme"}))

    listed = await shell.ff("executions", "list", "--tag", "shop.tenant=acme", "--json")
    shown = await shell.ff("executions", "show", execution_id, "--json")
    cancelled = await shell.ff("executions", "cancel", execution_id, "--reason", "no", "--json")
    again = await shell.ff("executions", "cancel", execution_id)
    after = await shell.ff("executions", "list", "--state", "cancelled")

    assert [one["execution_id"] for one in listed.json["executions"]] == [execution_id]
    assert (shown.json["public_state"], shown.json["attempts"]) == ("waiting", [])
    assert cancelled.json["public_state"] == "cancelled"
    assert "cancelled before" in again.out
    assert execution_id in after.out


async def test_pages_follow_one_another(shell: Shell, db: Connection) -> None:
    made = {str(await given.created(db)) for _ in range(3)}

    first = await shell.ff("executions", "list", "--limit", "2", "--json")
    cursor = first.json["next_cursor"]
    second = await shell.ff("executions", "list", "--limit", "2", "--cursor", cursor, "--json")

    seen = [one["execution_id"] for page in (first, second) for one in page.json["executions"]]
    assert (set(seen), len(seen)) == (made, 3)
    assert second.json["next_cursor"] is None


@pytest.mark.parametrize("command", ["show", "cancel"])
async def test_ids_that_are_malformed_or_unknown_are_named(ff: Inside, command: str) -> None:
    unknown = ExecutionId.mint()

    assert "ID: 'nonsense' must be" in usage_error(await ff("executions", command, "nonsense"))
    for given_id in (str(unknown), str(unknown.uuid)):
        line = one_line(await ff("executions", command, given_id))
        assert line == f"ff: execution {given_id} does not exist"


async def test_a_cursor_of_nobodys_making_is_refused(ff: Inside) -> None:
    assert "--cursor: 'x'" in one_line(await ff("executions", "list", "--cursor", "x"), 2)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("json", 123), ("bytes", "MTIz")], ids=["json", "bytes"]
)
async def test_a_result_is_shown_as_it_is_encoded(
    shell: Shell, db: Connection, encoding: str, shown: object
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, b"123", encoding)])

    answer = await shell.ff("executions", "show", str(lease.execution_id), "--json")

    assert answer.json["result"] == shown


async def test_lanes_show_what_waits(shell: Shell, db: Connection) -> None:
    await given.created(db)
    await given.created(db, delay=60)

    [lane] = (await shell.ff("lanes", "--json")).json["lanes"]

    assert (lane["lane_id"], lane["waiting"], lane["delayed"], lane["active"]) == (
        "default",
        1,
        1,
        0,
    )


async def test_the_doctor_finds_a_missing_schema(bare: Shell, ff_server: TestServer) -> None:
    dsn = await ff_server.create_empty()
    try:
        answer = await bare.ff("doctor", "--json", "--database-url", dsn)
    finally:
        await ff_server.drop(dsn)

    findings = {finding["check"]: finding for finding in answer.json}
    assert answer.code == 1
    assert findings["schema"] == {
        "check": "schema",
        "verdict": "fail",
        "found": "absent",
        "advice": "Run: ff migrate",
    }


async def test_the_doctor_names_functions_that_differ(shell: Shell, db: Connection) -> None:
    await db.execute("UPDATE ff.function_annotation SET checksum = '' WHERE name = 'claimable'")
    await db.execute("DROP FUNCTION ff.submit")

    answer = await shell.ff("doctor", "--json")

    [finding] = [finding for finding in answer.json if finding["check"] == "functions"]
    assert finding == {
        "check": "functions",
        "verdict": "warn",
        "found": "differ from this version: claimable, submit",
        "advice": "Run: ff migrate",
    }


async def test_the_doctor_examines_a_migrated_database(shell: Shell) -> None:
    answer = await shell.ff("doctor", "--json")

    findings = {finding["check"]: finding for finding in answer.json}
    assert findings["schema"]["verdict"] == "ok"
    assert findings["functions"]["verdict"] == "ok"
    assert findings["wake-ups"]["verdict"] == "ok"
    assert findings["sweeps"]["verdict"] == "ok"
    failed = [check for check, finding in findings.items() if finding["verdict"] == "fail"]
    assert answer.code == (1 if failed else 0)


@pytest.mark.session("logs in as another role")
async def test_a_role_with_fewer_rights_is_made_by_migrate_and_known_by_the_doctor(
    shell: Shell, ff_dsn: str, db: Connection
) -> None:
    role = f"ff_test_cli_{os.getpid()}"
    place = urlsplit(ff_dsn).netloc.rpartition("@")[2]
    theirs = urlunsplit(urlsplit(ff_dsn)._replace(netloc=f"{role}:x@{place}"))
    await db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        migrated = await shell.ff("migrate", "--runtime-role", role)
        owner, worker = [
            await shell.ff("doctor", "--json", "--database-url", dsn) for dsn in (ff_dsn, theirs)
        ]
    finally:
        await db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")

    assert f"granted runtime rights to {role}" in migrated.out
    [hint], [praise] = [
        [finding for finding in answer.json if finding["check"] == "privileges"]
        for answer in (owner, worker)
    ]
    assert hint["verdict"] == praise["verdict"] == "ok"
    assert "ff migrate --runtime-role" in hint["advice"]
    assert (praise["found"], praise["advice"]) == (f"{role}: only data", "")
