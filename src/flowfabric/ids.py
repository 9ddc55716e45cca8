"""Identifiers: created, written as text, parsed and assigned to partitions; checks of names."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.fresh_uuids import new_uuid as new_uuid
from flowfabric.fresh_uuids import new_uuids as new_uuids
from flowfabric.fresh_uuids import uuid_of as uuid_of

T = TypeVar("T")

NUM_FLOW_PARTITIONS: Final = 256

_EXECUTION_ID: Final = re.compile(r"\{fp:([0-9]{1,5})\}:(.*)", re.DOTALL)
_UUID: Final = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TAG_KEY: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_U64: Final = 0xFFFFFFFFFFFFFFFF
_MEMBER_GROUP: Final = 0x6D656D62_6572_0000_0067_726F75702069
"""The bits in which the id of a member and the id of its join differ; the uuid version stays."""
_VERSION_BITS, _VERSION_5 = 0xF << 76 | 0b11 << 62, 5 << 76 | 0b10 << 62


class ExecutionId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The id of an execution, `{fp:N}:<uuid>`; its partition N is read, never recomputed.

    `gc=False`: it refers to a UUID only, and a process holds many.
    """

    partition_key: int
    uuid: UUID

    def __str__(self) -> str:
        return f"{{fp:{self.partition_key}}}:{self.uuid}"

    @classmethod
    def parse(cls, text: str, *, partitions: int = NUM_FLOW_PARTITIONS) -> ExecutionId:
        """Parse `{fp:N}:<uuid>`; raises `ValidationError(invalid_input)`."""
        found = _EXECUTION_ID.fullmatch(text)
        if found is None:
            raise invalid_input("execution_id", text, "must look like {fp:N}:<uuid>")
        partition_key = int(found[1])
        if partition_key >= partitions:
            raise invalid_input("execution_id", text, f"partition must be below {partitions}")
        return cls(partition_key, parse_uuid(found[2], field="execution_id", given=text))

    @classmethod
    def mint(
        cls,
        *,
        namespace: str = "default",
        idempotency_key: str | None = None,
        partitions: int = NUM_FLOW_PARTITIONS,
    ) -> ExecutionId:
        """A new id; with an idempotency key, in the partition of the key's record."""
        fresh = new_uuid()
        if idempotency_key is None:
            return cls(uuid_partition(fresh, partitions), fresh)
        return cls(key_partition(namespace, idempotency_key, partitions), fresh)


def id_columns(executions: Sequence[ExecutionId]) -> dict[str, list[Any]]:
    """The ids as the array parameters `partition_key` and `execution_id` of a statement."""
    return {
        "partition_key": [each.partition_key for each in executions],
        "execution_id": [each.uuid for each in executions],
    }


class GroupId(msgspec.Struct, frozen=True, order=True):
    """The id of a join: of the set of executions that one execution waits for."""

    partition_key: int
    uuid: UUID

    def __str__(self) -> str:
        return f"{{fp:{self.partition_key}}}:{self.uuid}"


def parse_uuid(text: str, *, field: str, given: str | None = None) -> UUID:
    """Parse a hyphenated UUID; raises `ValidationError(invalid_input)` that shows `given`."""
    if _UUID.fullmatch(text) is not None:
        return uuid_of(int(text.replace("-", ""), 16))
    try:
        UUID(text)
    except ValueError:
        rule = "must be a uuid" if given is None else "must end in a uuid"
        raise invalid_input(field, given or text, rule) from None
    raise invalid_input(field, given or text, "must have a uuid with hyphens")


def as_uuid(given: UUID | str, *, field: str) -> UUID:
    """The id, parsed if it is text; raises `ValidationError(invalid_input)`."""
    if isinstance(given, str):
        return parse_uuid(given, field=field)
    return check_type(given, UUID, field=field)


def crc16(data: bytes) -> int:
    """CRC-16/XMODEM."""
    return binascii.crc_hqx(data, 0)


def fnv1a_64(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _U64
    return value


def uuid_partition(value: UUID, partitions: int = NUM_FLOW_PARTITIONS) -> int:
    """The partition of a flow, or of a solo execution without an idempotency key."""
    # The property `bytes` is slower; every submit calls this.
    return crc16(value.int.to_bytes(16, "big")) % partitions


def key_partition(
    namespace: str, idempotency_key: str, partitions: int = NUM_FLOW_PARTITIONS
) -> int:
    """The partition of an idempotency record; `ff.key_partition` is the same function in SQL."""
    storable_text(namespace, field="namespace")
    storable_text(idempotency_key, field="idempotency_key")
    digest = hashlib.sha256(f"{namespace}\x1f{idempotency_key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % partitions


def worker_partition(worker_instance_id: str) -> int:
    """The partition of a worker process in `ff.worker_registry`."""
    return fnv1a_64(worker_instance_id.encode()) % 256


def attempt_id(execution_id: ExecutionId, attempt_index: int) -> UUID:
    """The id of one attempt, computed from the execution and the index."""
    digest = hashlib.sha256(execution_id.uuid.bytes + attempt_index.to_bytes(4, "big")).digest()
    number = int.from_bytes(digest[:16], "big")
    return uuid_of(number & ~_VERSION_BITS | _VERSION_5)


def child_id(
    parent: ExecutionId,
    position: int,
    index: int,
    *,
    kind: str,
    generation: int = 0,
    name: str | None = None,
) -> ExecutionId:
    """The id of the `index`-th child that the call at `position` of a handler starts.

    It is computed from the parent, the generation of its journal and the position, so a handler
    that runs again finds its children. The position of a call with a name is its number among the
    calls of that name. The child is in the partition of its parent.
    """
    place = position.to_bytes(4, "big") + index.to_bytes(4, "big") + kind.encode()
    purpose = _call_purpose(b"child", generation, name)
    return ExecutionId(parent.partition_key, _derived(parent, purpose, place))


def member_group_id(execution_id: ExecutionId) -> GroupId:
    """The id of the join by which a flow member waits for its upstreams.

    A submitted flow needs one for every member, so the id is derived without a hash.
    """
    return GroupId(execution_id.partition_key, UUID(int=execution_id.uuid.int ^ _MEMBER_GROUP))


def children_group_id(
    parent: ExecutionId,
    position: int,
    index: int | None = None,
    *,
    generation: int = 0,
    name: str | None = None,
) -> GroupId:
    """The id of the join for the children of one call, or for its `index`-th child alone.

    Position, generation and name are those of `child_id`.
    """
    place = position.to_bytes(4, "big")
    if index is not None:
        place += index.to_bytes(4, "big")
    purpose = _call_purpose(b"children", generation, name)
    return GroupId(parent.partition_key, _derived(parent, purpose, place))


def compensation_id(execution_id: ExecutionId, replay_count: int) -> ExecutionId:
    """The id of the execution that compensates for one that was replayed so often."""
    place = replay_count.to_bytes(4, "big")
    return ExecutionId(execution_id.partition_key, _derived(execution_id, b"compensation", place))


def parent_flow_id(parent: ExecutionId, partitions: int = NUM_FLOW_PARTITIONS) -> UUID:
    """The id of the flow that is made for an execution outside flows when it gets children.

    The flow is in the partition of the execution.
    """
    count = 0
    while True:
        found = _derived(parent, b"flow", count.to_bytes(4, "big"))
        if uuid_partition(found, partitions) == parent.partition_key:
            return found
        count += 1


def _call_purpose(purpose: bytes, generation: int, name: str | None) -> bytes:
    """What tells the calls of one generation or name from others; nothing for the plain ones."""
    if generation == 0 and name is None:
        return purpose
    encoded = b"" if name is None else name.encode()
    return b"".join(
        (purpose, b" of ", generation.to_bytes(4, "big"), len(encoded).to_bytes(2, "big"), encoded)
    )


def _derived(parent: ExecutionId, purpose: bytes, place: bytes) -> UUID:
    digest = hashlib.sha256(parent.uuid.bytes + purpose + place).digest()
    return UUID(bytes=digest[:16], version=5)


class PartitionKey(msgspec.Struct, frozen=True):
    """A partition as text: `{fp:N}` of flows, `{b:N}` of budgets, `{q:N}` of quotas."""

    family: str
    index: int

    def __str__(self) -> str:
        return f"{{{self.family}:{self.index}}}"

    @classmethod
    def parse(cls, text: str, *, partitions: int = NUM_FLOW_PARTITIONS) -> PartitionKey:
        """Parse `{family:index}`; raises `ValidationError(invalid_input)`."""
        if len(text) < 2 or text[0] != "{" or text[-1] != "}":
            raise invalid_input("partition_key", text, "must be in braces")
        family, colon, index = text[1:-1].partition(":")
        if not colon:
            raise invalid_input("partition_key", text, "must look like {family:index}")
        if family not in ("fp", "b", "q"):
            raise invalid_input("partition_key", text, "family must be fp, b or q")
        if not re.fullmatch("[0-9]{1,5}", index) or int(index) >= partitions:
            raise invalid_input("partition_key", text, f"index must be below {partitions}")
        return cls(family, int(index))


def check_partition(given: ExecutionId | GroupId, partitions: int) -> None:
    """Raise `ValidationError(invalid_input)` for an id in a partition that does not exist."""
    if not _is_index(given.partition_key, partitions):
        raise invalid_input("execution_id", str(given), f"partition must be below {partitions}")


def check_partition_key(given: PartitionKey, partitions: int) -> None:
    """Raise `ValidationError(invalid_input)` for a partition of flows that does not exist."""
    if given.family == "fp" and not _is_index(given.index, partitions):
        raise invalid_input("partition_key", str(given), f"index must be below {partitions}")


def _is_index(value: object, partitions: int) -> bool:
    return type(value) is int and 0 <= value < partitions


def check_lane(lane_id: str, *, field: str = "lane_id") -> str:
    """The lane, if it is 1 to 64 printable ASCII characters; else raises `ValidationError`."""
    if not check_is_text(lane_id, field=field):
        raise invalid_input(field, lane_id, "must not be empty")
    if not all(" " <= letter <= "~" for letter in lane_id):
        raise invalid_input(field, lane_id, "must be printable ASCII")
    if len(lane_id) > 64:
        raise invalid_input(field, lane_id, "must be at most 64 bytes")
    return lane_id


def check_tag_key(key: str) -> str:
    """The key, if it looks like `shop.tenant`; else raises `ValidationError`."""
    check_is_text(key, field="tag key")
    if _TAG_KEY.fullmatch(key) is None or len(key) > 256:
        raise invalid_input("tag key", key, "must look like area.name in lower case")
    return key


def check_tag_value(value: str, *, key: str) -> str:
    """The value, if it can be stored and searched for; else raises `ValidationError`."""
    storable_text(value, field=f"tag {key}")
    if len(value.encode()) > 1024:
        raise invalid_input(f"tag {key}", value[:40] + "…", "must be at most 1024 bytes")
    return value


def check_text(value: str, *, field: str, at_most: int = 256) -> str:
    """The text, if it is not empty, is storable and has at most `at_most` bytes.

    Raises `ValidationError(invalid_input)` otherwise.
    """
    if not check_is_text(value, field=field):
        raise invalid_input(field, value, "must not be empty")
    storable_text(value, field=field)
    if len(value.encode()) > at_most:
        raise invalid_input(field, value[:40] + "…", f"must be at most {at_most} bytes")
    return value


def check_name(value: str, *, field: str) -> str:
    """The name, if it has 1 to 256 bytes and only printable characters.

    Raises `ValidationError(invalid_input)` otherwise.
    """
    check_text(value, field=field)
    if not value.isprintable():
        raise invalid_input(field, value, "must not contain control or invisible characters")
    return value


def check_worker_name(value: str, *, field: str) -> str:
    """The name of a worker or worker process, if it has no white space or control characters."""
    check_text(value, field=field)
    if any(letter.isspace() or not letter.isprintable() for letter in value):
        raise invalid_input(field, value, "must not contain white space or control characters")
    return value


def check_is_text(value: object, *, field: str) -> str:
    """The value, if it is a str; else raises `ValidationError(invalid_input)`."""
    if not isinstance(value, str):
        raise invalid_input(field, value, f"must be a text, not {type(value).__name__}")
    return value


def check_type(given: object, wanted: type[T], *, field: str) -> T:
    """The value, if it is of this type; else raises `ValidationError(invalid_input)`."""
    if not isinstance(given, wanted):
        why = f"must be of type {wanted.__name__}, not {type(given).__name__}"
        raise invalid_input(field, given, why)
    return given


def check_list(given: object, *, field: str) -> tuple[Any, ...]:
    """The members of a list, tuple or set; raises `ValidationError(invalid_input)` for a text."""
    if isinstance(given, str):
        raise invalid_input(field, given, f"must be a list: write {field}=[{given!r}]")
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise invalid_input(field, cast("object", given), "must be a list of texts")
    return tuple(cast("Iterable[object]", given))


def storable_text(value: str, *, field: str) -> str:
    """The text, if Postgres can store it: no NUL and no lone surrogate."""
    if "\x00" in check_is_text(value, field=field):
        raise invalid_input(field, value, "must not contain a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid_input(field, ascii(value), "must not contain a lone surrogate") from None
    return value


def clean_text(value: str, *, at_most: int = 16 * 1024) -> str:
    """The text made storable: NUL and lone surrogates replaced, at most `at_most` bytes long."""
    cleaned = check_is_text(value, field="text").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    encoded = cleaned.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    if len(encoded) <= at_most:
        return encoded.decode()
    return encoded[: at_most - 3].decode("utf-8", "ignore") + "…"
