"""A server in this process, and callers of it with the tokens of every role."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from flowfabric import Engine
from flowfabric.server.app import Application, app
from flowfabric.server.settings import Settings
from flowfabric.states import Role

Caller = httpx.AsyncClient
Called = Callable[..., Caller]


@pytest.fixture
async def server(ff_engine: Engine) -> AsyncGenerator[Application]:
    """The application over this test's database; without tokens, every caller is an admin."""
    application = app(ff_engine, Settings(listen="127.0.0.1:9090", api_tokens=()))
    try:
        yield application
    finally:
        await application.services.close()


def client(application: Application, **headers: str) -> Caller:
    """A client that calls the application without a network."""
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)  # pyright: ignore
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


@pytest.fixture
async def http(server: Application) -> AsyncGenerator[Caller]:
    """A caller of the server."""
    async with client(server) as caller:
        yield caller


@pytest.fixture
async def called_as(
    server: Application, ff_engine: Engine
) -> AsyncGenerator[Callable[..., Awaitable[Caller]]]:
    """Makes a caller with a token of this role."""
    made: list[Caller] = []

    async def caller(role: Role, **options: Any) -> Caller:
        token = (await ff_engine.create_token(role.value, role=role, **options)).token
        made.append(client(server, authorization=f"Bearer {token}"))
        return made[-1]

    yield caller
    for each in made:
        await each.aclose()
