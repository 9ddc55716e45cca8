"""Requests travel together, and none is left behind."""

import asyncio
from collections.abc import Sequence

import pytest

from flowfabric.db.batcher import Batcher

pytestmark = pytest.mark.timeout(20)


async def test_a_request_that_is_made_as_another_is_answered_is_sent() -> None:
    sent: list[list[int]] = []

    async def send(requests: Sequence[int]) -> Sequence[int]:
        sent.append(list(requests))
        await asyncio.sleep(0)
        return [each * 10 for each in requests]

    batcher: Batcher[int, int] = Batcher(send, max_weight=10, in_flight=1)

    assert [await batcher.request(each) for each in range(50)] == list(range(0, 500, 10))
    assert sent == [[each] for each in range(50)]


async def test_callers_that_ask_again_at_once_are_answered_in_two_halves() -> None:
    sent: list[int] = []

    async def send(requests: Sequence[int]) -> Sequence[int]:
        sent.append(len(requests))
        await asyncio.sleep(0.01)
        return list(requests)

    batcher: Batcher[int, int] = Batcher(send, max_weight=500, in_flight=1, halves=True)

    async def caller(number: int) -> None:
        for _ in range(3):
            await batcher.request(number)

    await asyncio.gather(*map(caller, range(100)))
    few = asyncio.gather(*map(caller, range(10)))
    await few

    assert sent == [50] * 6 + [10] * 3, "one half is computed while the other is written"


async def test_requests_that_come_meanwhile_go_into_the_next_batch() -> None:
    sent: list[list[int]] = []

    async def send(requests: Sequence[int]) -> Sequence[int]:
        sent.append(list(requests))
        await asyncio.sleep(0.01)
        return list(requests)

    batcher: Batcher[int, int] = Batcher(send, max_weight=3, in_flight=1)

    async def late(number: int) -> int:
        await asyncio.sleep(0.001)
        return await batcher.request(number)

    answers = await asyncio.gather(batcher.request(0), *(late(each) for each in range(1, 6)))

    assert answers == list(range(6))
    assert sent == [[0], [1, 2, 3], [4, 5]]
