"""The page about the dashboard: the example of mounting it works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx

from flowfabric import Engine
from tests.docs.pages import block

PAGE = "docs/guides/mounting-the-dashboard.md"


async def test_an_application_mounts_the_dashboard_and_says_who_looks(ff_engine: Engine) -> None:
    names: dict[str, Any] = {}
    exec(block(PAGE, "dashboard-mounted").text, names)  # noqa: S102  the example of the page
    site = names["site"](ff_engine)
    users: dict[str, Any] = {"ann": SimpleNamespace(name="ann", is_staff=True)}

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"]).get(b"x-user", b"").decode()
        await site({**scope, "user": users.get(name)}, receive, send)

    transport = httpx.ASGITransport(app=with_user)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as caller:
        nobody = await caller.get("/ops/lanes")
        ann = await caller.get("/ops/lanes", headers={"x-user": "ann"})
        foreign = await caller.get("/ops/executions?ns=other", headers={"x-user": "ann"})

    assert (nobody.status_code, ann.status_code, foreign.status_code) == (401, 200, 404)
    assert 'href="/ops/executions"' in ann.text
    assert "ann" in ann.text
