"""Every example of the guide on streams runs and does what its page says."""

from __future__ import annotations

import asyncio
import importlib
import json

import pytest

from flowfabric import Client
from tests.docs.conftest import Reader

PAGE = "docs/guides/streaming-results.md"


async def test_two_readers_follow_a_handler_and_one_resumes(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.opens(PAGE)
    poet = importlib.import_module("poet")

    async with poet.app.worker():
        names = await reader.python(
            "stream-read", client=client, answer=poet.answer, asyncio=asyncio
        )
    handle = names["handle"]
    await reader.python("stream-resume", handle=handle)
    told = await reader.shell("stream-look", ID=str(handle.execution_id))

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "True A short answer to why"
    assert said[1] == "{'words': 5, 'status': 'done'}"
    assert said[2] == "17"  # set_state, then 5 tokens, speeds and counts, then the last patch
    lines = told.splitlines()
    assert sum(" token " in line for line in lines) == 5
    frames = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(frames) == 12
