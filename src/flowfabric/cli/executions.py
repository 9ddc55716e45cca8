"""`ff executions`: list, show, cancel."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from flowfabric.cli.connection import engine_on, resolve, run
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    ago,
    coloured,
    console,
    print_json,
    table,
)
from flowfabric.cli.submit import parse_tags
from flowfabric.engine.executions.attempts import Attempt
from flowfabric.engine.executions.describe import ExecutionSnapshot
from flowfabric.engine.executions.search import Search, SearchPage
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.wire import wire

app = typer.Typer(help="Look at executions, or end them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The execution id, {fp:N}:<uuid>.")]


@app.command("list")
def list_(
    database_url: DatabaseUrl = None,
    state: Annotated[PublicState | None, typer.Option(help="Only in this state.")] = None,
    lane: Annotated[str | None, typer.Option(help="Only on this lane.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Only of this namespace.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with area.name=value.")] = None,
    within: Annotated[float | None, typer.Option(help="Only of the last so many hours.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """List executions, newest first."""
    search = Search(
        namespace=namespace,
        lane_id=lane,
        execution_kind=kind,
        public_state=state,
        tag=None if tag is None else next(iter(parse_tags([tag]).items())),
        created_within=None if within is None else within * 3600,
    )
    page = run(_search(resolve(database_url), search, cursor, limit))
    if as_json:
        print_json(page)
        return
    shown = table("execution", "kind", "lane", "state", "attempts", "created", "why")
    for found in page.executions:
        shown.add_row(
            str(found.execution_id),
            escape(found.execution_kind),
            escape(found.lane_id),
            coloured(found.public_state),
            str(found.total_attempt_count),
            ago(found.created_at),
            escape((found.reason or "")[:80]),
        )
    console.print(shown if page.executions else "No executions.")
    if page.next_cursor:
        console.print(f"More: --cursor {page.next_cursor}", soft_wrap=True)


@app.command()
def show(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one execution with its attempts and its result."""
    wanted = ExecutionId.parse(execution_id)
    found, attempts, result = run(_describe(resolve(database_url), wanted))
    if as_json:
        print_json({**wire(found), "attempts": attempts, "result": result})
        return
    facts = table("", "")
    for name, value in wire(found).items():
        if value not in (None, {}, []):
            text = coloured(found.public_state) if name == "public_state" else escape(str(value))
            facts.add_row(f"[b]{name}[/b]", text)
    if result is not None:
        facts.add_row("[b]result[/b]", escape(str(wire(result))))
    console.print(facts)
    if attempts:
        console.print(_attempts_table(attempts))


@app.command()
def cancel(
    execution_id: Id,
    reason: Annotated[str, typer.Option(help="Why.")] = "cancelled with ff",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """End an execution without a result, wherever it stands."""
    wanted = ExecutionId.parse(execution_id)
    answer = run(_cancel(resolve(database_url), wanted, reason))
    if as_json:
        print_json({**wire(answer), "public_state": PublicState.CANCELLED})
        return
    console.print("It was cancelled before." if answer.repeated else f"cancelled {wanted}")


def _attempts_table(attempts: list[Attempt]) -> object:
    shown = table("attempt", "type", "outcome", "worker", "started", "took", "why")
    for attempt in attempts:
        took = "" if attempt.ended_at is None else str(attempt.ended_at - attempt.started_at)
        shown.add_row(
            str(attempt.attempt_index),
            attempt.attempt_type.value,
            attempt.outcome.value if attempt.outcome else "running",
            escape(attempt.worker_instance_id),
            ago(attempt.started_at),
            took,
            escape((attempt.failure_reason or "")[:80]),
        )
    return shown


async def _search(dsn: str, search: Search, cursor: str | None, limit: int) -> SearchPage:
    async with engine_on(dsn) as engine:
        return await engine.search_executions(search, cursor=cursor, limit=limit)


async def _describe(
    dsn: str, wanted: ExecutionId
) -> tuple[ExecutionSnapshot, list[Attempt], bytes | None]:
    async with engine_on(dsn) as engine:
        found = await engine.describe_execution(wanted)
        if found is None:
            raise NotFound("execution", wanted)
        attempts = await engine.list_attempts(wanted)
        return found, attempts, await engine.get_execution_result(wanted)


async def _cancel(dsn: str, wanted: ExecutionId, reason: str) -> Cancelled:
    async with engine_on(dsn) as engine:
        return await engine.cancel_execution(wanted, reason=reason)
