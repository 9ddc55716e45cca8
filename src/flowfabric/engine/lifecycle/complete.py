"""active → terminal(success): the holders report their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.notifier import notifies
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import end_held
from flowfabric.engine.lifecycle.sql.fence import (
    SeenExecution,
    answers,
    held_leases,
    holding,
)
from flowfabric.errors import Refusal, invalid_input
from flowfabric.ids import ExecutionId, clean_text

COMPLETE: Final[LiteralString] = (
    """
-- lifecycle.complete
"""
    + held_leases(
        arrays="%(result)s::bytea[], %(result_encoding)s::text[]",
        names="given_result, given_encoding",
    )
    + holding("given_result, given_encoding")
    + end_held(
        "holding",
        outcome="'success'",
        result="given_result",
        result_encoding="given_encoding",
        lease_reason="'completed'",
    )
    + """
SELECT CASE WHEN count(*) < cardinality(%(lease_id)s::uuid[])
            THEN coalesce(array_agg(ordinal), '{}') END AS ordinals
  FROM ended
"""
)


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The result that the holder of `lease` reports; checked when it is made."""

    lease: Lease
    result: bytes | None = None
    encoding: str | None = None
    """How the result is encoded; None: as the payload."""

    def __post_init__(self) -> None:
        if type(self.result) is not bytes and not _may_be_stored(self.result):
            raise invalid_input("result", None, f"must be bytes, not {type(self.result).__name__}")


class Completed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The execution ended with success; `repeated` when an earlier call of this lease did it."""

    execution_id: ExecutionId
    repeated: bool = False


class _Ended(msgspec.Struct, frozen=True):
    """What the statement did: one row for a batch of hundreds."""

    ordinals: list[int] | None
    """The calls that ended their executions, by their numbers from 1; None: all."""


async def complete(
    conn: Connection, completions: Sequence[Completion]
) -> list[Completed | Refusal]:
    """End every execution whose lease is still held, in the order given.

    A call that the same holder repeats after a lost answer is `Completed` again, with nothing
    written. A refusal has no effect on the other calls.
    """
    leases = [completion.lease for completion in completions]
    ended = await fetch_one(
        conn,
        COMPLETE,
        _Ended,
        notifies=notifies("completion"),
        result=[completion.result for completion in completions],
        result_encoding=_encodings(completions),
        **fence_columns(leases),
    )
    everything = range(1, len(leases) + 1)
    changed = everything if ended.ordinals is None else ended.ordinals
    return await answers(conn, leases, changed, done=_done, done_before=_done_before)


def _encodings(completions: Sequence[Completion]) -> list[str | None] | None:
    """The encodings of the results; None if no result differs from its payload."""
    encodings = [completion.encoding for completion in completions]
    if not any(encodings):
        return None
    return [None if each is None else clean_text(each) for each in encodings]


def _may_be_stored(result: object) -> bool:
    return result is None or isinstance(result, bytes | bytearray | memoryview)


def _done(lease: Lease) -> Completed:
    return Completed(execution_id=lease.execution_id)


def _done_before(lease: Lease, seen: SeenExecution) -> Completed | None:
    if seen.terminal_outcome != "success" or not seen.was_ended_by(lease):
        return None
    return Completed(execution_id=lease.execution_id, repeated=True)
