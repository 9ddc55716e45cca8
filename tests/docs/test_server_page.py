"""The pages about the server: the session runs, the worker works, the routes are listed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator

import pytest

from flowfabric import Engine
from flowfabric.engine import Created
from flowfabric.server.openapi import document_text
from flowfabric.server.routes import ROUTES
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from flowfabric.states import PublicState, Role
from tests import given
from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, block, blocks, text_of

PAGE = "docs/guides/server.md"
REST = "docs/reference/rest.md"


@pytest.fixture
async def address(ff_engine: Engine) -> AsyncGenerator[str]:
    """The address of a server on this test's database."""
    settings = Settings(listen="127.0.0.1:0", api_tokens=())
    with bind(settings) as bound:
        async with running(ff_engine, settings, bound):
            yield address_of(bound)


async def test_the_session_runs_from_submit_to_events(reader: Reader, address: str) -> None:
    reader.opens(PAGE)
    where = {"FF_SERVER": address}
    submitted = json.loads(await reader.shell("server-submit", **where))
    place = (await reader.shell("server-place", **where)).strip()
    assert submitted["result"] == "created"
    assert submitted["execution_id"].partition(":")[2].partition(":")[2] in place

    where["PLACE"] = place
    waiting = asyncio.create_task(reader.shell("server-wait", **where))
    worked = await reader.run("python", "http_worker.py", ROUNDS="1", **where)
    outcome = json.loads(await waiting)
    assert worked.strip() == "completed"
    assert (outcome["public_state"], outcome["result"]) == ("completed", "Hello, Ann")


async def test_a_waiting_execution_is_signalled_explained_and_cancelled(
    reader: Reader, address: str
) -> None:
    reader.opens(PAGE)
    where = {"FF_SERVER": address}
    where["PLACE"] = (await reader.shell("server-place", **where)).strip()
    signalled = json.loads(await reader.shell("server-signal", **where))
    cancelled = await reader.shell("server-cancel", **where)
    events = await reader.shell("server-events", **where)
    assert signalled["result"] == "signal_accepted"
    assert '"reasons":' in cancelled
    assert '"public_state":"cancelled"' in cancelled
    told = re.findall(r"^event: (\w+)$", events, re.MULTILINE)
    assert sorted(told) == ["completion", "operator"]


async def test_a_client_and_a_worker_over_http_work(reader: Reader, address: str) -> None:
    reader.opens(PAGE)
    assert (await reader.run("python", "over_http.py", FF_SERVER=address)).strip() == "HELLO"


async def test_a_shell_can_be_a_worker(reader: Reader, address: str, ff_engine: Engine) -> None:
    reader.opens(PAGE)
    [made] = await ff_engine.create_execution([given.new(execution_kind="ping")])
    assert isinstance(made, Created)
    said = json.loads(await reader.shell("server-curl-worker", FF_SERVER=address))
    assert [each["result"] for each in said["results"]] == ["completed"]
    assert await ff_engine.read_execution_state(made.execution_id) is PublicState.COMPLETED


async def test_tokens_are_made_and_listed(reader: Reader, ff_engine: Engine) -> None:
    reader.opens(PAGE)
    said = await reader.shell("server-tokens")
    [token] = await ff_engine.list_tokens()
    assert re.search(r"^ff_\S{49}$", said, re.MULTILINE)
    assert (token.label, token.role, token.namespaces) == ("shop", Role.CLIENT, ["shop"])


def test_the_start_of_a_server_is_shown_as_it_is() -> None:
    assert "ff worker shop.tasks:app --server" in block(PAGE, "server-install").text
    assert "ff server --listen 127.0.0.1:9090" in block(PAGE, "server-start").text


def test_the_worker_has_less_than_sixty_lines() -> None:
    workers = [each for each in blocks(PAGE) if each.role == "file"]
    assert all(len(each.text.splitlines()) < 60 for each in workers)


def test_every_variable_of_the_server_is_in_the_table_of_settings() -> None:
    modules = ("server/settings.py", "server/serve.py", "server/limits.py", "cli/server.py")
    read = {
        name
        for module in modules
        for name in re.findall(r'"(FF_[A-Z_]+)"', (ROOT / "src/flowfabric" / module).read_text())
    }
    told = set(re.findall(r"^\| `(FF_[A-Z_]+)` \|", text_of(PAGE), re.MULTILINE))
    assert {"FF_LISTEN", "FF_LIMITS", "FF_MIGRATE_ON_BOOT"} <= read
    # The supervisor gives the socket. What every command has is on the page of the commands.
    assert read - {"FF_LISTEN_FD", "FF_DATABASE_URL", "FF_DATABASE_POOLER"} <= told


def test_the_document_that_is_committed_is_that_of_the_table() -> None:
    committed = (ROOT / "docs/reference/openapi.json").read_bytes()
    assert committed == document_text(), "run: python -m flowfabric.server.openapi"


def test_every_route_is_listed_with_its_scope() -> None:
    listed = re.findall(r"^\| `(\w+) (\S+)` \| (\S+) \|", text_of(REST), re.MULTILINE)
    assert listed == [(each.method, each.path, each.scope.value) for each in ROUTES]


def test_every_instant_of_the_document_has_one_form() -> None:
    """Text in RFC 3339: neither a number nor a text of another form."""
    schemas = json.loads(document_text())["components"]["schemas"]
    others = [
        f"{name}.{member}"
        for name, schema in schemas.items()
        for member, form in schema.get("properties", {}).items()
        if member.endswith("_at") and "date-time" not in json.dumps(form)
    ]
    assert others == ["FailureGroups.looked_at"]  # how many were looked at
