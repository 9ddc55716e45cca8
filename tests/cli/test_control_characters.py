"""Texts of others do not act on the terminal that shows them: they are printed as text."""

import json
import logging
import re
from pathlib import Path

import pytest

from flowfabric.cli import output
from flowfabric.cli.logs import JsonFormatter, TextFormatter
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.fail import Failure, fail
from tests import given
from tests.cli.conftest import Inside

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202e[red]evil[/red] \x7f"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


async def test_no_command_sends_control_characters_to_the_terminal(
    ff: Inside, db: Connection
) -> None:
    lease = await given.claimed(
        db, creator_identity=HOSTILE, tags={"shop.tenant": HOSTILE}, execution_kind="[b]job[/b]"
    )
    await fail(db, [Failure(lease=lease, reason=HOSTILE, detail=HOSTILE)])
    execution_id = str(lease.execution_id)
    await ff("executions", "replay", execution_id, "--reason", HOSTILE)

    for command in (
        ("executions", "list"),
        ("executions", "show", execution_id),
        ("executions", "show", execution_id, "--json"),
        ("executions", "history", execution_id),
        ("explain", execution_id),
        ("explain", execution_id, "--json"),
        ("workers", "list", "--namespace", HOSTILE),
        ("explain", HOSTILE),
        ("submit", HOSTILE),
    ):
        answer = await ff(*command)
        assert not ACTING.search(answer.out), command
        assert not ACTING.search(answer.err), command
    shown = await ff("executions", "show", execution_id)
    assert "\\x1b[2J" in shown.out
    assert "[red]evil[/red]" in shown.out
    assert (await ff("executions", "show", execution_id, "--json")).json["tags"] == {
        "shop.tenant": HOSTILE
    }


def test_a_text_that_acts_on_a_terminal_is_made_visible() -> None:
    assert output.visible("tick ✓\tone\ntwo") == "tick ✓\tone\ntwo"
    assert output.visible("\x1b[31mred\r\x00") == "\\x1b[31mred\\r\\x00"
    assert json.loads(output.json_text({"x": HOSTILE})) == {"x": HOSTILE}
    assert not ACTING.search(output.json_text({"x": HOSTILE}))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_log_line_is_made_visible(formatter: logging.Formatter) -> None:
    record = logging.makeLogRecord(
        {"name": HOSTILE, "levelname": HOSTILE, "msg": HOSTILE, "execution_id": HOSTILE}
        | {"exc_text": HOSTILE, "shop.tenant": HOSTILE, "kind": HOSTILE}
    )

    assert not ACTING.search(formatter.format(record))


def test_commands_escape_by_the_one_function() -> None:
    for module in Path(output.__file__).parent.glob("*.py"):
        if module.name != "output.py":
            assert "rich.markup" not in module.read_text(), module.name
