"""The work of a run, drawn from its seed, and who submits it and notes what was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import msgspec

from flowfabric import Client, Flow
from flowfabric.app.task import Call
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId
from tests.proofs.chaos.schedule import CHAIN, FAN, Size
from tests.proofs.chaos.shop import booked, join, plain, stumble

Piece = Sequence[Call[int]] | Flow


class Acked(msgspec.Struct):
    """What the caller was told of."""

    executions: list[ExecutionId] = msgspec.field(default_factory=list)
    flows: list[UUID] = msgspec.field(default_factory=list)
    unsure: int = 0
    """Calls without an answer; what they asked for may be there or not."""


def pieces(chance: random.Random, size: Size) -> list[Piece]:
    """Batches of calls and flows, in the order in which they are submitted."""

    def seconds() -> float:
        return round(chance.uniform(0.2, 1.8) * size.seconds, 4)

    calls = [booked.call(number, seconds()) for number in range(size.booked)]
    for number in range(size.plain):
        task = stumble if chance.random() < 0.1 else plain
        calls.append(task.call(number, seconds()))
    chance.shuffle(calls)
    found: list[Piece] = list(_batches(chance, calls))
    found += [_fan(seconds) for _ in range(size.fans)]
    found += [_chain(seconds) for _ in range(size.chains)]
    chance.shuffle(found)
    return found


def _batches(chance: random.Random, calls: Sequence[Call[int]]) -> Iterator[Sequence[Call[int]]]:
    at = 0
    while at < len(calls):
        length = chance.randint(1, 20)
        yield calls[at : at + length]
        at += length


def _fan(seconds: Callable[[], float]) -> Flow:
    """1-10-1; the last one returns 55."""
    flow = Flow("fan")
    first = flow.add(plain.call(0, seconds()), name="first")
    spread = [
        flow.add(plain.call(number, seconds()), name=f"n{number}").after(first)
        for number in range(1, FAN - 1)
    ]
    flow.add(join.call(seconds()), name="last").after(*spread)
    return flow


def _chain(seconds: Callable[[], float]) -> Flow:
    flow = Flow("chain")
    before = flow.add(plain.call(1, seconds()), name="m0")
    for number in range(1, CHAIN):
        before = flow.add(plain.call(1, seconds()), name=f"m{number}").after(before)
    return flow


def weight(piece: Piece) -> int:
    """How many executions it is."""
    return len(piece.members) if isinstance(piece, Flow) else len(piece)


async def submit(client: Client, piece: Piece, acked: Acked) -> None:
    """Submit it as a caller does: until it is acknowledged.

    The client repeats a call whose answer was lost; what it gives up on, the caller asks for anew.
    """
    while True:
        try:
            if isinstance(piece, Flow):
                acked.flows.append((await client.start(piece)).flow_id)
            else:
                acked.executions += [h.execution_id for h in await client.submit_many(piece)]
            return
        except FlowFabricError as error:
            if not error.retryable:
                raise
            acked.unsure += 1
