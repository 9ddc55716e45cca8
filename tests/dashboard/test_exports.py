"""Exports: sent page by page, whole, and recorded."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import pytest

from flowfabric import Engine
from flowfabric.server.app import Application
from tests import given
from tests.dashboard.conftest import browser

MANY = 2_500


class Pieces(httpx.ASGITransport):
    """Counts the pieces of the body of an answer."""

    def __init__(self, application: Any) -> None:
        super().__init__(app=self._counted)
        self._application, self.count = application, 0

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        async def counting(message: Any) -> None:
            self.count += bool(message.get("body"))
            await send(message)

        await self._application(scope, receive, counting)


@pytest.mark.parametrize("form", ["csv", "json"])
async def test_executions_are_sent_page_by_page(
    served: Application, ff_engine: Engine, form: str
) -> None:
    new = [given.new(execution_kind="many", tags={"a.b": "=1+1"}) for _ in range(MANY)]
    for first in range(0, MANY, 500):
        await ff_engine.create_execution(new[first : first + 500])

    transport = Pieces(served)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as person:
        answer = await person.get(f"/ui/executions?format={form}")
        head = await person.head(f"/ui/executions?format={form}")

    assert transport.count > 3  # a page of 1,000 at a time
    assert answer.headers["content-disposition"] == f'attachment; filename="executions.{form}"'
    assert (head.status_code, head.content) == (200, b"")
    found = (
        json.loads(answer.text)
        if form == "json"
        else list(csv.DictReader(io.StringIO(answer.text)))
    )
    assert [each["execution_kind"] for each in found] == ["many"] * MANY
    assert len({each["execution_id"] for each in found}) == MANY


async def test_what_does_not_match_is_a_file_without_rows_and_what_is_wrong_is_no_file(
    served: Application, caplog: pytest.LogCaptureFixture
) -> None:
    async with browser(served) as person:
        assert (await person.get("/executions?format=json&kind=nothing")).json() == []
        assert (await person.get("/events?format=json&type=cancelled")).json() == []
        assert (await person.get("/executions?format=json&flow=no-id")).status_code == 422
    recorded = [each for each in caplog.records if each.name == "flowfabric.audit"]
    assert len(recorded) == 2
