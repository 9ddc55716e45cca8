"""`ff executions show`: what went in, what came out, and what went wrong."""

import base64
import re
from typing import Any

import pytest

from flowfabric.cli import output
from flowfabric.cli.values import heading, shortened_start, value_text
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.release import release
from flowfabric.policy import FixedBackoff
from tests import given
from tests.all_cases import all_cases
from tests.cli.conftest import Inside

TRACEBACK = "Traceback (most recent call last):\n" + "  File shop.py\n" * 400 + "KeyError: 'x'\n"


async def test_a_failed_execution_is_shown_with_its_payload_and_its_traceback(
    ff: Inside, db: Connection
) -> None:
    lease = await given.claimed(
        db,
        input_payload=b'{"order": "o-7"}',
        payload_encoding="json",
        policy=given.retrying(backoff=FixedBackoff(delay=0)),
    )
    await progress(db, lease, percent=40, message="halfway")
    running = (await ff("executions", "show", str(lease.execution_id))).out
    await fail(db, [Failure(lease=lease, reason="KeyError: 'x'", detail=TRACEBACK)])

    short = (await ff("executions", "show", str(lease.execution_id))).out
    full = (await ff("executions", "show", str(lease.execution_id), "--full")).out
    told = (await ff("executions", "show", str(lease.execution_id), "--json")).json

    facts = dict(
        line.split(None, 1) for line in map(str.strip, running.splitlines()) if "  " in line
    )
    assert facts["current_attempt"].startswith("1 (")
    assert facts["current_lease"].startswith("attempt 1 on w-1, expires in ")
    assert (facts["progress_pct"], facts["progress_message"]) == ("40", "halfway")
    assert re.fullmatch(r"[-\d]+ [:\d]+ UTC \(\d+s ago\)", facts["created_at"])
    assert 'payload, 16 bytes of json\n{"order":"o-7"}\n' in short
    assert "--full shows all)\n…\n  File shop.py\n" in short
    assert "KeyError: 'x'\n\nattempts\n" in short
    assert TRACEBACK in full
    assert told == told | {
        "payload": {"order": "o-7"},
        "payload_encoding": "json",
        "result": None,
        "traceback": TRACEBACK,
        "failure_reason": "KeyError: 'x'",
    }

    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease, b"\x89PNG", "bytes")])

    short = (await ff("executions", "show", str(lease.execution_id))).out
    told = (await ff("executions", "show", str(lease.execution_id), "--json")).json
    history = (await ff("executions", "history", str(lease.execution_id))).out

    assert "result, 4 bytes\n89 50 4e 47\n" in short
    assert "Traceback" not in short
    assert base64.b64decode(told["result"]) == b"\x89PNG"
    assert (told["result_encoding"], told["traceback"]) == ("bytes", None)
    events = [" ".join(line.split()[2:4]) for line in history.splitlines()[1:]]
    assert events == [
        "execution submitted",
        "lease acquired",
        "lease released",
        "lease acquired",
        "lease released",
        "completion success",
    ]
    assert "error=KeyError: 'x'" in history


async def test_a_history_says_why_what_was_replayed_had_failed_and_what_was_given_back(
    ff: Inside, db: Connection, ff_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await given.claimed(db)
    await fail(db, [Failure(lease=lease, reason="KeyError: 'x'")])
    await ff_engine.replay_execution(lease.execution_id)
    [task] = await claim(db, given.WORKER, ttl=30)
    await release(db, [task.lease])

    _, *lines = (await ff("executions", "history", str(lease.execution_id))).out.splitlines()
    monkeypatch.setattr(output.console, "_width", 80)
    narrow = (await ff("executions", "history", str(lease.execution_id))).out.splitlines()

    [failed, given_back] = [line for line in lines if "lease released" in line]
    [replayed] = [line for line in lines if "operator replayed" in line]
    assert "error=KeyError: 'x'" in failed
    assert "the worker gave it back" in given_back
    assert "None" not in replayed
    assert narrow[0].split() == ["at", "(UTC)", "event", "attempt", "reason"]
    assert len(max(narrow, key=len)) <= 80
    assert narrow[-1].startswith("No room for details")


LONG = '["' + "x" * 5000 + '"]'
VALUES: list[tuple[bytes, str | None, bool, str]] = [
    (b'{"a": 1}', "json", False, '{"a":1}'),
    (b"\x93\x01\x02\x03", "msgpack", False, "[1,2,3]"),
    (b"not json", "json", False, "not json"),
    (b"a text\n", "bytes", False, "a text\n"),
    (b"", "bytes", False, ""),
    (b"\x00\xff", "bytes", False, "00 ff"),
    (b"\x00" * 1000, "own", False, "\n".join(["00 " * 31 + "00"] * 8) + "\n(744 bytes more:"),
    (LONG.encode(), "json", True, f'[\n  "{"x" * 5000}"\n]'),
    (LONG.encode(), "json", False, "[\n  " + '"' + "x" * 1995 + "…\n(3,008 characters more:"),
]


@all_cases(("data", "encoding", "full", "text"), VALUES)
def test_a_value_is_shown_as_json_as_text_or_as_digits(
    data: bytes, encoding: Any, full: bool, text: str
) -> None:
    assert value_text(data, encoding, full=full).removesuffix(" --full shows all)") == text


def test_a_heading_tells_the_size_and_the_encoding() -> None:
    assert heading("payload", b"x", "msgpack") == "payload, 1 byte of msgpack"
    assert heading("result", b"xy", None) == "result, 2 bytes"


def test_a_text_that_is_cut_at_its_start_says_so() -> None:
    assert shortened_start("x" * 3000, full=False).startswith("(1,000 characters before: --full")
    assert shortened_start("x" * 3000, full=True) == "x" * 3000
