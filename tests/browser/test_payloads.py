"""How payloads look in a browser."""

from __future__ import annotations

from playwright.async_api import Page

from flowfabric import Engine
from tests import given

LEFT_OF_KEYS = """() => [...document.querySelectorAll(".json .k")].map((key) => {
    for (const each of document.querySelectorAll(".json details")) each.open = true;
    return [key.textContent, Math.round(key.getBoundingClientRect().left)];
})"""


async def test_a_key_is_right_of_the_key_that_it_is_under_also_in_what_is_folded(
    ff_engine: Engine, address: str, bare_page: Page
) -> None:
    new = given.new(
        input_payload=b'{"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}, "g": 2}',
        payload_encoding="json",
    )
    await ff_engine.create_execution([new])

    page = bare_page
    await page.goto(
        f"{address}/executions/{new.execution_id.partition_key}.{new.execution_id.uuid}"
    )
    found = await page.evaluate(LEFT_OF_KEYS)

    left = {key.strip('"'): at for key, at in found}
    assert sorted(left) == list("abcdefg")
    steps = [left[below] - left[above] for above, below in zip("abcde", "bcdef", strict=True)]
    assert min(steps) > 8
    assert max(steps) - min(steps) <= 1
    assert left["a"] == left["g"]
