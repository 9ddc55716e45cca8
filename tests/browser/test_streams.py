"""Frames of an execution in an open page: from the first one on, each once, attempt by attempt."""

from __future__ import annotations

import msgspec
import pytest
from playwright.async_api import Page, expect

from flowfabric import Engine
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimed
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.streams.frame import NewFrame
from tests import given

WORKER = msgspec.structs.replace(given.WORKER, lanes=("talks",), kinds=("talk",))
HIDE = """(hidden) => {
    const seen = {get: () => hidden ? "hidden" : "visible", configurable: true};
    Object.defineProperty(document, "visibilityState", seen);
    document.dispatchEvent(new Event("visibilitychange"));
}"""


class Talk:
    """One execution that a test runs by hand."""

    def __init__(self, engine: Engine, db: Connection, task: Claimed) -> None:
        self.engine, self.db, self.task = engine, db, task

    @property
    def path(self) -> str:
        one = self.task.lease.execution_id
        return f"/executions/{one.partition_key}.{one.uuid}"

    async def say(self, *words: str, frame_type: str = "line") -> None:
        frames = [NewFrame(frame_type=frame_type, payload=word.encode()) for word in words]
        await self.engine.append_frames([Append(lease=self.task.lease, frames=frames)])

    async def retry(self) -> None:
        await self.engine.fail([Failure(lease=self.task.lease, reason="again", retry_after=0)])
        async with self.db.transaction():
            await promote_due(self.db, 10)
        [self.task] = await self.engine.claim(WORKER, ttl=600)


@pytest.fixture
async def talk(ff_engine: Engine, db: Connection) -> Talk:
    new = given.new(execution_kind="talk", lane_id="talks", policy=given.retrying())
    await ff_engine.create_execution([new])
    [task] = await ff_engine.claim(WORKER, ttl=600)
    return Talk(ff_engine, db, task)


async def test_the_first_frames_appear_in_a_page_that_was_open_before_them(
    address: str, bare_page: Page, talk: Talk
) -> None:
    page, frames = bare_page, bare_page.locator("#frames .frame .text")
    await page.goto(address + talk.path)
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    await expect(page.locator("#frames")).to_have_count(0)

    await talk.say("one")
    await expect(frames).to_have_text(["one"])
    await talk.say("two", "three")
    await expect(frames).to_have_text(["one", "two", "three"])

    # A retry is another stream: its frames come instead.
    await talk.retry()
    await talk.say("four")
    await expect(frames).to_have_text(["four"])
    await talk.say("five")
    await expect(frames).to_have_text(["four", "five"])


async def test_a_tab_that_was_hidden_goes_on_after_the_frames_that_it_has(
    address: str, bare_page: Page, talk: Talk
) -> None:
    page, frames = bare_page, bare_page.locator("#frames .frame")
    live = page.locator("header.head")
    await talk.say("0")
    await page.goto(address + talk.path)
    await expect(live).to_have_attribute("data-live", "on")
    for first in range(1, 901, 150):
        await talk.say(*(str(number) for number in range(first, first + 150)))
    await expect(frames).to_have_count(901)

    await page.evaluate(HIDE, True)
    await talk.say("901")
    await page.evaluate(HIDE, False)

    await expect(frames.last).to_contain_text("901")
    await talk.say("902")
    await expect(frames.last).to_contain_text("902")
    texts = await page.locator("#frames .frame .text").all_text_contents()
    assert texts == [str(number) for number in range(903)]


async def test_of_a_long_stream_the_newest_frames_are_shown_and_only_those_of_the_chosen_type(
    address: str, bare_page: Page, talk: Talk
) -> None:
    page, frames = bare_page, bare_page.locator("#frames .frame .text")
    for first in range(0, 2_400, 200):
        await talk.say(*(str(number) for number in range(first, first + 200)))
    await talk.say("careful", frame_type="warning")
    await page.goto(address + talk.path)
    await expect(frames.last).to_have_text("careful")
    await expect(frames.first).to_have_text("2101")

    await page.get_by_role("link", name="warning").click()
    await expect(frames).to_have_text(["careful"])
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    await talk.say("not this one")
    await talk.say("take care", frame_type="warning")
    await expect(frames).to_have_text(["careful", "take care"])
