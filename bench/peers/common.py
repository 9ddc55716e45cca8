"""Shared by all adapters: the scenarios, the worker processes, the measuring of time.

An adapter is one script per system, run with that system's own interpreter; this module therefore
needs only the standard library. `script.py SCENARIO --dsn DSN --n N` prints one line of JSON
on standard output. Throughput counts what the database recorded: the clock of a drain starts
at the first handler call of any worker process and stops at the n-th recorded completion.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from metering import SHORT, Figures, Meter, Payload, milliseconds, percentile, rate
from worker_process import WorkerProcess

NOT_SUPPORTED: Final = 3
POLL_INTERVAL: Final = 0.1
WIDTH: Final = 10
LENGTH: Final = 10
SHAPES: Final = ("fan", "chain", "row", "gathered", "signal", "long")

Submit = Callable[[int, float], Awaitable[object]]


class StalledError(Exception):
    """The system did not finish within the time that the scenario allows."""


class Adapter(ABC):
    """One system under measurement; subclasses implement how it is used."""

    def add_options(self, parse: argparse.ArgumentParser) -> None:
        """Add options that only this system understands; none by default."""
        _ = parse

    def scenario(self, name: str) -> Callable[[argparse.Namespace], Awaitable[Figures]]:
        """What measures the scenario: the method `run_<name>` by default."""
        return getattr(self, "run_" + name.replace("-", "_"))

    @abstractmethod
    async def setup(self, dsn: str) -> None:
        """Install the system's schema into an empty database."""

    @abstractmethod
    async def fill(self, dsn: str, n: int) -> None:
        """Queue `n` executions in the fastest way; this is not measured."""

    @abstractmethod
    async def submit(self, dsn: str, run: Callable[[Submit], Awaitable[float]]) -> float:
        """Open a client, call `run` with a function that submits one execution, close it."""

    async def bulk(self, dsn: str, n: int) -> float:
        """Submit `n` executions with the bulk call; returns the seconds it took."""
        raise NotImplementedError

    async def start_flows(
        self, dsn: str, shape: str, run: Callable[[Submit], Awaitable[float]]
    ) -> float:
        """Open a client, call `run` with a function that starts one flow of `shape`, close it.

        A `fan` is one member, `WIDTH` that wait for it and one that waits for them all; a `chain`
        is `LENGTH` members, each after the one before it. A `row` is one execution of `LENGTH`
        steps, a `gathered` one of one step, `WIDTH` beside each other and one more.
        """
        raise NotImplementedError

    async def signals(
        self, options: argparse.Namespace, run: Callable[[Submit], Awaitable[float]]
    ) -> None:
        """Start `n` handlers that wait for a signal; once all wait, call `run`.

        It is given a function that sends the signal to the handler of a number.
        """
        raise NotImplementedError

    @abstractmethod
    async def work(self, options: argparse.Namespace, meter: Meter, stop: asyncio.Event) -> None:
        """Run one worker until `stop` is set, then let it finish its running handlers."""

    @abstractmethod
    async def unfinished(self, dsn: str) -> bool:
        """Whether any execution has not ended."""

    @abstractmethod
    async def completed_at(self, dsn: str, n: int) -> float | None:
        """The recorded time of the n-th completion in seconds since 1970, or None."""

    async def flows_unfinished(self, dsn: str) -> bool:
        """Whether any flow has not ended."""
        return await self.unfinished(dsn)

    async def flow_times(self, dsn: str) -> list[tuple[float, float]]:
        """The recorded start and end of every completed flow in seconds since 1970, by start."""
        raise NotImplementedError

    # Scenarios

    async def run_setup(self, options: argparse.Namespace) -> Figures:
        await self.setup(options.dsn)
        return {}

    async def run_fill(self, options: argparse.Namespace) -> Figures:
        await self.fill(options.dsn, options.n)
        return {}

    async def run_submit(self, options: argparse.Namespace) -> Figures:
        """S1: one call each, `in_flight` at a time from one client."""

        async def run(submit: Submit) -> float:
            return await gathered(submit, options.n, options.in_flight)

        return rate(options.n, await self.submit(options.dsn, run))

    async def run_submit_paced(self, options: argparse.Namespace) -> Figures:
        """S12: one submit every `every` seconds, no worker: call to acknowledgement."""
        took: list[float] = []

        async def run(submit: Submit) -> float:
            async def timed(i: int, at: float) -> object:
                done = await submit(i, at)
                took.append(time.monotonic() - at)
                return done

            for i in range(20):
                await submit(i, 0.0)
            return await paced(timed, options.seconds, options.every)

        await self.submit(options.dsn, run)
        return milliseconds(took)

    async def run_bulk(self, options: argparse.Namespace) -> Figures:
        """S1: the bulk call."""
        return rate(options.n, await self.bulk(options.dsn, options.n))

    async def run_drain(self, options: argparse.Namespace) -> Figures:
        """S2: `n` are queued; one or more worker processes complete them."""
        workers = await WorkerProcess.start_many(options)
        for worker in workers:
            worker.go()
        try:
            await self.until_finished(options)
        except StalledError:
            for worker in workers:
                worker.kill()
            raise
        seen = [await worker.stop() for worker in workers]
        first = min(figures["first"] for figures in seen if figures["calls"])
        return await self.recorded(options, first)

    async def run_end_to_end(self, options: argparse.Namespace) -> Figures:
        """S3: submit while one worker runs, from the first call to the last completion."""
        began = 0.0

        async def run(submit: Submit) -> float:
            nonlocal began
            began = time.time()
            return await gathered(submit, options.n, options.in_flight)

        async with self.idle_worker(options) as worker:
            await self.submit(options.dsn, run)
            await self.until_finished(options)
        await worker.stop()
        return await self.recorded(options, began)

    async def run_latency(self, options: argparse.Namespace) -> Figures:
        """S4: an idle system, one submit every `every` seconds, submit call to handler start."""

        async def run(submit: Submit) -> float:
            for i in range(5):
                await submit(i, 0.0)
                await asyncio.sleep(options.every)
            await self.until_finished(options)  # the worker has started, however long that took
            return await paced(submit, options.seconds, options.every)

        async with self.idle_worker(options) as worker:
            await self.submit(options.dsn, run)
            await self.until_finished(options)
        return milliseconds((await worker.stop())["delays"])

    async def run_flows(self, options: argparse.Namespace) -> Figures:
        """S5: start `n` flows while one worker runs, from the first call to the last completion.

        Before them `alone` flows run one at a time on the idle system.
        """
        began = 0.0

        async def run(start: Submit) -> float:
            nonlocal began
            for i in range(options.alone):
                await start(i, 0.0)
                await self.until_finished(options, self.flows_unfinished)
            began = time.time()
            return await gathered(start, options.n, options.in_flight)

        async with self.idle_worker(options) as worker:
            await self.start_flows(options.dsn, options.shape, run)
            await self.until_finished(options, self.flows_unfinished)
        await worker.stop()
        times = await self.flow_times(options.dsn)
        if len(times) != options.alone + options.n:
            raise RuntimeError(f"{len(times)} of {options.alone + options.n} flows were completed")
        took = [1000 * (ended - started) for started, ended in times]
        alone, together = sorted(took[: options.alone]), sorted(took[options.alone :])
        return rate(options.n, max(ended for _, ended in times) - began) | {
            "p50": percentile(together, 50),
            "p50_alone": percentile(alone, 50),
        }

    async def run_steps(self, options: argparse.Namespace) -> Figures:
        """D1, D2: `n` executions of steps are queued; one worker process runs them."""

        async def run(start: Submit) -> float:
            return await gathered(start, options.n, options.in_flight)

        await self.start_flows(options.dsn, options.shape, run)
        figures = await self.run_drain(options)
        steps = LENGTH if options.shape == "row" else WIDTH + 2
        return figures | {"rate": figures["rate"] * steps}

    async def run_signals(self, options: argparse.Namespace) -> Figures:
        """D6: `n` handlers wait; one signal each, from the first call to the last completion."""
        began = 0.0

        async def run(send: Submit) -> float:
            nonlocal began
            began = time.time()
            return await gathered(send, options.n, options.in_flight)

        options.shape = "signal"
        async with self.idle_worker(options) as worker:
            await self.signals(options, run)
            await self.until_finished(options, self.flows_unfinished)
        await worker.stop()
        return await self.recorded(options, began)

    async def run_depth(self, options: argparse.Namespace) -> Figures:
        """S7: complete `n` while many more stay queued behind them."""
        worker = await WorkerProcess.start(options, "--stop-after", str(options.n))
        worker.go()
        try:
            await asyncio.wait_for(worker.expect("reached"), options.timeout)
        except TimeoutError:
            worker.kill()
            raise StalledError from None
        figures = await worker.stop()
        return await self.recorded(options, figures["first"])

    async def run_work(self, options: argparse.Namespace) -> Figures:
        """The body of a worker process: ready, wait for `go`, work until `stop`."""
        handler = (options.handler_ms or 0) / 1000
        meter = Meter(options.stop_after, handler=handler, window=options.window or 0.0)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        print("ready", flush=True)
        if await asyncio.to_thread(sys.stdin.readline) != "go\n":
            return {}

        def wait_for_stop() -> None:
            sys.stdin.readline()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait_for_stop, daemon=True).start()
        await self.work(options, meter, stop)
        return meter.figures()

    # Shared steps

    @asynccontextmanager
    async def idle_worker(self, options: argparse.Namespace) -> AsyncGenerator[WorkerProcess]:
        """A worker process that runs and has nothing to do yet; killed if the block raises."""
        worker = await WorkerProcess.start(options)
        worker.go()
        await asyncio.sleep(options.settle)
        try:
            yield worker
        except BaseException:
            worker.kill()
            raise

    async def until_finished(
        self,
        options: argparse.Namespace,
        unfinished: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """Wait until nothing is unfinished; raise `StalledError` after `timeout` seconds."""
        unfinished = unfinished or self.unfinished
        deadline = time.monotonic() + options.timeout
        while await unfinished(options.dsn):
            if time.monotonic() > deadline:
                raise StalledError
            await asyncio.sleep(POLL_INTERVAL)

    async def recorded(self, options: argparse.Namespace, began: float) -> Figures:
        """The rate from `began` to the n-th completion in the database."""
        ended = await self.completed_at(options.dsn, options.n)
        if ended is None:
            raise RuntimeError(f"fewer than {options.n} completions were recorded")
        return rate(options.n, ended - began)


async def gathered(submit: Submit, n: int, in_flight: int) -> float:
    """Submit `n` executions, `in_flight` at a time; returns the seconds until the last answer."""
    numbers = iter(range(n))

    async def caller() -> None:
        for i in numbers:
            await submit(i, 0.0)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return time.perf_counter() - began


async def paced(submit: Submit, seconds: float, every: float) -> float:
    """Submit one execution every `every` seconds, on time even when a call is slow."""
    began = time.monotonic()
    calls: list[asyncio.Task[object]] = []
    for i in range(int(seconds / every)):
        await asyncio.sleep(max(0.0, began + i * every - time.monotonic()))
        calls.append(asyncio.ensure_future(submit(i, time.monotonic())))
    await asyncio.gather(*calls)
    return time.monotonic() - began


def parser() -> argparse.ArgumentParser:
    """The command line that every adapter understands."""
    parse = argparse.ArgumentParser(description="Measure one scenario; print one line of JSON.")
    parse.add_argument("scenario")
    parse.add_argument("--dsn", required=True)
    parse.add_argument("--n", type=int, default=10_000, help="executions")
    parse.add_argument("--workers", type=int, default=1, help="worker processes")
    parse.add_argument("--in-flight", type=int, default=32, help="concurrent submit calls")
    parse.add_argument("--seconds", type=float, default=10.0, help="how long to keep submitting")
    parse.add_argument("--every", type=float, default=0.02, help="seconds between submits")
    parse.add_argument("--settle", type=float, default=1.0, help="seconds for a worker to idle")
    parse.add_argument("--timeout", type=float, default=60.0, help="seconds until it has stalled")
    parse.add_argument("--stop-after", type=int, default=0, help="handler calls (worker process)")
    parse.add_argument("--batch", type=int, help="the system's batch size instead of its best")
    parse.add_argument("--concurrency", type=int, help="concurrency instead of the best")
    parse.add_argument("--shape", choices=SHAPES, help="what a flow or a handler looks like")
    parse.add_argument("--payload", type=int, default=SHORT, help="bytes that pad a payload")
    parse.add_argument("--handler-ms", type=float, help="milliseconds that a handler takes")
    parse.add_argument("--window", type=float, help="seconds by which delays are grouped")
    parse.add_argument("--repeats", type=int, default=20, help="how often a call is measured")
    parse.add_argument("--alone", type=int, default=20, help="flows that run one at a time")
    return parse


def main(adapter: Adapter, run: Callable[[Any], Any] = asyncio.run) -> None:
    """Run the scenario that the command line names, with the event loop runner `run`."""
    parse = parser()
    adapter.add_options(parse)
    options = parse.parse_args()
    Payload.padding = "x" * options.payload
    status = 0
    try:
        print(json.dumps(run(adapter.scenario(options.scenario)(options))), flush=True)
    except StalledError:
        print(json.dumps({"stalled": options.timeout}), flush=True)
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        status = NOT_SUPPORTED if is_missing(error) else 1
    sys.stderr.flush()
    os._exit(status)  # threads of the system must not keep the process alive


def is_missing(error: Exception) -> bool:
    """Whether the system lacks a name: of Python, or of a table, column or function in SQL."""
    kinds = (ImportError, AttributeError, TypeError, NotImplementedError)
    return isinstance(error, kinds) or type(error).__name__.startswith("Undefined")
