"""How often a process tries to connect."""

import asyncio
import time

import pytest

from flowfabric.db import connect_limit as module
from flowfabric.db.connect_limit import ConnectLimit, connect_limit


class Server:
    """What is connected to: up or down, and when somebody tried."""

    def __init__(self) -> None:
        self.up = False
        self.tries: list[float] = []
        self.open = self.most = 0

    async def connect(self) -> str:
        self.tries.append(time.monotonic())
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        if not self.up:
            raise ConnectionRefusedError("down")
        return "connected"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(module, "LAST_PAUSE", 0.2)


async def test_those_who_wait_for_an_attempt_share_its_failure() -> None:
    limit, server = ConnectLimit(), Server()

    answers = await asyncio.gather(
        *(limit.open(server.connect) for _ in range(20)), return_exceptions=True
    )

    assert [str(each) for each in answers] == ["down"] * 20
    assert len(server.tries) == 1


async def test_the_pauses_between_failures_grow() -> None:
    limit, server = ConnectLimit(), Server()

    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            await limit.open(server.connect)

    pauses = [later - at for at, later in zip(server.tries, server.tries[1:], strict=False)]
    least = [0.05, 0.1, 0.2, 0.2]
    assert all(pause >= at_least for pause, at_least in zip(pauses, least, strict=True))


async def test_an_attempt_that_is_cancelled_counts() -> None:
    limit, server = ConnectLimit(), Server()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await limit.open(server.connect)

    assert len(server.tries) <= 1


async def test_once_the_server_answers_connections_are_opened_one_after_the_other_at_once() -> None:
    limit, server = ConnectLimit(), Server()
    with pytest.raises(ConnectionRefusedError):
        await limit.open(server.connect)
    server.up = True

    answers = await asyncio.gather(*(limit.open(server.connect) for _ in range(20)))

    assert answers == ["connected"] * 20
    assert server.most == 1
    assert server.tries[-1] - server.tries[1] < 0.05


async def test_each_database_has_a_limit_of_its_own() -> None:
    assert connect_limit("postgresql://one") is connect_limit("postgresql://one")
    assert connect_limit("postgresql://one") is not connect_limit("postgresql://two")
