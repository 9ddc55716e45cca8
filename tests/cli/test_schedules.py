"""`ff schedules`: tables for people, JSON for programs, and one line for what is refused."""

from pathlib import Path

import pytest

from flowfabric.db.rows import Connection
from flowfabric.testing import Clock
from tests.cli.conftest import Inside
from tests.engine.schedules.stored import BEGIN, HOUR, fire, stored

APP = """
from flowfabric import App, Call, Ctx

app = App()

@app.task("digest")
async def digest(ctx: Ctx, to: str) -> None: ...

@app.schedule("nightly", cron="0 2 * * *", tz="Europe/Berlin")
def nightly() -> Call[None]:
    return digest.call("ann")
"""


async def test_schedules_are_listed_with_what_they_do(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    assert (await ff("schedules")).out.startswith("No schedules: define one with @app.schedule")
    await stored(db, clock, "hourly")
    await stored(db, clock, "later", every=900)
    await ff("schedules", "pause", "later", "--reason", "repairs [1]")
    await clock.advance(HOUR)
    await fire(db)

    heading, first, second = (await ff("schedules")).out.splitlines()

    assert heading.split()[:5] == ["name", "state", "spec", "execution_kind", "next_fire_at"]
    assert first.split()[:2] == ["hourly", "active"]
    assert "0 * * * * (UTC)" in first
    assert "paused by" in second
    assert "repairs [1]" in second
    assert second.split()[-2:] == ["job", "0"], "a paused one has no next instant"
    page = (await ff("schedules", "list", "--state", "active", "--json")).json
    assert [each["name"] for each in page["schedules"]] == ["hourly"]
    assert page["schedules"][0]["fired"] == 1
    assert page["next_cursor"] is None
    assert (await ff("schedules", "list", "--state", "broken")).out == "No schedules are broken.\n"


async def test_one_schedule_is_shown_with_its_next_and_last_instants(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    await stored(db, clock, cron="0 * * * *", tz="Europe/Berlin")
    await clock.advance(HOUR)
    await fire(db)
    await clock.advance(HOUR)
    await fire(db)

    shown = (await ff("schedules", "show", "hourly")).out
    facts = (await ff("schedules", "show", "hourly", "--json")).json

    assert "fires next at 2027-01-05 03:00:00 UTC" in shown
    assert "no live worker can run kind 'job'" in shown
    assert "Tue 2027-01-05 04:00:00 CET" in shown
    assert "2027-01-05 02:00:00 UTC  skipped" in shown
    assert [each["outcome"] for each in facts["history"]] == ["skipped", "fired"]
    assert facts["explanation"]["upcoming"][0]["at"] == "2027-01-05T03:00:00+00:00"


async def test_a_schedule_is_created_triggered_backfilled_and_deleted(
    ff: Inside, clock: Clock, db: Connection
) -> None:
    await clock.set(BEGIN)
    made = await ff(
        "schedules", "create", "digest", "mail", '{"to": "ann"}', "--cron", "0 * * * *",
        "--tag", "a.b=c", "--overlap", "skip",
    )  # fmt: skip
    assert made.out == "schedule digest fires next at 2027-01-05 01:00:00 UTC\n"
    assert (await ff("schedules", "trigger", "digest")).out.startswith("triggered {fp:")
    skipped = (await ff("schedules", "trigger", "digest")).out
    assert "skipped: {fp:" in skipped
    assert "--force" in skipped
    assert (await ff("schedules", "trigger", "digest", "--force", "--json")).json["outcome"] == (
        "triggered"
    )
    window = ("2027-01-04T20:00:00Z", "2027-01-05T00:00:00+00:00")
    filled = await ff("schedules", "backfill", "digest", *window)
    assert filled.out == "created 4 executions\n"
    again = await ff("schedules", "backfill", "digest", *window)
    assert again.out == "created 0 executions; 4 had been fired before\n"
    none = await ff("schedules", "backfill", "digest", window[0], window[0])
    assert none.out == "created 0 executions: the schedule has no instant in that time\n"
    assert (await ff("schedules", "pause", "digest")).out == "schedule digest is paused\n"
    resumed = await ff("schedules", "resume", "digest", "--catch-up")
    assert resumed.out.startswith("schedule digest is active and fires next at 2027-01-05 01:00")
    refused = await ff("schedules", "delete", "digest")
    assert (refused.code, "give --yes" in refused.err) == (1, True)
    deleted = await ff("schedules", "delete", "digest", "--yes")
    assert deleted.out == "schedule digest is deleted\n"
    assert await db.fetchval("SELECT count(*) FROM ff.schedule") == 0


async def test_the_name_of_a_schedule_is_said_as_it_is(ff: Inside, clock: Clock) -> None:
    await clock.set(BEGIN)
    said = [
        (await ff("schedules", *command)).out
        for command in (
            ("create", "a [b]", "mail", "--every", "1h"),
            ("pause", "a [b]"),
            ("resume", "a [b]"),
            ("update", "a [b]", "--every", "2h"),
            ("delete", "a [b]", "--yes"),
        )
    ]

    assert all(each.startswith("schedule a [b] ") for each in said), said


async def test_what_is_given_of_a_schedule_is_changed_and_the_rest_stays(
    ff: Inside, clock: Clock, db: Connection
) -> None:
    await clock.set(BEGIN)
    await ff(
        "schedules", "create", "digest", "mail", '{"to": "ann"}', "--cron", "0 9 * * *",
        "--tag", "a.b=c", "--overlap", "allow",
    )  # fmt: skip

    moved = await ff(
        "schedules", "update", "digest", "--tz", "Asia/Tokyo", "--reason", "they moved"
    )
    assert moved.out == "schedule digest is active and fires next at 2027-01-06 00:00:00 UTC\n"
    changed = await ff(
        "schedules", "update", "digest", "--every", "15m", "--payload", '{"to": "bob"}',
        "--kind", "post", "--priority", "7", "--json",
    )  # fmt: skip
    assert changed.json["next_fire_at"] == "2027-01-05T00:15:00+00:00"
    row = await db.fetchrow("SELECT * FROM ff.schedule")
    assert row is not None
    assert (row["spec_kind"], row["execution_kind"], row["payload"], row["priority"]) == (
        "interval",
        "post",
        b'{"to": "bob"}',
        7,
    )
    assert (row["overlap"], row["tags"], row["lane_id"]) == ("allow", '{"a.b": "c"}', "default")
    events = await db.fetch(
        "SELECT reason FROM ff.operator_event"
        " WHERE event_type = 'schedule_updated' ORDER BY event_id"
    )
    assert [each["reason"] for each in events] == ["they moved", None]
    await ff("schedules", "pause", "digest")
    paused = await ff("schedules", "update", "digest", "--every", "1h")
    assert paused.out == "schedule digest is paused\n"
    for given, said in (
        ((), "name what changes"),
        (("--payload", "{"), "is not JSON"),
        (("--tz", "Asia/Tokyo"), "needs one of cron, every and at"),
        (("--cron", "x"), "is not a cron expression"),
        (("--runs", "0"), "runs: 0 must be a whole number from 1"),
    ):
        refused = await ff("schedules", "update", "digest", *given)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert await db.fetchval("SELECT every_ms FROM ff.schedule") == 3_600_000
    assert (await ff("schedules", "update", "nightly", "--every", "1h")).code == 1


async def test_instants_are_previewed_without_a_database(
    ff: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FF_DATABASE_URL", "postgresql://127.0.0.1:1/none")

    shown = await ff("schedules", "preview", "--cron", "0 9 1 1 *", "--tz", "Asia/Tokyo", "-n", "2")
    facts = await ff("schedules", "preview", "--every", "15m", "-n", "3", "--json")

    heading, first, second = shown.out.splitlines()
    assert heading.split() == ["at", "(UTC)", "local", "in"]
    assert "01-01 00:00:00" in first
    assert "01-01 09:00:00 JST" in second
    assert len(facts.json["instants"]) == 3


async def test_a_stored_schedule_is_previewed(ff: Inside, db: Connection, clock: Clock) -> None:
    await stored(db, clock, cron="0 * * * *", tz="Asia/Tokyo")

    facts = (await ff("schedules", "preview", "hourly", "-n", "2", "--json")).json

    assert [each["at"] for each in facts["instants"]] == [
        "2027-01-05T01:00:00+00:00",
        "2027-01-05T02:00:00+00:00",
    ]
    assert facts["instants"][0]["local"] == "2027-01-05T10:00:00+09:00"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("show", "x"), 1, "schedule x does not exist"),
        (("create", "x", "job"), 2, "needs one of cron, every and at"),
        (("create", "x", "job", "{", "--every", "1m"), 2, "is not JSON"),
        (("create", "x", "job", "--every", "0.5s"), 2, "must be at least 1 second"),
        (("create", "x", "job", "--cron", "0 0 30 2 *"), 2, "is not a cron expression"),
        (("create", "x", "job", "--cron", "@daily", "--tz", "Mars"), 2, "'Mars' is not the name"),
        (("create", "x", "job", "--at", "2001-01-01T00:00:00Z"), 2, "is in the past"),
        (("create", "x", "job", "--at", "2001-01-01"), 2, "must look like 2027-01-05T09:00:00Z"),
        (("backfill", "x", "now", "then"), 2, "START: 'now' must look like 2027-01-05T09:00:00Z"),
        (("preview", "x", "--cron", "@daily"), 2, "cannot be given with --cron"),
        (("preview", "--cron", "@daily", "-n", "0"), 2, "must be 1 to 1000"),
        (("diff", "nothing:app"), 2, "cannot import nothing"),
    ],
)
async def test_what_is_refused_is_one_line(
    ff: Inside, db: Connection, command: tuple[str, ...], code: int, said: str
) -> None:
    answer = await ff("schedules", *command)

    assert answer.code == code
    assert said in answer.err
    assert await db.fetchval("SELECT count(*) FROM ff.schedule") == 0


async def test_an_application_is_compared_and_synced(
    ff: Inside, db: Connection, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scheduled_shop.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    await stored(db, clock, "orphan", source="code")

    before = (await ff("schedules", "diff", "scheduled_shop:app")).out
    synced = (await ff("schedules", "sync", "scheduled_shop:app")).out
    await db.execute("UPDATE ff.schedule SET cron = '0 3 * * *' WHERE name = 'nightly'")
    changed = (await ff("schedules", "diff", "scheduled_shop:app", "--json")).json
    pruned = (await ff("schedules", "sync", "scheduled_shop:app", "--prune")).out
    after = (await ff("schedules", "diff", "scheduled_shop:app")).out
    again = (await ff("schedules", "sync", "scheduled_shop:app")).out

    assert before.splitlines() == ["missing nightly", "orphan orphan"]
    assert synced.splitlines()[-1] == "1 created, 0 changed, 1 schedule left alone"
    assert changed["changed"][0]["changes"] == [
        {"field": "cron", "stored": "0 3 * * *", "code": "0 2 * * *"}
    ]
    assert "changed nightly cron: 0 3 * * * → 0 2 * * *" in pruned
    assert pruned.splitlines()[-1] == "0 created, 1 changed, 1 schedule deleted"
    assert after == again == "No differences.\n"
