"""`ff executions cancel | replay | priority | revoke | complete | fail | delay | block | …`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from flowfabric.app.codec import encode_untyped
from flowfabric.cli.bulk import AtMost, Chosen, Verbose, control_each
from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.durations import duration
from flowfabric.cli.executions import app
from flowfabric.cli.options import Id, Ids, Reason, parse_tags, takes_search
from flowfabric.cli.output import AsJson, DatabaseUrl, say
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.operators.revoke_lease import LeaseRevoked
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, EligibilityState


class ReplayStart(StrEnum):
    """What a replayed handler finds recorded."""

    FAILURE = "failure"
    START = "start"


@app.command()
@takes_search
def cancel(
    search: Search,
    execution_id: Ids = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "cancelled with ff",
    database_url: DatabaseUrl = None,
    at_most: AtMost = 10_000,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """End executions without a result, wherever they stand: by id, or all that a search finds."""
    state = search.public_state
    if state is not None and state.is_terminal:
        raise invalid_input("state", state.value, "has ended; only what has not can be cancelled")
    control_each(
        database_url,
        lambda engine, some: engine.cancel_executions(some, reason=reason, actor=user_at_host()),
        ("cancel", "cancelled"),
        Chosen(ids=execution_id, search=search, ended=False, at_most=at_most, yes=yes),
        as_json=as_json,
        verbose=verbose,
    )


@app.command()
@takes_search
def replay(
    search: Search,
    execution_id: Ids = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    at_most: AtMost = 10_000,
    from_: Annotated[
        ReplayStart,
        typer.Option(
            "--from",
            help="Where its handler goes on: before the `failure`, or at the `start` with nothing "
            "recorded.",
        ),
    ] = ReplayStart.FAILURE,
    from_step: Annotated[
        str | None,
        typer.Option(help="Forget the first durable call of this name and all after it."),
    ] = None,
    no_downstream: Annotated[
        bool,
        typer.Option("--no-downstream", help="Leave members that were skipped because of them."),
    ] = False,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run executions again that have ended: by id, or all that a search by state finds."""
    state = search.public_state
    if not execution_id and state is None:
        raise invalid_input("state", None, "must be given to replay what a search finds")
    if state is not None and not state.is_terminal:
        raise invalid_input("state", state.value, "has not ended; only what has can be replayed")
    control_each(
        database_url,
        lambda engine, some: engine.replay_executions(
            some,
            from_=from_.value,
            from_step=from_step,
            downstream=not no_downstream,
            actor=user_at_host(),
            reason=reason,
        ),
        ("replay", "replayed"),
        Chosen(ids=execution_id, search=search, ended=True, at_most=at_most, yes=yes),
        as_json=as_json,
        verbose=verbose,
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
    say(answer, f"priority {answer.priority}: {wanted}", as_json)


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
    say(answer, said, as_json)


@app.command()
def complete(
    execution_id: Id,
    result: Annotated[str | None, typer.Option(help="The result, as JSON.")] = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a running execution with a result, in place of its worker."""
    wanted = ExecutionId.parse(execution_id)
    stored, encoding = encode_untyped(_json(result))

    async def override(engine: Engine) -> Completed:
        await _require(engine, wanted)
        confirmed(f"Complete {wanted} in place of its worker?", yes=yes)
        return await engine.override_complete(
            wanted, result=stored, encoding=encoding, reason=reason, actor=user_at_host()
        )

    answer = ask(database_url, override)
    say(answer, f"completed {'before: ' if answer.repeated else ''}{wanted}", as_json)


@app.command()
def fail(
    execution_id: Id,
    reason: Annotated[str, typer.Option(help="Why.")] = "failed with ff",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Fail a running execution in place of its worker, without a retry."""
    wanted = ExecutionId.parse(execution_id)

    async def override(engine: Engine) -> TerminalFailed:
        await _require(engine, wanted)
        confirmed(f"Fail {wanted} in place of its worker?", yes=yes)
        return await engine.override_fail(wanted, reason=reason, actor=user_at_host())

    answer = ask(database_url, override)
    say(answer, f"failed {'before: ' if answer.repeated else ''}{wanted}", as_json)


@app.command()
def delay(
    execution_id: Id,
    time: Annotated[str, typer.Argument(metavar="DURATION", help="Such as 90s, 15m or 2h.")],
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take a running execution away from its worker; the attempt goes on after the delay."""
    wanted = ExecutionId.parse(execution_id)
    length = duration(time, field="DURATION")

    async def override(engine: Engine) -> Delayed:
        await _require(engine, wanted)
        confirmed(f"Take {wanted} away from its worker for {time}?", yes=yes)
        return await engine.override_delay(
            wanted, delay=length, reason=reason, actor=user_at_host()
        )

    say(ask(database_url, override), f"delayed {wanted}", as_json)


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
    say(answer, f"blocked {wanted}", as_json)


@app.command()
def unblock(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Let an execution go that was held back."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(
        database_url, lambda engine: engine.unblock_execution(wanted, actor=user_at_host())
    )
    claimable = answer.eligibility_state is EligibilityState.ELIGIBLE_NOW
    also = "" if claimable else ", which waits for others of its flow"
    say(answer, f"unblocked {wanted}{also}", as_json)


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
    ask(
        database_url,
        lambda engine: engine.set_execution_tag(wanted, key, value, actor=user_at_host()),
    )
    say({"execution_id": wanted, "tags": {key: value}}, f"tagged {wanted}", as_json)


def _json(text: str | None) -> object:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise invalid_input("--result", text, f"is not JSON: {error}") from None


async def _require(engine: Engine, execution_id: ExecutionId) -> None:
    """Raise `NotFound` before anything is asked."""
    if await engine.read_execution_state(execution_id) is None:
        raise NotFound("execution", execution_id)
