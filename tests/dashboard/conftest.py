"""A server with the dashboard in this process, and people who look at it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from flowfabric import Engine
from flowfabric.dashboard import mounting
from flowfabric.server.app import Application, app
from flowfabric.server.settings import Settings
from flowfabric.states import Role
from tests.dashboard.busy import Busy, make_busy

SAME_SITE = {"sec-fetch-site": "same-origin"}
TOKEN = re.compile(r'name="_csrf" value="([^"]+)"')


@pytest.fixture
async def served(ff_engine: Engine) -> AsyncGenerator[Application]:
    """The application with its dashboard; without tokens, everybody is an admin."""
    settings = Settings(listen="127.0.0.1:9090", api_tokens=())
    application = app(ff_engine, settings, mounting=mounting)
    try:
        yield application
    finally:
        await application.close()


@pytest.fixture
async def busy(ff_engine: Engine, ff_dsn: str) -> AsyncGenerator[Busy]:
    """A database with something of everything."""
    found, worker = await make_busy(ff_engine, ff_dsn)
    try:
        yield found
    finally:
        await worker.__aexit__(None, None, None)


def browser(application: Application, **headers: str) -> httpx.AsyncClient:
    """A browser without a network: it keeps cookies, and goes nowhere by itself."""
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)  # pyright: ignore
    return httpx.AsyncClient(
        transport=transport, base_url="http://localhost/ui", headers={**SAME_SITE, **headers}
    )


async def form_token(person: httpx.AsyncClient, path: str) -> str:
    """The token of the form on this page."""
    found = TOKEN.search((await person.get(path)).text)
    assert found is not None, path
    return found[1]


async def send(
    person: httpx.AsyncClient, path: str, data: dict[str, str], status: int | tuple[int, ...] = 303
) -> str:
    """Open the form of this act and send it; the text of the answer, which has this status."""
    token = await form_token(person, path)
    answer = await person.post(path, data={"_csrf": token, **data})
    expected = status if isinstance(status, tuple) else (status,)
    assert answer.status_code in expected, answer.text
    return answer.text


async def log_in(person: httpx.AsyncClient, token: str) -> httpx.Response:
    """Send the login form."""
    data = {"_csrf": await form_token(person, "/login"), "token": token, "next": "/lanes"}
    return await person.post("/login", data=data)


Person = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def person(served: Application, ff_engine: Engine) -> AsyncGenerator[Person]:
    """Makes a person of this role who is logged in."""
    made: list[httpx.AsyncClient] = []

    async def logged_in(role: Role, **options: Any) -> httpx.AsyncClient:
        label = options.pop("label", role.value)
        token = (await ff_engine.create_token(label, role=role, **options)).token
        made.append(browser(served))
        answer = await log_in(made[-1], token)
        assert answer.status_code == 303, answer.text
        return made[-1]

    yield logged_in
    for each in made:
        await each.aclose()
