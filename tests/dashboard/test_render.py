"""The largest template is compiled before it is needed."""

from __future__ import annotations

from flowfabric.dashboard import render
from flowfabric.server.app import Application
from tests.dashboard.conftest import browser
from tests.worker.facts import eventually


async def test_after_the_first_page_the_template_of_a_flow_is_compiled(
    served: Application,
) -> None:
    async with browser(served) as person:
        assert (await person.get("/lanes")).status_code == 200

    async def is_compiled() -> bool:
        return "flow.html" in {str(name) for _, name in render._env.cache or {}}  # pyright: ignore

    await eventually(is_compiled, within=60)
