"""The process of a server: it boots, listens, drains when it is told to stop, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncGenerator
from types import FrameType
from typing import Any, Final

import uvicorn

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.db.migrate import migrate
from flowfabric.engine.engine import Engine
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import KeyAlreadySeeded
from flowfabric.errors import ConfigError, TransportError, Unavailable
from flowfabric.metrics import SharedCounters
from flowfabric.reconcile.loop import ASK_AT_MOST_EVERY, reconcile
from flowfabric.server.app import Application, Mounting, app
from flowfabric.server.protocol import http_protocol
from flowfabric.server.settings import LISTEN, Settings
from flowfabric.worker.frozen_heap import frozen_heap

log: Final = logging.getLogger("flowfabric.server")
SECRET: Final = "FF_WAITPOINT_HMAC_SECRET"  # noqa: S105  the name of a variable
KID: Final = "FF_WAITPOINT_HMAC_KID"
LANES: Final = "FF_LANES"
SOCKET: Final = "FF_LISTEN_FD"
"""The number of a socket that a supervisor has bound."""
POOL_SIZE: Final = 8
_CONNECT_WITHIN: Final = 30.0
_BACKLOG: Final = 2048
_LISTENING_WITHIN: Final = 5.0
_SPREADS: Final = sys.platform == "linux"
"""Does the system spread connections over the sockets that share an address?"""
_LATE_AFTER: Final = 3 * ASK_AT_MOST_EVERY
"""Seconds without a look for what is due, after which the sweeps are late."""


class Serving(uvicorn.Server):
    """A uvicorn server whose streams and waits end before it waits for its requests."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; a second one ends the process at once."""
        if self._application.services.stopping:
            os._exit(128 + sig)
        self._application.services.stopping = True
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Drain, and then stop serving."""
        self._application.services.stopping = True
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        services = self._application.services
        log.info("draining")
        await asyncio.sleep(services.settings.drain_delay)  # balancers notice that it is not ready
        services.draining.set()
        self.should_exit = True


def serving(application: Application) -> Serving:
    """A server of this application, which does not listen yet."""
    settings = application.services.settings
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # `serve` says the same
    config = uvicorn.Config(
        application,  # pyright: ignore[reportArgumentType]  its types name every ASGI message
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        http=http_protocol(),
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=60,
        timeout_graceful_shutdown=round(settings.shutdown_grace) or 1,
        backlog=_BACKLOG,
    )
    return Serving(config, application)


def bind(settings: Settings, *, any_port: bool = False) -> socket.socket:
    """A socket at the address of the settings, or one that a supervisor has bound.

    It does not listen yet: nobody can connect before the server has booted. Raises `ConfigError` if
    the address cannot be used. With `any_port` a port that is taken is replaced by a free one.
    """
    inherited = os.environ.get(SOCKET)
    if inherited is not None:
        return _own(socket.socket(fileno=int(inherited)))
    host, port = settings.address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            bound.bind((host, port))
        except OSError:
            if not any_port:
                raise
            bound.bind((host, 0))
    except OSError as error:
        bound.close()
        raise ConfigError("server", LISTEN, f"{settings.listen}: {error.strerror}") from None
    bound.setblocking(False)
    return bound


def share(bound: socket.socket) -> None:
    """Processes that inherit the socket may have sockets of their own at its address.

    It is bound already, so another server at the address was refused.
    """
    if _SPREADS:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _own(inherited: socket.socket) -> socket.socket:
    """A socket of this process alone, if the inherited one may be shared so; else that one.

    The system spreads new connections over the sockets of an address. From one socket of several
    processes whichever wakes first accepts nearly all, and these connections stay.
    """
    if not _SPREADS or not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
        return inherited
    own = socket.socket(inherited.family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    own.bind(inherited.getsockname())
    own.setblocking(False)
    inherited.close()  # the supervisor has it still
    return own


def _listen(bound: socket.socket) -> None:
    try:
        bound.listen(_BACKLOG)
    except OSError as error:  # another process listens there since it was bound
        raise ConfigError("server", LISTEN, f"{address_of(bound)}: {error.strerror}") from None


def address_of(bound: socket.socket) -> str:
    """The URL of the socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# Boot.


async def boot(config: DatabaseConfig, settings: Settings, *, migrating: bool = True) -> Engine:
    """An engine on a database that is ready: schema, keys and lanes.

    Raises `ConfigError` if nobody could call the server, or everybody could.
    """
    engine = await _connect(config, migrating=migrating)
    try:
        await _seed_key(engine)
        lanes = [each.strip() for each in os.environ.get(LANES, "").split(",") if each.strip()]
        if lanes:
            await engine.register_lanes(lanes, registered_by="server")
        await _check_open(engine, settings)
    except BaseException:
        await engine.close()
        raise
    return engine


async def _connect(config: DatabaseConfig, *, migrating: bool) -> Engine:
    """Connect; a database that is not there yet is waited for, and an older schema migrated."""
    until = time.monotonic() + _CONNECT_WITHIN
    pause = 0.2
    while True:
        try:
            return await Engine.connect(config, role="server")
        except TransportError as error:
            if time.monotonic() + pause > until:
                raise
            log.warning("the database does not answer yet: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)
        except Unavailable as error:
            if not migrating or error.operation != "schema_version":
                raise
            migrating = False
            await migrate(config.dsn)


async def _seed_key(engine: Engine) -> None:
    kid, secret = os.environ.get(KID) or "k1", os.environ.get(SECRET)
    if secret is None:
        if (await engine.list_waitpoint_hmac_kids()).current_kid is not None:
            return
        secret = secrets.token_hex(32)
    answer = await engine.seed_waitpoint_hmac_secret(kid, secret)
    if isinstance(answer, KeyAlreadySeeded) and not answer.same_secret and SECRET in os.environ:
        raise ConfigError("server", SECRET, f"key {kid!r} has another secret in the database")


async def _check_open(engine: Engine, settings: Settings) -> None:
    if settings.api_tokens or await engine.has_tokens():
        return
    if settings.insecure:
        log.warning("no tokens: everybody who can connect to %s is an admin", settings.listen)
        return
    if not settings.is_local:
        why = (
            f"{settings.listen} is not on this machine only, and there are no tokens; "
            "make one by `ff tokens create NAME --role admin`, or give --insecure"
        )
        raise ConfigError("server", LISTEN, why)
    log.info("no tokens: everybody on this machine is an admin")


# Running.


async def serve(
    engine: Engine,
    settings: Settings,
    bound: socket.socket,
    *,
    sweeps: bool = True,
    mounting: Mounting | None = None,
) -> None:
    """Serve on the socket until a signal stops it."""
    application = app(engine, settings, mounting=mounting)
    async with _beside(application, sweeps=sweeps):
        _listen(bound)
        log.info("serving at %s", address_of(bound), extra={"addr": address_of(bound)})
        with frozen_heap():
            await serving(application).serve(sockets=[bound])


@contextlib.asynccontextmanager
async def running(
    engine: Engine,
    settings: Settings,
    bound: socket.socket,
    *,
    mounting: Mounting | None = None,
) -> AsyncGenerator[Application]:
    """Serve on the socket while the block runs; signals are left to the caller."""
    application = app(engine, settings, mounting=mounting)
    server = serving(application)
    _listen(bound)
    task = asyncio.create_task(server._serve([bound]), name="flowfabric server")  # pyright: ignore
    try:
        yield application
    finally:
        application.services.stopping = True
        application.services.draining.set()
        server.should_exit = True
        await task


async def _listening(listener: Listener) -> None:
    """Notifications are heard; a listener that does not connect in time goes on trying."""
    listener.start()
    if listener.is_started:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LISTENING_WITHIN):
                await listener.connected.wait()


@contextlib.asynccontextmanager
async def _beside(application: Application, *, sweeps: bool) -> AsyncGenerator[None]:
    """What a process does beside its requests: sweeps, and counters that processes share."""
    services = application.services
    services.shared_counters = shared = SharedCounters.of_environment()
    sweeping: asyncio.Task[Any] | None = None
    if shared is not None:
        shared.start()
    await _listening(services.engine.listener)
    if sweeps:
        name = f"server-{socket.gethostname()}-{os.getpid()}"
        looked = [time.monotonic()]

        def note_look() -> None:
            looked[0] = time.monotonic()

        engine = services.engine
        sweeping = asyncio.create_task(
            reconcile(engine.pool, name, engine.listener, on_look=note_look)
        )
        services.sweeps_seen = lambda: (
            not sweeping.done() and time.monotonic() - looked[0] < _LATE_AFTER
        )
    try:
        yield
    finally:
        if sweeping is not None:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        if shared is not None:
            shared.stop()
