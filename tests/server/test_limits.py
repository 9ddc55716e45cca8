"""What a body may contain is found out without a loop over it; refusals do not come at once."""

import asyncio
import json
import random
import time
from typing import Any

import pytest

from flowfabric.server.limits import (
    MAX_DEPTH,
    REFUSALS_A_SECOND,
    Meter,
    RequestLimits,
    check_depth,
)
from flowfabric.server.problems import RequestProblem

TEXTS = ["", '"', "\\", '\\"', "[[[", ']}"{', 'a\\\\"[', "é", 1, None]


def depth(value: Any) -> int:
    """How deep lists and objects are nested."""
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def nested(chance: random.Random, levels: int) -> Any:
    """A value of about so many levels, with texts that look like brackets and quotes."""
    if levels <= 0 or chance.random() < 0.02:
        return chance.choice(TEXTS)
    members = [nested(chance, levels - 1), nested(chance, min(levels - 1, chance.randint(0, 3)))]
    chance.shuffle(members)
    if chance.random() < 0.5:
        return members
    return {chance.choice('a[{"\\') + str(number): each for number, each in enumerate(members)}


def is_refused(body: bytes) -> bool:
    try:
        check_depth(body)
    except RequestProblem:
        return True
    return False


def test_json_is_refused_from_65_levels_on() -> None:
    chance, told = random.Random(1), {True: 0, False: 0}
    for _ in range(500):
        value = nested(chance, chance.randint(55, 90))
        deep = depth(value) > MAX_DEPTH
        told[deep] += 1
        assert is_refused(json.dumps(value).encode()) == deep
    assert min(told.values()) > 50
    assert not is_refused(b"[" * 64 + b"]" * 64)
    assert is_refused(b"[" * 65 + b"]" * 65)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"{}"] * 2_700_000) + b"]",
        b"[" + b'{"a":"x"},' * 70 + b'"' + b"x" * 8_000_000 + b'"]',
        b"[" + b"[]," * 70 + b'"' + b'\\"' * 4_000_000 + b'"]',
    ],
    ids=["objects", "a text", "quotes"],
)
def test_the_largest_body_holds_nobody_up(body: bytes) -> None:
    began = time.process_time()
    check_depth(body)
    assert time.process_time() - began < 1.0


async def test_the_more_requests_of_a_token_are_refused_at_once_the_later_they_hear_it() -> None:
    meter, stopping, waited = Meter(RequestLimits(requests=0)), asyncio.Event(), list[float]()

    async def refused(who: str) -> None:
        with pytest.raises(RequestProblem, match="more than 0 requests at a time"):
            meter.begin(who, waits=False)
        began = time.monotonic()
        await meter.hold_refusal(who, stopping)
        waited.append(time.monotonic() - began)

    await refused("busy")
    many = REFUSALS_A_SECOND // 4
    await asyncio.gather(*(refused("busy") for _ in range(many)))

    assert min(waited) >= 1 / REFUSALS_A_SECOND
    assert max(waited) >= many / REFUSALS_A_SECOND
    assert meter.refused == many + 1


async def test_a_server_that_stops_answers_refusals_at_once() -> None:
    meter, stopping = Meter(RequestLimits(requests=0)), asyncio.Event()
    with pytest.raises(RequestProblem):
        meter.begin("busy", waits=False)
    held = [asyncio.create_task(meter.hold_refusal("busy", stopping)) for _ in range(1000)]
    await asyncio.sleep(0)

    stopping.set()

    _, late = await asyncio.wait(held, timeout=1)
    assert not late
