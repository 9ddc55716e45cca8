"""A control of many executions: found by a search or named, in batches, with a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from flowfabric.cli.confirm import confirmed
from flowfabric.cli.output import complain, counted
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.errors import FlowFabricError, invalid_input
from flowfabric.ids import ExecutionId

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
    ended: bool
    at_most: int
    yes: bool

    def __post_init__(self) -> None:
        if self.ids and self.search != Search():
            raise invalid_input("ID", self.ids[0], "cannot be given together with a search")
        if not self.ids and self.search == Search():
            raise invalid_input("ID", None, "must be given, or a search such as --lane")

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
    found: list[ExecutionId] = []
    cursor: str | None = None
    while len(found) < chosen.at_most:
        page = await engine.search_executions(chosen.search, cursor=cursor, limit=_PAGE)
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
