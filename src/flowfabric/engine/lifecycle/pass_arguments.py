"""The result of one execution becomes one argument of another that has not begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.lifecycle.sql.submitted import SUBMITTED_KEPT
from flowfabric.ids import ExecutionId

ARGUMENTS_READ: Final[LiteralString] = """
-- lifecycle.pass_arguments: the results, and the inputs of targets that are runnable
SELECT pairs.ordinal, pairs.partition_key, pairs.target, a.result,
       coalesce(a.result_encoding, s.payload_encoding) AS result_encoding, t.payload,
       t.payload_encoding
  FROM unnest(%(partition_key)s::smallint[], %(source)s::uuid[], %(target)s::uuid[])
       WITH ORDINALITY AS pairs (partition_key, source, target, ordinal)
  JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (pairs.partition_key, pairs.source)
  JOIN ff.exec_body s ON (s.partition_key, s.execution_id) = (pairs.partition_key, pairs.source)
  JOIN ff.execution d ON (d.partition_key, d.execution_id) = (pairs.partition_key, pairs.target)
  JOIN ff.exec_body t ON (t.partition_key, t.execution_id) = (pairs.partition_key, pairs.target)
  LEFT JOIN ff.attempt a
    ON (a.partition_key, a.execution_id, a.attempt_index)
     = (u.partition_key, u.execution_id, u.attempt_index)
 WHERE d.lifecycle_phase = 'runnable'
 ORDER BY pairs.ordinal
"""

ARGUMENTS_WRITTEN: Final[LiteralString] = (
    """
-- lifecycle.pass_arguments
UPDATE ff.exec_body b
   SET payload = given.payload,
           """
    + SUBMITTED_KEPT
    + """
  FROM unnest(%(partition_key)s::smallint[], %(target)s::uuid[], %(payload)s::bytea[])
       AS given (partition_key, target, payload)
 WHERE (b.partition_key, b.execution_id) = (given.partition_key, given.target)
"""
)


class _Codec(msgspec.Struct, frozen=True):
    decode: Any
    encode: Any


_CODECS: Final[Mapping[str | None, _Codec]] = {
    "json": _Codec(msgspec.json.decode, msgspec.json.encode),
    "msgpack": _Codec(msgspec.msgpack.decode, msgspec.msgpack.encode),
}
"""The encodings in which one argument can be replaced without knowing the types of the others."""


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    partition_key: int
    target: UUID
    result: bytes | None
    result_encoding: str | None
    payload: bytes
    payload_encoding: str | None


async def pass_arguments(
    conn: Connection, passed: Sequence[tuple[ExecutionId, ExecutionId, str]]
) -> int:
    """For each (source, target, argument) the result is that argument; how many targets.

    The other arguments of the target stay. A source without a result passes None. A target that
    runs or has ended is left out, and so is one whose input is not an object in JSON or
    MessagePack. The caller has locked the targets.
    """
    rows = await fetch_all(
        conn,
        ARGUMENTS_READ,
        _Row,
        partition_key=[source.partition_key for source, _, _ in passed],
        source=[source.uuid for source, _, _ in passed],
        target=[target.uuid for _, target, _ in passed],
    )
    payloads: dict[tuple[int, UUID], bytes] = {}
    for row in rows:
        target = (row.partition_key, row.target)
        argument = passed[row.ordinal - 1][2]
        before = payloads.get(target, row.payload)
        composed = put_argument(
            before, row.payload_encoding, argument, row.result, row.result_encoding
        )
        if composed is not None:
            payloads[target] = composed
    if payloads:
        await execute(
            conn,
            ARGUMENTS_WRITTEN,
            partition_key=[partition_key for partition_key, _ in payloads],
            target=[target for _, target in payloads],
            payload=list(payloads.values()),
        )
    return len(payloads)


def put_argument(
    payload: bytes,
    encoding: str | None,
    argument: str,
    result: bytes | None,
    result_encoding: str | None,
) -> bytes | None:
    """The payload with this result as the argument; None if the payload is not an object.

    A result of another encoding is converted. Bytes that cannot be decoded are put in as they are,
    so that the input does not decode and the target fails with words.
    """
    codec = _CODECS.get(encoding)
    if codec is None:
        return None
    try:
        arguments: dict[str, Any] = codec.decode(payload, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if result is None:
        arguments[argument] = None
    elif encoding == result_encoding:
        arguments[argument] = msgspec.Raw(result)
    elif result_encoding in _CODECS:
        try:
            arguments[argument] = _CODECS[result_encoding].decode(result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            arguments[argument] = msgspec.Raw(result)
    else:
        arguments[argument] = result
    return codec.encode(arguments)
