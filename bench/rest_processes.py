"""Reads by one server process and by two, and what limited them."""

import asyncio
import os
import re
import time
from statistics import median
from typing import Final

import msgspec

from bench.rest_server import TOKEN, Server, machine_seconds, serving

_CONNECTIONS: Final = 32
_PIPELINED: Final = 8
_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_FULL: Final = 0.9
"""The share of all cores in use from which on the machine is the limit."""


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """How reads were answered: seconds on the clock, and of CPU."""

    count: int
    seconds: float
    client: float
    servers: list[float]
    machine: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cores(self) -> float:
        """How many cores the machine used, for whatever."""
        return self.machine / self.seconds

    def per_request(self, seconds: float) -> float:
        """Microseconds for each request."""
        return seconds / self.count * 1e6

    @property
    def busiest(self) -> float:
        """CPU of the busiest process for each request: it limits the rate once cores are free."""
        return max(self.servers) / self.count

    def __str__(self) -> str:
        servers = " + ".join(f"{self.per_request(each):.0f}" for each in self.servers)
        others = self.machine - sum(self.servers) - self.client
        return (
            f"{self.rate:.0f}/s: servers {servers} µs, client {self.per_request(self.client):.0f},"
            f" Postgres and others {self.per_request(others):.0f}, {self.cores:.1f} cores in use"
        )


async def read_from(server: Server, paths: tuple[str, ...], requests: int) -> Reads:
    """Read. Many requests are sent by one write, so that the client costs next to nothing."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    headers = f"host: {host}\r\nauthorization: Bearer {TOKEN}\r\nx-request-id: bench\r\n\r\n"
    asked = "".join(f"GET {path} HTTP/1.1\r\n{headers}" for path in paths).encode()
    turns = max(1, requests // (_CONNECTIONS * len(paths) * _PIPELINED))

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(turns):
            writer.write(asked * _PIPELINED)
            for _ in range(len(paths) * _PIPELINED):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), head
                found = _LENGTH.search(head)
                assert found is not None, head
                await reader.readexactly(int(found[1]))
        writer.close()

    began, client = time.perf_counter(), time.process_time()
    servers, machine = server.cpu(), machine_seconds()
    await asyncio.gather(*(caller() for _ in range(_CONNECTIONS)))
    return Reads(
        count=turns * _CONNECTIONS * len(paths) * _PIPELINED,
        seconds=time.perf_counter() - began,
        client=time.process_time() - client,
        servers=[after - before for before, after in zip(servers, server.cpu(), strict=True)],
        machine=machine_seconds() - machine,
    )


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Two processes against one."""

    ratio: float
    told: str


async def compare(dsn: str, paths: tuple[str, ...], *, requests: int, rounds: int) -> Compared:
    """Reads a second of two processes against those of one, in turn.

    Where one process with its client and Postgres already uses the whole machine, a second process
    finds no free core, and the rates say nothing about the server. The ratio is then that of the
    CPU which the busiest process needs for a request: the rates that it allows where cores are
    free.
    """
    found: dict[int, list[Reads]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, reads in found.items():
            async with serving(dsn, processes=processes) as server:
                await read_from(server, paths, requests // 8)  # warm
                reads.append(await read_from(server, paths, requests))
    one, two = (
        sorted(each, key=lambda reads: reads.rate)[len(each) // 2] for each in found.values()
    )
    rates = median(each.rate for each in found[2]) / median(each.rate for each in found[1])
    told = f"one {one}; two {two}"
    if two.cores < _FULL * (os.cpu_count() or 1):
        return Compared(ratio=rates, told=f"by rates; {told}")
    by_cpu = median(each.busiest for each in found[1]) / median(each.busiest for each in found[2])
    return Compared(
        ratio=by_cpu, told=f"by CPU, as no core was free; by rates {rates:.2f}x; {told}"
    )
