"""`ff retention trim`: delete executions that ended long ago; asks first."""

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock
from tests import given
from tests.cli.conftest import Inside, Shell, one_line, usage_error
from tests.engine.controls import actions, execution

TRIM = ("retention", "trim", "--lane", "default")


async def left(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.exec_core")


async def test_without_a_terminal_nothing_is_forgotten_unless_told_to(
    shell: Shell, db: Connection
) -> None:
    await execution(db, "completed")
    await execution(db, "failed")

    line = one_line(await shell.ff(*TRIM, "--older-than", "0"))

    assert line == (
        "ff: delete 2 executions that ended on lane 'default' more than 0s ago? "
        "Nothing was done: give --yes to do it without being asked."
    )
    assert await left(db) == 2


async def test_with_yes_what_ended_long_ago_is_forgotten_with_all_that_is_kept_of_it(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    old = await execution(db, "completed", tags={"shop.tenant": "acme"})
    await clock.advance(7200)
    young, open_ = await execution(db, "completed"), await given.created(db)

    answer = await ff(*TRIM, "--older-than", "1h", "--yes")
    shown = await ff("executions", "show", str(old))

    assert (answer.code, answer.out.startswith("deleted 1 execution")) == (0, True)
    assert one_line(shown) == f"ff: execution {old} does not exist"
    assert await given.attempts(db, old) == []
    assert await given.completion_events(db, old) == []
    for kept in (young, open_):
        assert (await ff("executions", "show", str(kept))).code == 0


async def test_who_forgot_what_is_kept(ff: Inside, db: Connection) -> None:
    await execution(db, "completed")

    await ff(*TRIM, "--older-than", "0", "--yes")

    [action] = await actions(db)
    assert (action.event_type, action.actor) == ("retention_trimmed", user_at_host())
    assert action.details == {"lane_id": "default", "retention_ms": 0, "deleted": 1}


async def test_the_same_for_programs(ff: Inside, db: Connection) -> None:
    for _ in range(3):
        await execution(db, "cancelled")

    first = await ff(*TRIM, "--older-than", "0", "-y", "--json")
    second = await ff(*TRIM, "--older-than", "0", "--json")

    assert first.json == {"deleted": 3}
    assert second.json == {"deleted": 0}


async def test_only_of_a_namespace_or_with_a_tag(ff: Inside, db: Connection) -> None:
    for fields in (
        {"namespace": "acme"},
        {"tags": {"shop.tenant": "acme"}},
        {"lane_id": "other", "namespace": "acme", "tags": {"shop.tenant": "acme"}},
        {},
    ):
        await execution(db, "cancelled", **fields)

    for narrower in (("--namespace", "acme"), ("--tag", "shop.tenant=acme")):
        answer = await ff(*TRIM, "--older-than", "0", *narrower, "--yes", "--json")
        assert answer.json == {"deleted": 1}
    assert await left(db) == 2


async def test_more_than_one_batch_is_forgotten(ff: Inside, db: Connection) -> None:
    await execution(db, "cancelled")
    await db.execute("CREATE TEMP TABLE one AS SELECT * FROM ff.exec_core")
    columns = await db.fetchval(
        "SELECT string_agg(attname, ', ') FROM pg_attribute"
        " WHERE attrelid = 'ff.exec_core'::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' AND attname <> 'execution_id'"
    )
    await db.execute(
        f"INSERT INTO ff.exec_core (execution_id, {columns})"
        f" SELECT gen_random_uuid(), {columns} FROM one, generate_series(1, 700)"
    )

    answer = await ff(*TRIM, "--older-than", "0", "--yes", "--json")

    assert answer.json == {"deleted": 701}
    assert await left(db) == 0


MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("--older-than", "x"), "--older-than: 'x' must look like 90s, 15m, 12h or 7d"),
    (("--older-than", "1 h"), "--older-than: '1 h' must look like"),
    (("--older-than", "0", "--tag", "acme"), "--tag: 'acme' must look like area.name=value"),
    (("--older-than", "0", "--tag", "a=b"), "--tag: 'a' must look like area.name"),
    (("--older-than", "0", "--lane", "grö"), "--lane: 'grö' must be printable ASCII"),
]


async def test_what_cannot_be_forgotten_is_named(ff: Inside, db: Connection) -> None:
    await execution(db, "cancelled")

    for arguments, why in MISTAKES:
        assert why in one_line(await ff(*TRIM, "--yes", *arguments), 2)
    assert await left(db) == 1


async def test_the_lane_and_the_age_must_be_given(ff_alone: Inside) -> None:
    assert "'--lane'" in usage_error(await ff_alone("retention", "trim", "--older-than", "1h"))
    assert "'--older-than'" in usage_error(await ff_alone(*TRIM))


# What is not as it should be.


async def test_a_lane_that_nobody_knows_is_one_line(ff: Inside) -> None:
    answer = await ff("retention", "trim", "--lane", "defualt", "--older-than", "1h", "--yes")

    assert one_line(answer) == "ff: lane defualt does not exist"


async def test_one_is_not_many(ff: Inside, db: Connection) -> None:
    await execution(db, "completed")

    answer = await ff(*TRIM, "--older-than", "0", "--yes")

    assert answer.out == "deleted 1 execution\n"
