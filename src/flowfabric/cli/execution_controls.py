"""`ff executions cancel | replay | priority | revoke | block | unblock | tag`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.executions import (
    Kind,
    Lane,
    Namespace,
    State,
    Tag,
    Within,
    app,
    searched,
)
from flowfabric.cli.output import AsJson, DatabaseUrl, Id, complain, console, counted, print_json
from flowfabric.cli.submit import parse_tags
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.revoke_lease import LeaseRevoked
from flowfabric.errors import FlowFabricError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, EligibilityState

Work = Callable[[Engine, ExecutionId], Awaitable[object]]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Execution ids, {fp:N}:<uuid>.")
]
Reason = Annotated[str | None, typer.Option(help="Why; kept with the event.")]
AtMost = Annotated[int, typer.Option(min=1, max=100_000, help="Of a search, at most so many.")]

_AT_A_TIME: Final = 4
_SHOWN: Final = 5


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    """How one execution of many fared."""

    execution_id: ExecutionId
    error: str | None = None


@app.command()
def cancel(
    execution_id: Ids = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "cancelled with ff",
    database_url: DatabaseUrl = None,
    state: State = None,
    lane: Lane = None,
    kind: Kind = None,
    namespace: Namespace = None,
    tag: Tag = None,
    within: Within = None,
    at_most: AtMost = 10_000,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End executions without a result, wherever they stand: by id, or all that a search finds."""
    if state is not None and state.is_terminal:
        raise invalid_input("state", state.value, "has ended; only what has not can be cancelled")
    search = searched(state, lane, kind, namespace, tag, within)
    _each(
        database_url,
        lambda engine, each: engine.cancel_execution(each, reason=reason, actor=user_at_host()),
        ("cancel", "cancelled"),
        _Chosen(ids=execution_id, search=search, ended=False, at_most=at_most, yes=yes),
        as_json,
    )


@app.command()
def replay(
    execution_id: Ids = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    state: State = None,
    lane: Lane = None,
    kind: Kind = None,
    namespace: Namespace = None,
    tag: Tag = None,
    within: Within = None,
    at_most: AtMost = 10_000,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run executions again that have ended: by id, or all that a search by state finds."""
    if not execution_id and state is None:
        raise invalid_input("state", None, "must be given to replay what a search finds")
    if state is not None and not state.is_terminal:
        raise invalid_input("state", state.value, "has not ended; only what has can be replayed")
    search = searched(state, lane, kind, namespace, tag, within)
    _each(
        database_url,
        lambda engine, each: engine.replay_execution(each, actor=user_at_host(), reason=reason),
        ("replay", "replayed"),
        _Chosen(ids=execution_id, search=search, ended=True, at_most=at_most, yes=yes),
        as_json,
    )


@app.command()
def priority(
    execution_id: Id,
    new_priority: Annotated[
        int, typer.Argument(metavar="PRIORITY", help="0 to 9000; higher is claimed first.")
    ],
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change the place of an execution that waits for a worker."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(
        database_url,
        lambda engine: engine.change_priority(
            wanted, new_priority, actor=user_at_host(), reason=reason
        ),
    )
    _say(answer, f"priority {answer.priority}: {wanted}", as_json)


@app.command()
def revoke(
    execution_id: Id,
    reason: Annotated[str, typer.Option(help="Why.")] = "revoked with ff",
    worker: Annotated[str, typer.Option(help="Only if this worker process holds it.")] = "",
    lease: Annotated[str, typer.Option(help="Only if this is its lease id.")] = "",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take an execution away from the worker that holds it; another may claim it at once."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(
        database_url,
        lambda engine: engine.revoke_lease(
            wanted,
            reason=reason,
            actor=user_at_host(),
            worker_instance_id=worker,
            expected_lease_id=lease,
        ),
    )
    said = (
        f"revoked from {answer.worker_instance_id}: {wanted}"
        if isinstance(answer, LeaseRevoked)
        else f"nothing to revoke ({answer.reason.value}): {wanted}"
    )
    _say(answer, said, as_json)


@app.command()
def block(
    execution_id: Id,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Hold back an execution that waits for a worker, until it is unblocked."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(
        database_url,
        lambda engine: engine.block_execution_for_admission(
            wanted, BlockingReason.PAUSED_BY_OPERATOR, detail=reason, actor=user_at_host()
        ),
    )
    _say(answer, f"blocked {wanted}", as_json)


@app.command()
def unblock(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Let an execution go that was held back."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(
        database_url, lambda engine: engine.unblock_execution(wanted, actor=user_at_host())
    )
    claimable = answer.eligibility_state is EligibilityState.ELIGIBLE_NOW
    also = "" if claimable else ", which waits for others of its flow"
    _say(answer, f"unblocked {wanted}{also}", as_json)


@app.command()
def tag(
    execution_id: Id,
    given: Annotated[str, typer.Argument(metavar="TAG", help="area.name=value.")],
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set one tag of an execution."""
    wanted = ExecutionId.parse(execution_id)
    [(key, value)] = parse_tags([given]).items()
    ask(database_url, lambda engine: engine.set_execution_tag(wanted, key, value))
    _say({"execution_id": wanted, "tags": {key: value}}, f"tagged {wanted}", as_json)


def _say(answer: object, said: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        console.print(said, soft_wrap=True, markup=False)


class _Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions a command is for: those named, or those that a search finds."""

    ids: list[str] | None
    search: Search
    ended: bool
    at_most: int
    yes: bool

    def __post_init__(self) -> None:
        if self.ids and self.search != Search():
            raise invalid_input("ID", self.ids[0], "cannot be given together with a search")
        if not self.ids and self.search == Search():
            raise invalid_input("ID", None, "must be given, or a search such as --lane")


def _each(
    database_url: str | None, work: Work, verb: tuple[str, str], chosen: _Chosen, as_json: bool
) -> None:
    """Do `work` for each that was chosen; for what a search found, once the user agrees."""
    named = list(dict.fromkeys(ExecutionId.parse(each) for each in chosen.ids or ()))
    if len(chosen.ids or ()) == 1:
        answer = ask(database_url, lambda engine: work(engine, named[0]))
        again = isinstance(answer, Cancelled) and answer.repeated
        _say(answer, f"{verb[1]}{' before:' if again else ''} {named[0]}", as_json)
        return
    done = ask(database_url, lambda engine: _agreed(engine, work, verb[0], chosen, named))
    failed = [each for each in done if each.error]
    report = {verb[1]: len(done) - len(failed), "executions": done}
    _say(report, f"{verb[1]} {counted(len(done) - len(failed), 'execution')}", as_json)
    for each in failed:
        complain(each.error or "")
    if failed:
        raise typer.Exit(1)


async def _agreed(
    engine: Engine, work: Work, verb: str, chosen: _Chosen, named: list[ExecutionId]
) -> list[_Done]:
    if named:
        return await _all(engine, work, named)
    found = await _find(engine, chosen)
    confirmed(f"{verb} {counted(len(found), 'execution')}?", yes=chosen.yes or not found)
    return await _all(engine, work, found)


async def _find(engine: Engine, chosen: _Chosen) -> list[ExecutionId]:
    """What the search finds and the command can act on; the first few are shown."""
    found: list[ExecutionId] = []
    cursor: str | None = None
    while len(found) < chosen.at_most:
        page = await engine.search_executions(chosen.search, cursor=cursor, limit=1000)
        found += [
            each.execution_id
            for each in page.executions
            if each.public_state.is_terminal == chosen.ended
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    found = found[: chosen.at_most]
    for each in found[:_SHOWN]:
        sys.stderr.write(f"  {each}\n")
    if len(found) > _SHOWN:
        sys.stderr.write(f"  … and {len(found) - _SHOWN} more\n")
    return found


async def _all(
    engine: Engine,
    work: Work,
    executions: list[ExecutionId],
) -> list[_Done]:
    """A few at a time, with a bar for a long list; one that is refused does not stop the others."""
    turns = asyncio.Semaphore(_AT_A_TIME)
    with Progress(
        transient=True, disable=len(executions) < 50, console=Console(stderr=True)
    ) as progress:
        bar = progress.add_task("", total=len(executions))

        async def one(execution_id: ExecutionId) -> _Done:
            async with turns:
                try:
                    await work(engine, execution_id)
                    return _Done(execution_id=execution_id)
                except FlowFabricError as error:
                    return _Done(execution_id=execution_id, error=str(error))
                finally:
                    progress.advance(bar)

        return list(await asyncio.gather(*(one(each) for each in executions)))
