"""The client for scripts and blocking frameworks: the async one, driven on a background loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar

from flowfabric.client.client import Client as AsyncClient
from flowfabric.client.client import Options
from flowfabric.client.enqueue import enqueue_blocking
from flowfabric.client.handle import Handle as AsyncHandle
from flowfabric.client.task import Call
from flowfabric.engine.events.history import Occurrence
from flowfabric.engine.executions.attempts import Attempt
from flowfabric.engine.executions.describe import ExecutionSnapshot
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.executions.search import SearchPage
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState

R = TypeVar("R")
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="flowfabric sync client", daemon=True
        )
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Handle(Generic[R]):
    """One execution: wait for it, look at it, cancel it."""

    def __init__(self, loop: _Loop, handle: AsyncHandle[R]) -> None:
        self._loop, self._handle = loop, handle
        self.execution_id = handle.execution_id
        self.created = handle.created

    def result(self, timeout: float | timedelta | None = None) -> R:
        """What it returned; blocks until it has ended."""
        return self._loop.wait(self._handle.result(timeout))

    def state(self) -> PublicState:
        return self._loop.wait(self._handle.state())

    def describe(self) -> ExecutionSnapshot:
        return self._loop.wait(self._handle.describe())

    def attempts(self) -> list[Attempt]:
        return self._loop.wait(self._handle.attempts())

    def cancel(self, reason: str = "cancelled by its submitter") -> None:
        self._loop.wait(self._handle.cancel(reason))

    def replay(self, reason: str | None = None) -> None:
        self._loop.wait(self._handle.replay(reason))

    def explain(self) -> Explanation:
        return self._loop.wait(self._handle.explain())

    def history(self) -> list[Occurrence]:
        return self._loop.wait(self._handle.history())

    def set_tag(self, key: str, value: str) -> None:
        self._loop.wait(self._handle.set_tag(key, value))


class Client:
    """Blocking twin of `flowfabric.Client`; may be shared by threads."""

    def __init__(self, loop: _Loop, client: AsyncClient) -> None:
        self._loop, self._client = loop, client

    @classmethod
    def connect(cls, dsn: str | None = None, **options: Any) -> Self:
        """Connect to `dsn`, else to `FF_DATABASE_URL`; options as for `flowfabric.Client`."""
        loop = _Loop()
        try:
            return cls(loop, loop.wait(AsyncClient.connect(dsn, **options)))
        except BaseException:
            loop.close()
            raise

    def close(self) -> None:
        self._loop.wait(self._client.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        call: Call[R],
        *,
        idempotency_key: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        delay_until: datetime | None = None,
        deadline: float | timedelta | None = None,
        deadline_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
        lane: str | None = None,
        conn: Any = None,
    ) -> Handle[R]:
        """Submit one call; with `conn`, a blocking connection, as part of its transaction."""
        options = Options(
            idempotency_key=idempotency_key,
            priority=priority,
            delay=delay,
            delay_until=delay_until,
            deadline=deadline,
            deadline_at=deadline_at,
            tags=tags or {},
            lane=lane,
        )
        [handle] = self._submit([call], options, conn)
        return handle

    def submit_many(
        self, calls: Sequence[Call[R]], *, conn: Any = None, **options: Any
    ) -> list[Handle[R]]:
        """Submit many calls in one statement, all or none."""
        return self._submit(calls, Options(**options), conn)

    def handle(self, execution_id: ExecutionId | str) -> Handle[Any]:
        """A handle on an execution submitted elsewhere."""
        return Handle(self._loop, self._client.handle(execution_id))

    def describe(self, execution_id: ExecutionId | str) -> ExecutionSnapshot:
        return self._loop.wait(self._client.describe(execution_id))

    def cancel(self, execution_id: ExecutionId | str, reason: str) -> None:
        self._loop.wait(self._client.cancel(execution_id, reason))

    def explain(self, execution_id: ExecutionId | str) -> Explanation:
        return self._loop.wait(self._client.explain(execution_id))

    def replay(self, execution_id: ExecutionId | str, reason: str | None = None) -> None:
        self._loop.wait(self._client.replay(execution_id, reason))

    def search(self, **search: Any) -> SearchPage:
        """As `flowfabric.Client.search`."""
        return self._loop.wait(self._client.search(**search))

    def _submit(self, calls: Sequence[Call[R]], options: Options, conn: Any) -> list[Handle[R]]:
        client = self._client
        if conn is None:
            handles = self._loop.wait(client.submit_given(calls, options))
        else:
            news = [client.execution_of(call, options) for call in calls]
            answers = enqueue_blocking(conn, news, partitions=client.engine.partitions)
            handles = client.handles(calls, news, answers, certain=False)
        return [Handle(self._loop, handle) for handle in handles]
