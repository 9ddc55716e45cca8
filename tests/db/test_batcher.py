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


async def test_many_callers_that_ask_again_at_once_are_answered_in_two_halves() -> None:
    sent = await sent_for_callers(200)

    assert sent == [1, 100, 100, 100, 100, 100, 99], "one half works while the other is written"


async def test_few_callers_that_ask_again_at_once_travel_together() -> None:
    sent = await sent_for_callers(10)

    assert sent == [1, 10, 10, 9]


async def echo(requests: Sequence[int]) -> Sequence[int]:
    await asyncio.sleep(0.01)
    return list(requests)


async def test_callers_whose_requests_come_one_by_one_travel_in_halves() -> None:
    sent: list[int] = []

    async def send(requests: Sequence[int]) -> Sequence[int]:
        sent.append(len(requests))
        return await echo(requests)

    batcher: Batcher[int, int] = Batcher(send, max_weight=500, gather_for=30)
    await asyncio.gather(*map(batcher.request, range(8)))

    answers: list[asyncio.Future[int]] = []
    for number in range(8):
        answers.append(batcher.request(number))
        await asyncio.sleep(0.001)
    assert await asyncio.gather(*answers) == list(range(8))

    assert sent == [8, 4, 4]


async def test_a_caller_that_is_alone_does_not_wait_for_others() -> None:
    batcher: Batcher[int, int] = Batcher(echo, max_weight=500, gather_for=30)

    assert [await batcher.request(each) for each in range(3)] == [0, 1, 2]


@pytest.mark.timing
async def test_callers_that_do_not_come_back_are_waited_for_once() -> None:
    clock = asyncio.get_running_loop().time
    batcher: Batcher[int, int] = Batcher(echo, max_weight=500, gather_for=0.5)
    await asyncio.gather(*map(batcher.request, range(8)))

    began = clock()
    for number in range(10):
        await batcher.request(number)

    assert 0.4 < clock() - began < 2.5


async def sent_for_callers(count: int) -> list[int]:
    """The sizes of the batches for callers with three requests each, one of whom is early."""
    sent: list[int] = []
    began = asyncio.Event()

    async def send(requests: Sequence[int]) -> Sequence[int]:
        sent.append(len(requests))
        began.set()
        await asyncio.sleep(0.05)
        return list(requests)

    batcher: Batcher[int, int] = Batcher(send, max_weight=500, in_flight=1, halves=True)

    async def caller(number: int) -> None:
        for _ in range(3):
            assert await batcher.request(number) == number

    early = asyncio.create_task(caller(0))
    await began.wait()
    await asyncio.gather(early, *map(caller, range(1, count)))
    return sent


async def test_answers_for_many_callers_leave_turns_of_the_loop_to_others() -> None:
    turns = 0

    async def send(requests: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        return list(requests)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    batcher: Batcher[int, int] = Batcher(send, max_weight=500, in_flight=1)

    async def answered_in(number: int) -> int:
        await batcher.request(number)
        return turns

    counting = asyncio.create_task(count_turns())
    seen = await asyncio.gather(*map(answered_in, range(100)))
    counting.cancel()

    assert [seen.count(turn) for turn in sorted(set(seen))] == [32, 32, 32, 4]


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
