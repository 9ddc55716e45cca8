"""Clients and workers of tests over HTTP: a server in a thread stands before the test's database.

With `--through-server` every client and worker that a test connects to a database is connected to
a server over that database instead. `BOTH` names the tests that always run in both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from flowfabric.client import client as clients
from flowfabric.client.open_engine import Connecting, open_engine
from flowfabric.config import DatabaseConfig, is_server_url, require_database_url
from flowfabric.engine.engine import Engine
from flowfabric.loop_thread import LoopThread
from flowfabric.reconcile.loop import reconcile
from flowfabric.remote.address import ServerAddress
from flowfabric.remote.engine import RemoteEngine
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from flowfabric.worker import loop as loops
from flowfabric.worker.link import DatabaseLink, ServerLink, link_to
from flowfabric.worker.settings import WorkerSettings

THROUGH_SERVER = "--through-server"
DIRECT, SERVER = "direct", "server"
_LOCAL = Settings(listen="127.0.0.1:0")


class Servers:
    """One server for each database that is asked for, all on the loop of one thread."""

    def __init__(self) -> None:
        self._loop = LoopThread("servers of tests")
        self._urls: dict[str, str] = {}
        self._engines: dict[str, Engine] = {}
        self._sweeping: dict[str, asyncio.Task[Any]] = {}
        self._open = AsyncExitStack()

    def url(self, dsn: str, *, sweeps: bool = False) -> str:
        """The address of the server over this database, started if there is none."""
        if dsn not in self._urls:
            self._urls[dsn] = self._loop.wait(self._start(dsn))
        if sweeps and dsn not in self._sweeping:
            self._loop.wait(self._sweep(dsn))
        return self._urls[dsn]

    def stop(self) -> None:
        """The servers of this test have stopped."""
        if self._urls:
            self._loop.wait(self._stop())

    def close(self) -> None:
        self._loop.close()

    async def _start(self, dsn: str) -> str:
        engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=8), role="server")
        self._open.push_async_callback(engine.close)
        bound = bind(_LOCAL)
        await self._open.enter_async_context(running(engine, _LOCAL, bound))
        self._engines[dsn] = engine
        return address_of(bound)

    async def _sweep(self, dsn: str) -> None:
        engine = self._engines[dsn]
        engine.listener.start()
        sweeping = reconcile(engine.pool, "server", engine.listener)
        self._sweeping[dsn] = asyncio.create_task(sweeping)

    async def _stop(self) -> None:
        for task in self._sweeping.values():
            task.cancel()
        await asyncio.gather(*self._sweeping.values(), return_exceptions=True)
        await self._open.aclose()
        self._urls, self._engines, self._sweeping = {}, {}, {}
        self._open = AsyncExitStack()


class LinkThroughServer(ServerLink):
    """A link to a server over a database, which is started when the worker connects."""

    def __init__(self, servers: Servers, dsn: str, settings: WorkerSettings, instance: str) -> None:
        super().__init__(ServerAddress(url="http://127.0.0.1:1"), settings, instance)
        self._servers, self._dsn, self._sweeps = servers, dsn, settings.reconcile

    async def connect(self) -> RemoteEngine:
        url = await asyncio.to_thread(self._servers.url, self._dsn, sweeps=self._sweeps)
        self.target = ServerAddress(url=url)
        return await super().connect()


@contextmanager
def through(servers: Servers, patch: pytest.MonkeyPatch) -> Generator[None]:
    """Within the block clients and workers that are given a database are connected to a server."""

    async def open_remote(
        dsn: str | None, options: Connecting, *, token: str | None = None, ca: str | None = None
    ) -> Any:
        if dsn is None or not is_server_url(dsn):
            dsn = await asyncio.to_thread(servers.url, require_database_url(dsn))
        return await open_engine(dsn, options, token=token, ca=ca)

    def link_through(
        target: DatabaseConfig | ServerAddress, settings: WorkerSettings, instance: str
    ) -> DatabaseLink | ServerLink:
        if isinstance(target, ServerAddress):
            return link_to(target, settings, instance)
        return LinkThroughServer(servers, target.dsn, settings, instance)

    patch.setattr(clients, "open_engine", open_remote)
    patch.setattr(loops, "link_to", link_through)
    try:
        yield
    finally:
        patch.undo()
        servers.stop()


BOTH: dict[str, frozenset[str]] = {
    "tests.test_tracing": frozenset(
        {
            "test_submit_claim_steps_and_children_are_one_trace",
            "test_the_members_of_a_flow_belong_to_the_span_of_its_start",
        }
    ),
    "tests.client.test_client": frozenset(
        {
            "test_what_is_submitted_is_run_by_a_worker_and_its_result_comes_back",
            "test_a_submit_may_say_otherwise_than_the_task",
            "test_a_conflict_among_submits_at_once_is_raised_only_where_it_is",
            "test_many_with_a_key_each_are_submitted_once_and_a_conflict_submits_none",
            "test_a_search_finds_by_lane_kind_state_and_tag_newest_first",
            "test_an_operator_acts_in_place_of_a_worker",
        }
    ),
    "tests.client.test_results": frozenset(
        {
            "test_a_failure_tells_reason_and_category",
            "test_many_waiters_of_one_execution_all_hear_of_it",
            "test_a_closed_client_says_so_to_those_who_wait_and_to_those_who_come",
        }
    ),
    "tests.client.test_signals": frozenset(
        {
            "test_a_signal_resumes_the_handler_that_waits_for_it",
            "test_a_wrong_token_source_or_id_is_refused",
            "test_deliveries_can_be_followed",
        }
    ),
    "tests.worker.test_worker": frozenset(
        {
            "test_two_workers_share_the_work_and_nothing_is_done_twice",
            "test_a_worker_is_in_the_registry_while_it_runs_and_not_after",
            "test_running_until_idle_includes_what_the_work_itself_makes",
        }
    ),
    "tests.worker.test_children": frozenset(
        {"test_a_failed_child_fails_its_parent_at_once_and_the_others_are_cancelled"}
    ),
    "tests.worker.test_failures": frozenset(
        {"test_texts_that_cannot_be_stored_are_cleaned_and_not_refused"}
    ),
    "tests.worker.test_lease_loss": frozenset(
        {"test_a_lease_taken_by_another_cancels_the_handler"}
    ),
    "tests.worker.durable.test_steps": frozenset(
        {"test_a_recorded_step_does_not_run_in_the_next_attempt"}
    ),
    "tests.worker.durable.test_budgets": frozenset(
        {"test_a_durable_handler_counts_each_call_once"}
    ),
    "tests.worker.durable.test_streams": frozenset(
        {"test_what_a_handler_emits_is_read_in_order_and_its_state_is_kept"}
    ),
    "tests.worker.durable.test_waitpoints": frozenset({"test_a_signal_of_a_name"}),
}
"""Tests that run in both ways in every run, by module; `make remote` runs all over HTTP."""


def ways(config: pytest.Config, module: str, test: str) -> list[str]:
    """In which ways a test runs."""
    if config.getoption(THROUGH_SERVER):
        return [SERVER]
    return [DIRECT, SERVER] if test in BOTH.get(module, ()) else [DIRECT]
