"""Every noun has `list`, with the same words in the table and in JSON; texts are cut at words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flowfabric.cli import output
from flowfabric.cli.main import app
from flowfabric.cli.output import cut, listing
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.send_signal import NewSignal
from tests import given
from tests.all_cases import all_cases
from tests.cli.conftest import Inside
from tests.engine.flows.graphs import submitted
from tests.engine.schedules.stored import define

NOUNS = [group.name or "" for group in app.registered_groups]


async def rows(ff: Inside, noun: str, *options: str) -> list[dict[str, Any]]:
    """The rows of a list, which are in a page under the name of the noun."""
    told = (await ff(noun, "list", "--json", *options)).json
    assert told.keys() == {noun, "next_cursor"}, noun
    return told[noun]


async def test_every_noun_has_a_list_with_the_same_words_in_the_table_and_in_json(
    ff: Inside, db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    await submitted(ff_engine, "a")
    await ff_engine.cancel_execution(await given.created(db), reason="a reason")
    await ff("keys", "seed")
    await ff_engine.create_waitpoint(lease, "approve", expires_in=60)
    await ff_engine.send_signal(NewSignal(execution_id=lease.execution_id, signal_name="x"))
    await ff_engine.register_worker(
        worker_id="pool", worker_instance_id="w-1", lanes=["default"], liveness_ttl=60
    )

    await ff_engine.create_schedule(define())
    await ff("budgets", "create", "tokens", "--hard", "tokens=5")
    await ff("limits", "set", "api", "--concurrency", "1")
    await ff("tokens", "create", "shop", "--role", "reader")

    for noun in NOUNS:
        heading, *lines = (await ff(noun, "list")).out.splitlines()
        told = await rows(ff, noun)
        if noun != "budgets":  # which have a line with a bar for each dimension
            assert set(heading.replace(" (UTC)", "").split()) <= set(told[0]), noun
        assert len(lines) == len(told) > 0, noun
        if noun != "keys":
            await paged(ff, noun, told)
    assert [each["execution_id"] for each in await rows(ff, "leases")] == [str(lease.execution_id)]


async def paged(ff: Inside, noun: str, told: list[dict[str, Any]]) -> None:
    """One row a page, until there is no cursor, gives the same rows."""
    rows: list[dict[str, Any]] = []
    cursor: list[str] = []
    while True:
        page = (await ff(noun, "list", "--limit", "1", *cursor, "--json")).json
        rows += page[noun]
        assert len(page[noun]) == 1, noun
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert rows == told, noun


async def test_events_are_listed_newest_first_and_page_by_page(
    ff: Inside, ff_engine: Engine, db: Connection
) -> None:
    made = [await given.created(db) for _ in range(3)]
    other = await given.created(db, namespace="acme")
    for each in (*made, other):
        await ff_engine.cancel_execution(each, reason="r")

    first = (await ff("events", "list", "--limit", "2", "--json")).json
    rest = (await ff("events", "list", "--cursor", first["next_cursor"], "--json")).json
    of_acme = await rows(ff, "events", "--namespace", "acme")
    actions = (await ff("events", "list", "operator", "--limit", "1")).out

    seen = [each["execution_id"] for page in (first, rest) for each in page["events"]]
    assert seen == [str(each) for each in (other, *reversed(made))]
    assert rest["next_cursor"] is None
    assert [each["execution_id"] for each in of_acme] == [str(other)]
    assert "cancelled" in actions
    assert "More: --cursor" in actions


async def test_lanes_are_listed_by_state(ff: Inside, db: Connection) -> None:
    await given.created(db)
    await given.created(db, lane_id="held")
    await ff("lanes", "pause", "held")

    assert [each["lane_id"] for each in await rows(ff, "lanes", "--state", "paused")] == ["held"]
    assert "No such lanes" in (await ff("lanes", "list", "--state", "disabled")).out


@all_cases(
    ("text", "said"),
    [
        ("short", "short"),
        ("two\n  lines", "two lines"),
        ("the card was declined by the bank", "the card was declined …"),
        ("the card was declined, by the bank", "the card was declined …"),
        ("x" * 40, "x" * 22 + " …"),
        ("", ""),
    ],
)
def test_a_text_is_cut_after_a_word(text: str, said: str) -> None:
    assert cut(text, 24) == said


class Row(msgspec.Struct):
    execution_id: str
    kind: str
    reason: str | None = None


@pytest.mark.parametrize(
    ("width", "shown"), [(80, ["execution_id", "kind", "reason"]), (30, ["execution_id", "kind"])]
)
def test_a_table_has_the_columns_that_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: list[str]
) -> None:
    monkeypatch.setattr(output.console, "_width", width)

    made = listing([Row("{fp:7}:a-uuid", "job", "a-long-word")], "execution_id", "kind", "reason")

    assert [column.header for column in made.columns] == shown
    assert [*made.columns[0].cells] == ["{fp:7}:a-uuid" if width == 80 else "a-uuid"]
    assert (made.caption is None) == (width == 80)
