"""The metrics of `ff worker`: a port for Prometheus, also for several processes together."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from flowfabric.cli.extras import require
from flowfabric.config import DatabaseConfig

if TYPE_CHECKING:
    from flowfabric.metrics.shared import SharedCounters

log: Final = logging.getLogger("flowfabric.metrics")

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Answer Prometheus at this port; needs flowfabric[metrics]. Default: no port.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", help="The address of that port; 0.0.0.0 for every one.")
]
MetricsDatabase = Annotated[
    bool,
    typer.Option(
        "--metrics-database",
        help="Also read how much waits in each lane, every 15 s. One process of a deployment is"
        " enough; a server does it too.",
    ),
]


class MetricsSettings(msgspec.Struct, frozen=True):
    """Where to answer scrapes, and whether to read gauges from the database."""

    port: int | None
    host: str
    database: DatabaseConfig | None
    """Where to read gauges; None: nowhere."""


@contextlib.contextmanager
def metrics_of_process(settings: MetricsSettings) -> Generator[None]:
    """Inside the block this process is measured: by its own port, or by that of its supervisor.

    Raises `ConfigError` if the extra is missing or the address cannot be used.
    """
    if settings.port is None:
        yield
        return
    _check_installed()
    from flowfabric.metrics.shared import SharedCounters

    shared = SharedCounters.of_environment()
    if shared is None:
        with _answering(settings, None):
            yield
        return
    shared.start()
    try:
        yield
    finally:
        shared.stop()


@contextlib.contextmanager
def metrics_of_supervisor(settings: MetricsSettings) -> Generator[SharedCounters | None]:
    """Inside the block one port answers for all processes that share these counters.

    None without a port. Raises as `metrics_of_process`.
    """
    if settings.port is None:
        yield None
        return
    _check_installed()
    from flowfabric.metrics.shared import SharedCounters

    with tempfile.TemporaryDirectory(prefix="flowfabric-metrics-") as directory:
        shared = SharedCounters(Path(directory))
        with _answering(settings, shared):
            yield shared


@contextlib.contextmanager
def _answering(settings: MetricsSettings, shared: SharedCounters | None) -> Generator[None]:
    from flowfabric.metrics.endpoint import MetricsEndpoint
    from flowfabric.metrics.gauges_thread import GaugesThread

    with contextlib.ExitStack() as stack:
        endpoint = MetricsEndpoint(settings.host, settings.port or 0, shared=shared)
        stack.enter_context(endpoint)
        if settings.database is not None:
            stack.enter_context(GaugesThread(settings.database))
        address = f"http://{endpoint.host}:{endpoint.port}/metrics"
        log.info("metrics at %s", address, extra={"addr": address})
        yield


def _check_installed() -> None:
    require(("prometheus_client",), field="metrics", value="--metrics-port", extra="metrics")
