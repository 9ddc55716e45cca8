"""Grants: signed permissions of one worker to claim, or reclaim, one execution."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Any, Final

import msgspec

from flowfabric.engine.keys.key import Key, check_kid
from flowfabric.errors import InvalidGrant, ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.instants import instant
from flowfabric.states import GrantKind

_PREFIX: Final = {GrantKind.CLAIM: "pg:", GrantKind.RECLAIM: "pg:reclaim:"}
_WRITTEN: Final = re.compile(
    r"pg:(reclaim:)?(\{fp:[0-9]{1,5}\}:[0-9a-f-]{36}):([0-9]{1,18}):([^:]+):([0-9a-f]{64})"
)
_ANY_PARTITION: Final = 2**15
"""The number of a partition is not checked: one that does not exist has no grants."""


class GrantKey(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the written form of a grant; its repr does not show the signature."""

    kind: GrantKind
    execution_id: ExecutionId
    expires_at_ms: int
    kid: str
    signature: str

    @property
    def text(self) -> str:
        """`pg:{fp:N}:<uuid>:<expires_ms>:<kid>:<hex>`, with `reclaim:` before the partition."""
        return f"{self._unsigned}:{self.signature}"

    @property
    def _unsigned(self) -> str:
        return f"{_PREFIX[self.kind]}{self.execution_id}:{self.expires_at_ms}:{self.kid}"

    @classmethod
    def parse(cls, text: str) -> GrantKey:
        """Read the written form; raises `InvalidGrant(grant_malformed)`."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise _malformed("it must look like pg:{fp:N}:<uuid>:<expires_ms>:<kid>:<hex>")
        try:
            execution_id = ExecutionId.parse(found[2], partitions=_ANY_PARTITION)
            kid = check_kid(found[4])
        except ValidationError as error:
            raise _malformed(error.detail) from None
        read = cls(
            kind=GrantKind.CLAIM if found[1] is None else GrantKind.RECLAIM,
            execution_id=execution_id,
            expires_at_ms=int(found[3]),
            kid=kid,
            signature=found[5],
        )
        if read.text != text:
            raise _malformed("its numbers must be written without leading zeros")
        return read

    def __repr__(self) -> str:
        return f"GrantKey({self._unsigned}:<REDACTED>)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("key", f"{self._unsigned}:<REDACTED>")]


class _Grant(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    partition_key: str
    grant_key: str
    expires_at: datetime

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [
            (name, _redacted(value) if name == "grant_key" else value)
            for name, value in msgspec.structs.asdict(self).items()
        ]


class ClaimGrant(_Grant, frozen=True, kw_only=True):
    """Until `expires_at` only the worker of the grant may claim the execution."""


class ReclaimGrant(_Grant, frozen=True, kw_only=True):
    """Until `expires_at` the worker of the grant may reclaim an execution whose lease was lost.

    It reserves nothing: any other worker may claim the execution before.
    """

    lane_id: str


def signed(
    key: Key,
    kind: GrantKind,
    execution_id: ExecutionId,
    *,
    worker_id: str,
    worker_instance_id: str,
    expires_at_ms: int,
) -> GrantKey:
    """The signed grant key for this worker."""
    message = grant_message(
        kind,
        execution_id,
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        expires_at_ms=expires_at_ms,
    )
    return GrantKey(
        kind=kind,
        execution_id=execution_id,
        expires_at_ms=expires_at_ms,
        kid=key.kid,
        signature=key.sign(message),
    )


def grant_message(
    kind: GrantKind,
    execution_id: ExecutionId,
    *,
    worker_id: str,
    worker_instance_id: str,
    expires_at_ms: int,
) -> str:
    """The text that is signed; it names the worker, which the written form does not."""
    message = (
        f"{{fp:{execution_id.partition_key}}}|{execution_id.uuid}"
        f"|{worker_id}|{worker_instance_id}|{expires_at_ms}"
    )
    return message if kind is GrantKind.CLAIM else f"{message}|reclaim"


def grant_id(grant_key: str) -> bytes:
    """The id of the stored grant: a hash of its key, so that the row does not show the key."""
    return hashlib.sha256(grant_key.encode()).digest()


def claim_grant(key: GrantKey) -> ClaimGrant:
    """The claim grant with this key."""
    return ClaimGrant(**_fields(key))


def reclaim_grant(key: GrantKey, *, lane_id: str) -> ReclaimGrant:
    """The reclaim grant with this key."""
    return ReclaimGrant(**_fields(key), lane_id=lane_id)


def _fields(key: GrantKey) -> dict[str, Any]:
    return {
        "execution_id": key.execution_id,
        "partition_key": str(PartitionKey("fp", key.execution_id.partition_key)),
        "grant_key": key.text,
        "expires_at": instant(key.expires_at_ms),
    }


def _redacted(grant_key: str) -> str:
    unsigned, colon, _ = grant_key.rpartition(":")
    return f"{unsigned}:<REDACTED>" if colon else "<REDACTED:malformed>"


def _malformed(why: str) -> InvalidGrant:
    return InvalidGrant("grant_malformed", why)
