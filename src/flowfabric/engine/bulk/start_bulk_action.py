"""A change of many executions begins: what it is for is fixed, and any process carries it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.engine.bulk.action import BulkArguments, check_action
from flowfabric.engine.bulk.read_bulk_action import COLUMNS, BulkAction, BulkRow, bulk_action
from flowfabric.engine.executions.search import Search
from flowfabric.engine.executions.search_executions import search_executions
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.pages import MAX_PAGE
from flowfabric.states import OperatorEventType

MOST: Final = 100_000
"""Executions that one action changes at most."""
BATCH: Final = 500
"""Executions that one transaction changes."""

START_BULK_ACTION: Final[LiteralString] = f"""
-- bulk.start_bulk_action
INSERT INTO ff.bulk_action (bulk_id, namespace, action, arguments, filter, state, actor, reason,
                            total, started_at_ms, ended_at_ms)
VALUES (%(bulk_id)s, %(namespace)s, %(action)s, %(arguments)s::text::jsonb,
        %(filter)s::text::jsonb, CASE WHEN %(total)s::integer = 0 THEN 'done' ELSE 'running' END,
        %(actor)s, %(reason)s, %(total)s, ff.now_ms(),
        CASE WHEN %(total)s::integer = 0 THEN ff.now_ms() END)
RETURNING {COLUMNS}
"""

ADD_BATCHES: Final[LiteralString] = """
-- bulk.start_bulk_action: its batches
INSERT INTO ff.bulk_batch (bulk_id, batch_no, execution_ids)
SELECT %(bulk_id)s, batch.batch_no, string_to_array(batch.ids, ' ')
  FROM unnest(%(batch_no)s::integer[], %(ids)s::text[]) AS batch (batch_no, ids)
"""


async def start_bulk_action(
    conn: Connection,
    action: str,
    *,
    search: Search | None = None,
    executions: Sequence[ExecutionId] = (),
    arguments: BulkArguments | None = None,
    reason: str,
    actor: str = DEFAULT_ACTOR,
    namespace: str | None = None,
    partitions: int = 256,
) -> BulkAction:
    """The action will be done to what the search finds now, or to these executions; each once.

    It is done in batches of 500, by the process that sweeps; a crash loses nothing. Each change
    leaves its own operator event, and there is one for the whole. At most 100,000 executions are
    changed: the first of a larger search. Needs a transaction. Raises
    `ValidationError(invalid_input)` for an action, arguments or a search that cannot be.
    """
    given = arguments or BulkArguments()
    kind = check_action(action, given, reason)
    check_actor(actor)
    if (search is None) is not bool(executions):
        raise invalid_input("executions", len(executions), "must be given, or else a search")
    if len(executions) > MOST:
        raise invalid_input("executions", len(executions), f"must be at most {MOST}")
    found = list(dict.fromkeys(executions))
    if search is not None:
        found = await _find(conn, search, partitions)
        namespace = namespace or search.namespace
    bulk_id = new_uuid()
    row = await fetch_one(
        conn,
        START_BULK_ACTION,
        BulkRow,
        bulk_id=bulk_id,
        namespace=namespace,
        action=kind.value,
        arguments=msgspec.json.encode(given).decode(),
        filter=msgspec.json.encode({} if search is None else filter_words(search)).decode(),
        actor=actor,
        reason=reason,
        total=len(found),
    )
    batches = [found[start : start + BATCH] for start in range(0, len(found), BATCH)]
    await execute(
        conn,
        ADD_BATCHES,
        bulk_id=bulk_id,
        batch_no=list(range(len(batches))),
        ids=[" ".join(str(each) for each in batch) for batch in batches],
    )
    await operator_event(
        conn,
        OperatorEventType.BULK_STARTED,
        actor=actor,
        reason=reason,
        bulk_id=str(bulk_id),
        action=kind.value,
        total=len(found),
    )
    return bulk_action(row)


def filter_words(search: Search) -> dict[str, str]:
    """What is searched for, by the names of the fields; those that are not given are left out."""
    default = Search()
    return {
        name: _words(msgspec.to_builtins(value))
        for name in Search.__struct_fields__
        if (value := getattr(search, name)) != getattr(default, name)
    }


def _words(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_words, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


async def _find(conn: Connection, search: Search, partitions: int) -> list[ExecutionId]:
    found: list[ExecutionId] = []
    cursor: str | None = None
    while len(found) < MOST:
        page = await search_executions(
            conn, search, cursor=cursor, limit=MAX_PAGE, partitions=partitions
        )
        found += [each.execution_id for each in page.executions]
        cursor = page.next_cursor
        if cursor is None:
            break
    return list(dict.fromkeys(found))[:MOST]
