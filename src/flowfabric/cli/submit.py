"""`ff submit`: submit one execution by its kind, without the code of the application."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Annotated, Any, cast

import msgspec
import typer

from flowfabric.app.task_policy import task_policy
from flowfabric.cli.completion import complete_kind, complete_lane
from flowfabric.cli.connection import resolve, run
from flowfabric.cli.options import parse_duration, parse_tags
from flowfabric.cli.output import AsJson, DatabaseUrl, complain, console, print_json
from flowfabric.cli.progress import with_progress
from flowfabric.client.client import Client
from flowfabric.client.open_engine import on_database
from flowfabric.engine.executions.explanation import ReasonCode
from flowfabric.engine.lifecycle.create_execution import Created, NewExecution, OnConflict
from flowfabric.errors import IdempotencyConflict, NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import Retry


def _duration(text: str) -> Any:
    return typer.Option(help=text, metavar="DURATION", parser=parse_duration)


def submit(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="The kind of the task.", autocompletion=complete_kind),
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="The arguments of the task as JSON.")
    ] = "{}",
    database_url: DatabaseUrl = None,
    lane: Annotated[
        str, typer.Option(help="The lane of the execution.", autocompletion=complete_lane)
    ] = "default",
    namespace: Annotated[str, typer.Option(help="The namespace of the execution.")] = "default",
    priority: Annotated[int, typer.Option(help="0 to 9000; higher is claimed first.")] = 0,
    delay: Annotated[
        timedelta | None, _duration("How long it waits before it can run: 90s, 15m, 2h.")
    ] = None,
    deadline: Annotated[timedelta | None, _duration("After which time it expires.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", "--key", help="The same key submits only once."),
    ] = None,
    window: Annotated[
        timedelta | None,
        typer.Option(
            "--idempotency-window",
            help="How long the key is remembered: 90s, 15m, 2h.",
            metavar="DURATION",
            parser=parse_duration,
        ),
    ] = None,
    on_conflict: Annotated[
        str, typer.Option(help="If the key has another payload or kind: `error` or `return`.")
    ] = "error",
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag, area.name=value; repeat for more.")
    ] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option(help="A capability that the worker must offer; repeat for more."),
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often it is retried if it fails.")] = 0,
    attempt_timeout: Annotated[
        timedelta | None, _duration("How long one attempt may take.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the result and print it.")] = False,
    timeout: Annotated[
        timedelta | None, _duration("Wait at most this long; implies --wait. Then: exit code 3.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit one execution: ff submit charge '{"order": "o-7"}' --wait prints its result.

    The retries, timeouts and lane that the application sets for its task are not known here: give
    them as options, or submit from Python.
    """
    try:
        msgspec.json.decode(payload.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError as error:
        raise invalid_input("payload", payload[:80], f"is not JSON: {error}") from None
    new = NewExecution(
        execution_id=ExecutionId.mint(namespace=namespace, idempotency_key=key),
        execution_kind=kind,
        lane_id=lane,
        namespace=namespace,
        input_payload=payload.encode(),
        payload_encoding="json",
        priority=priority,
        creator_identity="ff submit",
        idempotency_key=key,
        idempotency_window=window,
        on_conflict=cast("OnConflict", on_conflict),
        tags=parse_tags(tag or []),
        required_capabilities=tuple(requires or ()),
        policy=task_policy(
            Retry(max_retries=retries) if retries else None, attempt_timeout, None, None
        ),
        delay=delay,
        deadline=deadline,
    )
    run(
        _submit(
            resolve(database_url),
            new,
            wait=wait or timeout is not None,
            timeout=None if timeout is None else timeout.total_seconds(),
            as_json=as_json,
        )
    )


async def _submit(
    dsn: str, new: NewExecution, *, wait: bool, timeout: float | None, as_json: bool
) -> None:
    async with await Client.connect(dsn, namespace=new.namespace) as client:
        [answer] = await client.engine.create_execution([new])
        if isinstance(answer, IdempotencyConflict):
            raise answer
        await _warn_if_it_waits(client, new, answer.execution_id)
        created = isinstance(answer, Created)
        output: dict[str, object] = {"execution_id": answer.execution_id, "created": created}
        if wait:
            waiting = client.handle(answer.execution_id).result(timeout)
            output["result"] = await with_progress(
                on_database(client.engine), answer.execution_id, waiting
            )
        if as_json:
            print_json(output)
            return
        status = "submitted" if created else "[yellow]already submitted[/]:"
        console.print(f"{status} {answer.execution_id}", soft_wrap=True)
        if wait:
            print_json(output["result"])


async def _warn_if_it_waits(client: Client, new: NewExecution, created: ExecutionId) -> None:
    """Say what keeps the execution from running until something else happens, on standard error."""
    with contextlib.suppress(NotFound):  # it has ended, and was deleted
        for reason in (await client.explain(created)).reasons:
            if reason.why is ReasonCode.LANE_NOT_ACTIVE:
                complain(f"warning: {reason.message}; {reason.remedy}")
    asked = (new.execution_kind, new.lane_id)
    for unserved in await client.engine.find_unserved(new.namespace, [asked]):
        complain(f"warning: {unserved}; the execution waits until one does")
