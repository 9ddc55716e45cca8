"""The holder of a lease makes a waitpoint ahead of a suspension; signals are buffered meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.journal.entry import MAX_KEY, EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.keys.key import Key, active_key
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_leases import lock_leases
from flowfabric.engine.suspensions.read_waitpoints import read_waitpoints
from flowfabric.engine.suspensions.waitpoint import WAITPOINT_COLUMNS, Waitpoint, WaitpointRow
from flowfabric.errors import ValidationError, WaitpointAlreadyExists, invalid_input
from flowfabric.ids import check_text, check_type, new_uuid
from flowfabric.policy import milliseconds
from flowfabric.tokens import sign_token

MAX_SCHEMA: Final = 16 * 1024

CREATE_WAITPOINT: Final[LiteralString] = f"""
-- suspensions.create_waitpoint
INSERT INTO ff.waitpoint_pending AS w (
       partition_key, attempt_index, waitpoint_id, execution_id, created_at_ms, expires_at_ms,
       waitpoint_key, token_kid, token, answer_schema)
VALUES (%(partition_key)s, %(attempt_index)s, %(waitpoint_id)s, %(execution_id)s, ff.now_ms(),
        ff.now_ms() + %(expires_in_ms)s::bigint, %(waitpoint_key)s, %(token_kid)s, %(token)s,
        %(answer_schema)s::text::json)
    ON CONFLICT (partition_key, waitpoint_id) DO NOTHING
RETURNING {WAITPOINT_COLUMNS}
"""


async def create_waitpoint(
    conn: Connection,
    lease: Lease,
    waitpoint_key: str,
    *,
    expires_in: float | timedelta,
    waitpoint_id: UUID | None = None,
    entry: EntryWrite | None = None,
    answer_schema: Mapping[str, Any] | None = None,
) -> Waitpoint:
    """A pending waitpoint with its token; the lease is kept. Needs a transaction.

    Without `waitpoint_id`, two calls make two waitpoints. With it, a repeated call with the same
    key answers the same waitpoint, whatever has become of it. `entry` is recorded in the journal
    with the waitpoint: the transaction leaves both or neither. `answer_schema` is the JSON schema
    of the payload, an object, that people are asked for; nothing compares payloads with it.

    Raises, in this order: `ValidationError(invalid_input)` for the arguments; `NotFound`,
    `ExecutionNotActive`, `StaleLease` or `LeaseExpired` if the lease is not held;
    `ValidationError(invalid_input)` if there is no key to sign with; `WaitpointAlreadyExists` if
    another waitpoint has the id.
    """
    longest = 256 if entry is None else MAX_KEY
    check_text(waitpoint_key, field="waitpoint_key", at_most=longest)
    expires_in_ms = milliseconds(expires_in, field="expires_in")
    if expires_in_ms < 0:
        raise invalid_input("expires_in", expires_in, "must not be negative")
    if waitpoint_id is not None:
        check_type(waitpoint_id, UUID, field="waitpoint_id")
    schema = None if answer_schema is None else _encoded(answer_schema)
    await _require_lease(conn, lease, entry)
    key = await signing_key(conn)
    execution_id, fresh = lease.execution_id, waitpoint_id or new_uuid()
    row = await fetch_maybe(
        conn,
        CREATE_WAITPOINT,
        WaitpointRow,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        attempt_index=lease.attempt_index,
        waitpoint_id=fresh,
        waitpoint_key=waitpoint_key,
        expires_in_ms=expires_in_ms,
        token_kid=key.kid,
        token=sign_token(key.kid, key.secret, execution_id, fresh).reveal(),
        answer_schema=schema,
    )
    if row is not None:
        return row.waitpoint()
    existing = (await read_waitpoints(conn, execution_id, [fresh])).get(fresh)
    if existing is None or existing.waitpoint_key != waitpoint_key:
        raise WaitpointAlreadyExists(fresh)
    return existing


def _encoded(schema: Mapping[str, Any]) -> str:
    """The schema as JSON; raises `ValidationError(invalid_input)`."""
    check_type(schema, Mapping, field="answer_schema")
    try:
        text = msgspec.json.encode(schema).decode()
    except (TypeError, ValueError) as error:
        raise invalid_input("answer_schema", schema, f"must be JSON: {error}") from None
    if len(text) > MAX_SCHEMA:
        raise invalid_input("answer_schema", len(text), f"must have at most {MAX_SCHEMA} bytes")
    if "\\u0000" in text:
        raise invalid_input("answer_schema", schema, "must not contain a NUL character")
    return text


async def _require_lease(conn: Connection, lease: Lease, entry: EntryWrite | None) -> None:
    """The lease cannot end before the commit, and the entry is recorded; raises its `Refusal`."""
    if entry is None:
        [held] = await lock_leases(conn, [lease])
        if not isinstance(held, Lease):
            raise held
        return
    if entry.lease != lease:
        raise invalid_input("entry", entry.name, "must have the lease of the waitpoint")
    refused = await record_entries(conn, [entry])
    if refused:
        raise refused[lease]


async def signing_key(conn: Connection) -> Key:
    """The key that signs tokens; raises `ValidationError(invalid_input)` if there is none."""
    key = await active_key(conn)
    if key is None:
        raise ValidationError(
            "invalid_input", "keystore empty: no key signs tokens; ff keys seed makes one"
        )
    return key
