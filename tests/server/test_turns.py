"""Callers that ask for much wait for themselves, and not the others for them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from flowfabric.server.turns import MANY, Turns
from tests.worker.facts import eventually


class Requests:
    """Requests of callers that go on until they are told to end."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._ends = turns, dict[int, asyncio.Event]()
        self.running: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, who: str) -> asyncio.Task[None]:
        end = self._ends[len(self.tasks)] = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._run(who, end)))
        return self.tasks[-1]

    async def _run(self, who: str, end: asyncio.Event) -> None:
        self._turns.arrive(who)
        try:
            async with self._turns.turn(who):
                self.running.append(who)
                await end.wait()
                self.running.remove(who)
        finally:
            self._turns.leave(who)

    def end(self) -> None:
        for each in self._ends.values():
            each.set()


@pytest.fixture
def turns() -> Turns:
    return Turns()


async def heavy(turns: Turns, who: str) -> None:
    """The answers of this caller are large."""
    for _ in range(20):
        turns.arrive(who)
        turns.leave(who, 1 << 20)


async def test_one_caller_alone_has_all_that_it_asks_for(turns: Turns) -> None:
    requests = Requests(turns)
    await heavy(turns, "a")
    turns.arrive("127.0.0.1", known=False)  # before a token says who it is
    for _ in range(60):
        requests.send("a")
    await asyncio.sleep(0)
    assert requests.running == ["a"] * 60
    requests.end()
    await asyncio.gather(*requests.tasks)


async def test_small_requests_of_two_callers_do_not_wait(turns: Turns) -> None:
    requests = Requests(turns)
    for number in range(40):
        requests.send("ab"[number % 2])
    await asyncio.sleep(0)
    assert len(requests.running) == 40
    requests.end()
    await asyncio.gather(*requests.tasks)


async def test_who_floods_waits_and_who_asks_for_little_does_not(turns: Turns) -> None:
    requests = Requests(turns)
    await heavy(turns, "a")
    await heavy(turns, "b")
    turns.arrive("honest")
    turns.leave("honest")
    for number in range(60):
        requests.send("ab"[number % 2])
    await asyncio.sleep(0)
    begun = len(requests.running)
    requests.send("honest")
    await asyncio.sleep(0)

    assert begun <= 2, "one was under way when there was much at work, and one has its turn"
    assert "honest" in requests.running
    requests.end()
    await asyncio.gather(*requests.tasks)
    assert requests.running == []


async def test_turns_go_round_and_pass_over_who_has_left(turns: Turns) -> None:
    await heavy(turns, "a")
    await heavy(turns, "b")
    async with AsyncExitStack() as stack:
        turns.arrive("a")
        await stack.enter_async_context(turns.turn("a"))  # now much is at work
        served: list[str] = []

        async def one(who: str) -> None:
            turns.arrive(who)
            async with turns.turn(who):
                served.append(who)
            turns.leave(who)

        waiting = [asyncio.create_task(one(who)) for who in "aaaabb"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await eventually(lambda: _is(len(served) == 5))
    assert served == ["a", "b", "a", "b", "a"] or served == ["a", "b", "b", "a", "a"]


async def _is(fact: bool) -> bool:
    return fact


async def test_a_caller_with_many_open_requests_is_refused_later(turns: Turns) -> None:
    for _ in range(MANY):
        turns.arrive("a")
    await asyncio.wait_for(turns.refuse("a"), 0.5)
    turns.arrive("a")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(turns.refuse("a"), 0.5)
