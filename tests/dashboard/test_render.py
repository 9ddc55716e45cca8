"""Templates are compiled before they are needed."""

from __future__ import annotations

from flowfabric.dashboard import render
from flowfabric.server.app import Application
from tests.dashboard.conftest import browser
from tests.worker.facts import eventually


async def test_after_the_first_page_the_templates_of_the_others_are_compiled(
    served: Application,
) -> None:
    async with browser(served) as person:
        assert (await person.get("/lanes")).status_code == 200

    async def all_compiled() -> bool:
        names = {str(name) for _, name in render._env.cache or {}}  # pyright: ignore
        return names == set(render._env.list_templates())  # pyright: ignore

    await eventually(all_compiled, within=60)
