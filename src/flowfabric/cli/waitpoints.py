"""`ff waitpoints list | token | approve | deny | close`: where outsiders signal executions."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.options import Id, Lane, Namespace, Reason, WaitpointId
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    complain,
    console,
    cut,
    escape,
    listing,
    more,
    print_json,
    say,
    visible,
)
from flowfabric.client.identity import user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.engine.suspensions.list_pending_waitpoints import PendingWaitpoint
from flowfabric.engine.suspensions.send_signal import SignalAnswer
from flowfabric.engine.suspensions.signal_answers import SignalDuplicate
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states.waits import PROACTIVE_CLOSE
from flowfabric.tokens import WaitpointToken
from flowfabric.wire import wire

app = typer.Typer(
    help="List the waitpoints of executions, approve, deny and close them.", no_args_is_help=True
)

_APPROVE: Final = ("approved", "approve")
_DENY: Final = ("rejected", "reject", "denied", "deny")
"""Names that a handler may wait for; the first unless the waitpoint wants another of them."""

As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who decides. Default: the user and host."),
]
SignalName = Annotated[
    str | None, typer.Option("--signal", metavar="NAME", help="The name of the signal.")
]


@app.command("list")
def list_(
    lane: Lane = None,
    namespace: Namespace = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List open waitpoints, newest first; their tokens are not shown."""
    page = ask(
        database_url,
        lambda engine: engine.list_open_waitpoints(
            namespace=namespace, lane_id=lane, cursor=cursor, limit=limit
        ),
    )
    if as_json:
        print_json(page)
        return
    shown = listing(
        page.waitpoints,
        "execution_id",
        "waitpoint_key",
        "question",
        "state",
        "expires_at",
        "execution_kind",
        "required_signal_names",
        "signal_count",
        "waitpoint_id",
        "lane_id",
        "namespace",
        question=lambda each: escape(cut(each.question or "")),
        required_signal_names=lambda each: escape(", ".join(each.required_signal_names)),
        signal_count=lambda each: str(each.signal_count or ""),
    )
    console.print(shown if page.waitpoints else "No open waitpoints.")
    more(page.next_cursor)


@app.command()
def token(
    execution_id: Id,
    waitpoint: WaitpointId,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the token of an open waitpoint, by which an outsider can signal it.

    It is a secret: anyone who has it can signal this waitpoint, and no other.
    """
    wanted = ExecutionId.parse(execution_id)
    found, secret = ask(database_url, lambda engine: _token(engine, wanted, waitpoint))
    if as_json:
        print_json({"waitpoint_id": found.waitpoint_id, "token": secret.reveal()})
        return
    if sys.stdout.isatty():
        complain("warning: this is a secret; anyone who has it can signal the waitpoint")
    sys.stdout.write(visible(secret.reveal()) + "\n")


@app.command()
def approve(
    execution_id: Id,
    waitpoint: WaitpointId,
    as_: As = None,
    signal: SignalName = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Signal a waitpoint `approved` as an operator, without its token.

    If the handler waits for `approve` instead, the signal is named so; --signal gives another name.
    One person who approves twice counts once.
    """
    _decide(database_url, execution_id, waitpoint, as_, signal, _APPROVE, as_json)


@app.command()
def deny(
    execution_id: Id,
    waitpoint: WaitpointId,
    as_: As = None,
    signal: SignalName = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Signal a waitpoint `rejected` as an operator, without its token.

    If the handler waits for `reject`, `denied` or `deny` instead, the signal is named so.
    """
    _decide(database_url, execution_id, waitpoint, as_, signal, _DENY, as_json)


@app.command()
def close(
    execution_id: Id,
    waitpoint: WaitpointId,
    reason: Reason = None,
    as_: As = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Close a waitpoint: it takes no more signals.

    A handler that waits for it goes on as if the waitpoint had expired, and learns the reason.
    """
    wanted, by = ExecutionId.parse(execution_id), _by(as_)

    async def closed(engine: Engine) -> tuple[PendingWaitpoint, ClosedWaitpoint]:
        found = await find_waitpoint(engine, wanted, waitpoint)
        why = PROACTIVE_CLOSE if reason is None else reason
        answer = await engine.close_waitpoint(wanted, found.waitpoint_id, reason=why, actor=by)
        return found, answer

    found, answer = ask(database_url, closed)
    goes_on = ", which goes on" if answer.resumed else ""
    say(wire(answer), f"closed by {by}: {found.waitpoint_key} of {wanted}{goes_on}", as_json)


def _by(as_: str | None) -> str:
    by = user_at_host() if as_ is None else as_
    if not by:
        raise invalid_input("--as", by, "must not be empty")
    return by


def _decide(
    database_url: str | None,
    execution_id: str,
    waitpoint: str,
    as_: str | None,
    signal: str | None,
    usual: tuple[str, ...],
    as_json: bool,
) -> None:
    wanted, by = ExecutionId.parse(execution_id), _by(as_)

    async def decide(engine: Engine) -> tuple[PendingWaitpoint, str, SignalAnswer]:
        found = await find_waitpoint(engine, wanted, waitpoint)
        name = signal or next((each for each in usual if each in _wanted(found)), usual[0])
        answer = await engine.deliver_approval_signal(
            wanted,
            found.waitpoint_id,
            name,
            lane_id=await _lane(engine, wanted),
            idempotency_suffix=by[:100],
            operator_identity=by,
        )
        return found, name, answer

    found, name, answer = ask(database_url, decide)
    facts = {"execution_id": wanted, "waitpoint_id": found.waitpoint_id, "signal_name": name}
    said = f"{name} by {by}: {found.waitpoint_key} of {wanted}, {_effect(answer)}"
    say({**facts, "resumed": answer.resumed, **wire(answer)}, said, as_json)
    if not isinstance(answer, SignalDuplicate) and answer.match == "matcher_failed":
        names = ", ".join(repr(each) for each in _wanted(found))
        complain(f"warning: the execution waits for {names}, not for {name!r}: give --signal")


def _effect(answer: SignalAnswer) -> str:
    if isinstance(answer, SignalDuplicate):
        return "as before; nothing changed"
    if answer.resumed:
        return "which goes on"
    return {
        "matched": "which waits for more",
        "duplicate_satisfier": "which had counted it before, and waits for others",
        None: "which gets it when it waits for it",
    }.get(answer.match, "which does not wait for it")


def _wanted(waitpoint: PendingWaitpoint) -> tuple[str, ...]:
    return waitpoint.required_signal_names


async def find_waitpoint(engine: Engine, execution_id: ExecutionId, given: str) -> PendingWaitpoint:
    """The open waitpoint of this id or key; `name` is enough for the key `name#0`.

    Raises `NotFound` for the execution, and for the waitpoint if it is not open.
    """
    page = await engine.list_pending_waitpoints(execution_id, limit=1000)
    for wanted in (given, f"{given}#0"):
        found = [
            each
            for each in page.waitpoints
            if wanted in (str(each.waitpoint_id), each.waitpoint_key)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(str(each.waitpoint_id) for each in found)
            raise invalid_input("WAITPOINT", given, f"is the key of several: {ids}")
    raise NotFound("waitpoint", given)


async def _token(
    engine: Engine, execution_id: ExecutionId, given: str
) -> tuple[PendingWaitpoint, WaitpointToken]:
    found = await find_waitpoint(engine, execution_id, given)
    token = await engine.read_waitpoint_token(execution_id, found.waitpoint_id)
    if token is None:
        raise NotFound("waitpoint", found.waitpoint_id)
    return found, token


async def _lane(engine: Engine, execution_id: ExecutionId) -> str:
    found = await engine.describe_execution(execution_id)
    if found is None:
        raise NotFound("execution", execution_id)
    return found.lane_id
