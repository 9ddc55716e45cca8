"""A port that answers scrapes, in a thread of its own: a blocked event loop is still measured."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from prometheus_client import start_http_server

from flowfabric.errors import ConfigError
from flowfabric.metrics.exposition import registry
from flowfabric.metrics.shared import SharedCounters


class MetricsEndpoint:
    """Answers `GET /metrics` at this address while it is open."""

    def __init__(self, host: str, port: int, *, shared: SharedCounters | None = None) -> None:
        """Raises `ConfigError` if the address cannot be used. Port 0 picks a free one."""
        try:
            self._server, self._thread = start_http_server(port, host, registry(shared))
        except (OSError, OverflowError) as error:
            raise ConfigError("metrics", "--metrics-port", f"{host}:{port}: {error}") from None
        self.host, self.port = host, self._server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()
