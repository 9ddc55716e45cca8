"""Ids of executions on the command line: `{fp:N}:<uuid>`, or the uuid alone."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import typer

from flowfabric.cli.connection import ask
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId, parse_uuid


def full_id(context: typer.Context, given: str) -> str:
    """The id in full; a uuid alone is looked up in the database of the command.

    Raises `BadParameter` for a text that is not an id, or a uuid that several executions have, and
    `NotFound` for a uuid that none has.
    """
    return full_ids(context, [given])[0]


def full_ids(context: typer.Context, given: Sequence[str] | None) -> list[str]:
    """The ids in full, in the order given; all uuids are looked up in one statement."""
    if context.resilient_parsing:
        return list(given or ())
    parsed = [_parse(each) for each in given or ()]
    unknown = [each for each in parsed if isinstance(each, UUID)]
    found: dict[UUID, list[ExecutionId]] = {}
    if unknown:
        url: str | None = context.params.get("database_url")
        found = ask(url, lambda engine: engine.locate_executions(unknown))
    return [str(each if isinstance(each, ExecutionId) else _only(each, found)) for each in parsed]


def _parse(given: str) -> ExecutionId | UUID:
    try:
        if given.startswith("{"):
            return ExecutionId.parse(given)
        return parse_uuid(given, field="ID")
    except ValidationError as error:
        if given.startswith("{"):
            raise typer.BadParameter(error.detail.removeprefix("execution_id ")) from None
        raise typer.BadParameter(
            f"{given!r} must be a uuid, or look like {{fp:N}}:<uuid>"
        ) from None


def _only(uuid: UUID, found: dict[UUID, list[ExecutionId]]) -> ExecutionId:
    match found.get(uuid, []):
        case []:
            raise NotFound("execution", uuid)
        case [only]:
            return only
        case several:
            listed = ", ".join(str(each) for each in several)
            raise typer.BadParameter(f"{uuid} is several executions, give one in full: {listed}")
