"""`ff executions resume | wake | steps`: handlers that wait, and what they have recorded."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec
import typer

from flowfabric.cli.bulk import AtMost, Chosen, Verbose, control_each
from flowfabric.cli.confirm import Yes
from flowfabric.cli.connection import ask
from flowfabric.cli.execution_controls import app
from flowfabric.cli.options import Divergent, Id, Ids, Reason, parse_duration, takes_search
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    Limit,
    complain,
    console,
    cut,
    escape,
    json_text,
    listing,
    more,
    print_json,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.journal.list_steps import RecordedStep, StepPage
from flowfabric.engine.operators.wake_execution import Woken
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import JournalState, PublicState
from flowfabric.wire import read_untyped, wire

_LOOK_EVERY: Final = 0.5
_FIRST: Final = -(2**31) + 1


@app.command()
@takes_search
def resume(
    search: Search,
    execution_id: Ids = None,
    divergent: Divergent = False,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            help="After which time they go on: 90s, 15m, 2h.",
            metavar="DURATION",
            parser=parse_duration,
        ),
    ] = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    at_most: AtMost = 10_000,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Let suspended executions go on, whatever they wait for: by id, or all that a search finds.

    A handler that waits for a signal, and has not got it, waits again. After a deployment that
    mends what had diverged: ff executions resume --divergent --kind KIND.
    """
    waits: list[str] = []

    async def work(engine: Engine, some: Sequence[ExecutionId]) -> Sequence[object]:
        waits.extend(await _details(engine, some, beginning="waits for "))
        return await engine.resume_executions(
            some, delay=delay or 0, actor=user_at_host(), reason=reason
        )

    control_each(
        database_url,
        work,
        ("resume", "resumed"),
        Chosen(
            ids=execution_id,
            search=msgspec.structs.replace(search, divergent=divergent),
            state=PublicState.SUSPENDED,
            at_most=at_most,
            yes=yes,
        ),
        as_json=as_json,
        verbose=verbose,
    )
    for wait in waits:
        complain(f"warning: its handler {wait}, and waits again unless that has happened")


@app.command()
@takes_search
def wake(
    search: Search,
    execution_id: Ids = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="The sleep that their handlers are in is over.")
    ] = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    at_most: AtMost = 10_000,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Make delayed executions claimable now: by id, or all that a search finds.

    A handler whose sleep is not over sleeps on, unless --skip is given.
    """
    asleep: list[str] = []

    async def work(engine: Engine, some: Sequence[ExecutionId]) -> Sequence[object]:
        if not skip:
            asleep.extend(await _details(engine, some, beginning="sleeps in "))
        return await engine.wake_executions(some, skip=skip, actor=user_at_host(), reason=reason)

    control_each(
        database_url,
        work,
        ("wake", "woken"),
        Chosen(
            ids=execution_id, search=search, state=PublicState.DELAYED, at_most=at_most, yes=yes
        ),
        as_json=as_json,
        verbose=verbose,
        note=_skipped,
    )
    for sleep in asleep:
        complain(f"warning: it {sleep} and goes on sleeping; --skip ends the sleep")


async def _details(
    engine: Engine, executions: Sequence[ExecutionId], *, beginning: str
) -> list[str]:
    """What the handler of a single execution waits for, in words that begin so."""
    found = await engine.describe_execution(executions[0]) if len(executions) == 1 else None
    detail = None if found is None else found.blocking_detail
    return [detail] if detail is not None and detail.startswith(beginning) else []


def _skipped(woken: Woken) -> str:
    return "" if woken.skipped is None else f", its sleep {woken.skipped} is over"


@app.command()
def steps(
    execution_id: Id,
    values: Annotated[bool, typer.Option("--values", help="Show what each call returned.")] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print calls as they are recorded, to its end."),
    ] = False,
    limit: Limit = 100,
    cursor: Annotated[
        int | None, typer.Option(help="Continue after the last page: the cursor that it printed.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what the handler of an execution has recorded: steps, sleeps, waits, children.

    A handler that runs again does not repeat what is done.
    """
    wanted = ExecutionId.parse(execution_id)
    if follow:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            ask(database_url, lambda engine: _follow(engine, wanted, values, as_json))
        return
    page = ask(
        database_url,
        lambda engine: engine.list_steps(wanted, after_seq=cursor, limit=limit, values=values),
    )
    if as_json:
        rows = [_as_json(step) for step in page.steps]
        print_json({"steps": rows, "next_cursor": page.next_after_seq})
        return
    shown = listing(
        page.steps,
        "key",
        "kind",
        "state",
        "took",
        "tries",
        *(["value"] if values else []),
        "due_at",
        "started_at",
        "size",
        "attempt_index",
        key=lambda step: escape(step.key),
        took=lambda step: "" if step.took is None else f"{step.took:.3f}\u00a0s",
        tries=lambda step: str(step.tries) if step.tries > 1 else "",
        value=lambda step: escape(cut(_value_text(step))),
        due_at=lambda step: _due(step),
        size=lambda step: str(step.size or ""),
        attempt_index=lambda step: str(step.attempt_index),
    )
    console.print(shown if page.steps else "No durable calls are recorded.")
    more(page.next_after_seq)


def _due(step: RecordedStep) -> str:
    """When an open call goes on by itself."""
    if step.due_at is None or step.state is not JournalState.OPEN:
        return ""
    return f"{step.due_at:%Y-%m-%d %H:%M:%S}Z"


def _value_text(step: RecordedStep) -> str:
    if step.value is None:
        return ""
    return json_text(_decoded(step))


def _decoded(step: RecordedStep) -> Any:
    """What the call returned, or the error that ended it."""
    encoding = "json" if step.state is JournalState.FAILED else step.encoding
    return read_untyped(step.value, encoding)


def _as_json(step: RecordedStep) -> dict[str, Any]:
    return {"key": step.key, **wire(step), "value": wire(_decoded(step))}


async def _follow(engine: Engine, wanted: ExecutionId, values: bool, as_json: bool) -> None:
    """Print each call when it is recorded, and again when it is finished."""
    told: dict[int, JournalState] = {}
    while True:
        # Read before the calls: what an ended execution has recorded does not change.
        state = await engine.read_execution_state(wanted)
        if state is None:
            raise NotFound("execution", wanted)
        waiting = [seq for seq, each in told.items() if each is JournalState.OPEN]
        after: int | None = min(waiting) - 1 if waiting else max(told, default=_FIRST)
        while True:
            page: StepPage = await engine.list_steps(
                wanted, after_seq=after, limit=1000, values=values
            )
            for step in page.steps:
                if told.get(step.seq) is not step.state:
                    told[step.seq] = step.state
                    _tell(step, values, as_json)
            after = page.next_after_seq
            if after is None:
                break
        if state.is_terminal:
            return
        await asyncio.sleep(_LOOK_EVERY)


def _tell(step: RecordedStep, values: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_text(_as_json(step)) + "\n")
        sys.stdout.flush()
        return
    took = "" if step.took is None else f" in {step.took:.3f} s"
    due = f" until {_due(step)}" if _due(step) else ""
    value = f" {cut(_value_text(step))}" if values and step.value is not None else ""
    line = f"{step.started_at:%H:%M:%S}Z {step.kind.value:<12} {step.state.value:<6}"
    console.print(escape(f"{line} {step.key}{took}{due}{value}"), soft_wrap=True)
