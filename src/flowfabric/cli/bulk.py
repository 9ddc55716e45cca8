"""A control of many executions: found by a search or named, in batches, with a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from flowfabric.cli.confirm import confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.output import complain, counted, say
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.errors import FlowFabricError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState

Work = Callable[[Engine, Sequence[ExecutionId]], Awaitable[Sequence[object]]]
"""A control of many executions: one answer for each, or the error that refused it."""
AtMost = Annotated[int, typer.Option(min=1, max=100_000, help="Of a search, at most so many.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Of a search, also list each refused execution.")
]

BATCH: Final = 500
"""How many executions change in one transaction."""
_PAGE: Final = 1000
_SHOWN: Final = 5


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions a command is for: those named, or those that a search finds."""

    ids: list[str] | None
    search: Search
    ended: bool = False
    state: PublicState | None = None
    """Of a search, only those in this state."""
    at_most: int
    yes: bool

    def __post_init__(self) -> None:
        if self.ids and self.search != Search():
            raise invalid_input("ID", self.ids[0], "cannot be given together with a search")
        if not self.ids and self.search == Search():
            raise invalid_input("ID", None, "must be given, or a search such as --lane")
        given = self.search.public_state
        if self.state is not None and given not in (None, self.state):
            raise invalid_input("state", given.value, f"must be {self.state.value} here")

    @property
    def named(self) -> list[ExecutionId]:
        """The executions that were named, each once."""
        return list(dict.fromkeys(ExecutionId.parse(each) for each in self.ids or ()))


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How the control of one execution ended."""

    execution_id: ExecutionId
    error: str | None = None
    code: str | None = None


async def do_all(engine: Engine, work: Work, verb: str, chosen: Chosen) -> list[BulkAnswer]:
    """Control every execution that was chosen; those of a search once the user agrees."""
    executions = chosen.named
    if not executions:
        executions = await _find(engine, chosen)
        question = f"{verb} {counted(len(executions), 'execution')}?"
        confirmed(question, yes=chosen.yes or not executions)
    done: list[BulkAnswer] = []
    with _progress(len(executions)) as advance:
        for start in range(0, len(executions), BATCH):
            batch = executions[start : start + BATCH]
            done += await _batch(engine, work, batch)
            advance(len(batch))
    return done


def control_each(
    database_url: str | None,
    work: Work,
    verb: tuple[str, str],
    chosen: Chosen,
    *,
    as_json: bool,
    verbose: bool,
    note: Callable[[Any], str] = lambda _: "",
) -> None:
    """Do `work` for all that were chosen, and say how it went; a refusal makes the exit code 1.

    `note` is said after the id of a single execution.
    """
    if len(chosen.ids or ()) == 1:
        [only] = chosen.named
        [answer] = ask(database_url, lambda engine: work(engine, [only]))
        if isinstance(answer, FlowFabricError):
            raise answer
        again = isinstance(answer, Cancelled) and answer.repeated
        say(answer, f"{verb[1]}{' before:' if again else ''} {only}{note(answer)}", as_json)
        return
    done = ask(database_url, lambda engine: do_all(engine, work, verb[0], chosen))
    refused = [each for each in done if each.error]
    changed = len(done) - len(refused)
    listed = [{"execution_id": each.execution_id, "error": each.error} for each in done]
    report = {verb[1]: changed, "executions": listed}
    say(report, f"{verb[1]} {counted(changed, 'execution')}", as_json)
    complain_of(refused, one_by_one=verbose or bool(chosen.ids))
    if refused:
        raise typer.Exit(1)


def complain_of(refused: Sequence[BulkAnswer], *, one_by_one: bool) -> None:
    """The refusals on standard error: each of them, or how many there are of each kind."""
    if one_by_one:
        for each in refused:
            complain(each.error or "")
    elif refused:
        kinds = Counter(each.code or "" for each in refused).most_common()
        summary = ", ".join(f"{number} {kind}" for kind, number in kinds)
        complain(f"refused {counted(len(refused), 'execution')}: {summary} (--verbose lists them)")


async def _batch(engine: Engine, work: Work, batch: Sequence[ExecutionId]) -> list[BulkAnswer]:
    """A refused execution does not stop the others, nor does a batch that fails."""
    try:
        answers = await work(engine, batch)
    except FlowFabricError as error:
        answers = [error] * len(batch)
    return [_done(*each) for each in zip(batch, answers, strict=True)]


def _done(execution_id: ExecutionId, answer: object) -> BulkAnswer:
    if isinstance(answer, FlowFabricError):
        return BulkAnswer(execution_id=execution_id, error=str(answer), code=answer.code)
    return BulkAnswer(execution_id=execution_id)


async def _find(engine: Engine, chosen: Chosen) -> list[ExecutionId]:
    """What the search finds and the command can act on; the first few are shown."""
    search = chosen.search
    if chosen.state is not None:
        search = msgspec.structs.replace(search, public_state=chosen.state)
    found: list[ExecutionId] = []
    cursor: str | None = None
    while len(found) < chosen.at_most:
        page = await engine.search_executions(search, cursor=cursor, limit=_PAGE)
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


@contextmanager
def _progress(total: int) -> Generator[Callable[[int], None]]:
    """For more than one batch: a bar on a terminal, and a line for each batch elsewhere."""
    if total > BATCH and sys.stderr.isatty():
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, transient=True, console=Console(stderr=True)) as progress:
            bar = progress.add_task("", total=total)
            yield lambda number: progress.advance(bar, number)
        return
    done = 0

    def advance(number: int) -> None:
        nonlocal done
        done += number
        if total > BATCH:
            sys.stderr.write(f"  {done} of {total}\n")

    yield advance
