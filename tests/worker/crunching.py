"""Tasks that run in processes of their own; imported there by this name."""

import asyncio
import logging
import os
import threading
import time
from typing import Any

from flowfabric import App, Client, Ctx, Fail, Retry, RetryLater

app = App()


@app.task("square", executor="process")
def square(ctx: Ctx, number: int) -> int:
    return number * number


@app.task("raw", executor="process")
def raw(ctx: Ctx, data: bytes) -> bytes:
    return data[::-1]


@app.task("where", executor="process")
def where(ctx: Ctx) -> tuple[int, str, dict[str, str]]:
    return os.getpid(), str(ctx.execution_id), ctx.tags


@app.task("talks", executor="process")
def talks(ctx: Ctx) -> str:
    print("to standard output", flush=True)  # noqa: T201
    os.write(1, b"\x00\x01 noise, unbuffered\n")
    return "heard"


@app.task("reports", executor="process")
def reports(ctx: Ctx, seconds: float) -> None:
    ctx.sync.progress(40, "half way")
    time.sleep(seconds)


@app.task("raises", executor="process", retry=Retry(max_retries=2, initial=0))
def raises(ctx: Ctx, how: str) -> None:
    if how == "fail":
        raise Fail("declined", category="card", retryable=False)
    if how == "retry" and ctx.attempt_index == 0:
        raise RetryLater(after=0)
    if how == "error":
        raise RuntimeError("outer") from LookupError("inner")
    if how == "exit":
        raise SystemExit(3)
    if how == "interrupt":
        raise KeyboardInterrupt


@app.task("breeds", executor="process", retry=Retry(max_retries=3, initial=0))
def breeds(ctx: Ctx) -> list[int]:
    return ctx.sync.gather(square.many(range(3)))


@app.task("dies", executor="process")
def dies(ctx: Ctx) -> None:
    os._exit(9)


@app.task("endless", executor="process", timeout=1.0)
def endless(ctx: Ctx, path: str) -> None:
    with open(path, "a") as file:
        while True:
            file.write(f"{os.getpid()}\n")
            file.flush()
            time.sleep(0.02)


@app.task("waits", executor="process")
def waits(ctx: Ctx, path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)


@app.task("odd", executor="process")
def odd(ctx: Ctx) -> Any:
    return object()


@app.task("collects", executor="process", retry=Retry(max_retries=0))
def collects(ctx: Ctx) -> dict[str, int]:
    return ctx.sync.upstreams()


@app.task("troubled", executor="process", retry=Retry(max_retries=0))
def troubled(ctx: Ctx, path: str) -> str:
    """The first time its own client finds no database."""
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        asyncio.run(Client.connect("postgresql://nobody@127.0.0.1:9/none"))
    return "done"


@app.task("logs", executor="process")
def logs(ctx: Ctx) -> int:
    """Logs from its own thread and from another, and from a process that it forks."""
    log = logging.getLogger("shop.images")
    log.debug("not wanted")
    log.info("reading %s", "cat.jpg", extra={"size": 128, "of": ["a", "list"]})
    if (forked := os.fork()) == 0:
        log.warning("from a fork")
        os._exit(0)
    os.waitpid(forked, 0)
    try:
        raise KeyError("x")
    except KeyError as error:
        told = {"exc_info": error}
        thread = threading.Thread(target=log.error, args=("cannot read",), kwargs=told)
        thread.start()
        thread.join()
    return os.getpid()
