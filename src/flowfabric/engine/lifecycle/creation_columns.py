"""The executions of a batch as the parameters of the statement that creates them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, SharedColumns
from flowfabric.errors import invalid_input
from flowfabric.ids import check_partition, key_partition
from flowfabric.instants import epoch_ms
from flowfabric.policy import DAY_MS, check_capabilities, clamp_priority, milliseconds

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import NewExecution

_SHAPE: Final = (
    "execution_kind",
    "lane_id",
    "namespace",
    "required_capabilities",
    "payload_encoding",
    "creator_identity",
    "policy",
)
_BLOCK: Final = 64
"""So few tuples live at once that they do not start the garbage collector."""


def creation_columns(
    executions: Sequence[NewExecution], *, partitions: int = 256, fresh: bool = False
) -> dict[str, object]:
    """The parameters: the distinct shapes of the batch, and one array for each other field.

    A field that no execution has is None as a whole, and so are the numbers of the shapes if there
    is one shape.
    """
    if type(executions) is AlikeBatch:
        return _alike_columns(executions, partitions=partitions, fresh=fresh)
    by_field = _by_field(executions)
    homes = [each.partition_key for each in by_field["execution_id"]]
    _check_partitions(executions, homes, by_field["idempotency_key"], partitions)
    first, shape = _shapes(executions, by_field)
    any_key = any(by_field["idempotency_key"])
    return {
        "shape_namespace": [new.namespace for new in first],
        "shape_lane_id": [new.lane_id for new in first],
        "shape_execution_kind": [new.execution_kind for new in first],
        "shape_required_capabilities": [_joined(_requirements(new)) for new in first],
        "shape_payload_encoding": [new.payload_encoding for new in first],
        "shape_creator_identity": [new.creator_identity for new in first],
        "shape_policy": [
            None if new.policy is None else new.policy.as_json().decode() for new in first
        ],
        "partition_key": homes,
        "execution_id": [each.uuid for each in by_field["execution_id"]],
        "shape": shape,
        "payload": by_field["input_payload"],
        "priority": list(map(clamp_priority, given))
        if any(given := by_field["priority"])
        else None,
        "delay_ms": _column(by_field["delay"], milliseconds),
        "delay_until_ms": _delays_until(executions, by_field),
        "deadline_ms": _column(by_field["deadline"], milliseconds),
        "deadline_at_ms": _column(by_field["execution_deadline_at"], epoch_ms),
        "idempotency_key": by_field["idempotency_key"] if any_key else None,
        "dedup_window_ms": [_dedup_window_ms(new) for new in executions] if any_key else None,
        "tags": _column([tags or None for tags in by_field["tags"]], _json),
        "flow_id": _column(by_field["flow_id"], _same),
        "hold": _column(by_field["hold"], bool),
        "member_name": _column(by_field["member_name"], str),
        "fresh": fresh,
        "unique_scope": _column(by_field["unique_until"], _same),
        "quota_policy_id": _column(by_field["quota_policy_id"], _same),
        "quota_dimension": _column(by_field["limit_key"], _same),
    }


def _alike_columns(executions: AlikeBatch, *, partitions: int, fresh: bool) -> dict[str, object]:
    """Those of the example, so often as there are executions, with the ids and payloads of all."""
    _check_partitions(executions, executions.homes, (), partitions)
    pattern, count = executions.pattern, len(executions)
    if pattern.columns is None:
        pattern.columns = _shared_columns(pattern.example, partitions)
    return {
        **pattern.columns.of_batch,
        **{name: column * count for name, column in pattern.columns.of_each.items()},
        "partition_key": executions.homes,
        "execution_id": executions.uuids,
        "payload": executions.payloads,
        "fresh": fresh,
    }


def _shared_columns(example: NewExecution, partitions: int) -> SharedColumns:
    of_batch = creation_columns([example], partitions=partitions)
    of_each: dict[str, list[object]] = {}
    for name, column in of_batch.items():
        if not name.startswith("shape") and isinstance(column, list):
            of_each[name] = cast("list[object]", column)
    return SharedColumns(of_batch, of_each)


def _by_field(executions: Sequence[NewExecution]) -> Mapping[str, list[Any]]:
    """The values of each field, in one pass over the executions."""
    if not executions:
        return defaultdict(list)
    columns: list[list[Any]] = []
    for start in range(0, len(executions), _BLOCK):
        rows = map(msgspec.structs.astuple, executions[start : start + _BLOCK])
        block = zip(*rows, strict=True)
        if start == 0:
            columns = list(map(list, block))
        else:
            for column, values in zip(columns, block, strict=True):
                column.extend(values)
    return dict(zip(executions[0].__struct_fields__, columns, strict=True))


def _shapes(
    executions: Sequence[NewExecution], by_field: Mapping[str, list[Any]]
) -> tuple[Sequence[NewExecution], list[int] | None]:
    """The first execution of each shape, and each one's shape number if there are several."""
    columns = [by_field[name] for name in _SHAPE]
    if len(executions) < 2 or all(each.count(each[0]) == len(each) for each in columns):
        return executions[:1], None
    numbers: dict[object, int] = {}
    shape = [
        numbers.setdefault(key, len(numbers) + 1)
        for key in zip(*columns[:-1], map(id, columns[-1]), strict=True)
    ]
    return [executions[shape.index(number)] for number in numbers.values()], shape


def _same(value: object) -> object:
    return value


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1024)
def _joined(capabilities: tuple[str, ...]) -> str:
    return ",".join(check_capabilities(capabilities, side="required"))


def _requirements(new: NewExecution) -> tuple[str, ...]:
    """The capabilities that the execution and its policy require."""
    if new.policy is None:
        return new.required_capabilities
    return (*new.required_capabilities, *new.policy.required_capabilities)


def _check_partitions(
    executions: Sequence[NewExecution],
    homes: Sequence[int],
    keys: Sequence[str | None],
    partitions: int,
) -> None:
    """Raise for an id in a partition that does not exist or is not that of its key."""
    if set(map(type, homes)) != {int} or min(homes) < 0 or max(homes) >= partitions:
        for new in executions:
            check_partition(new.execution_id, partitions)
    if not any(keys):
        return
    for new, key in zip(executions, keys, strict=True):
        if key is None:
            continue
        home = key_partition(new.namespace, key, partitions)
        if new.execution_id.partition_key != home:
            given, rule = str(new.execution_id), f"its idempotency key lives in {{fp:{home}}}"
            raise invalid_input("execution_id", given, rule)


def _column(values: Sequence[Any], stored: Callable[[Any], object]) -> list[object] | None:
    """One value for each execution; None as a whole if no execution has the field."""
    if values.count(None) == len(values):
        return None
    return [None if value is None else stored(value) for value in values]


def _delays_until(
    executions: Sequence[NewExecution], by_field: Mapping[str, list[Any]]
) -> list[object] | None:
    """`delay_until`, else that of the policy unless a `delay` is given; None if there is none."""
    if not any(by_field["delay_until"]) and not any(by_field["policy"]):
        return None
    delays: list[object] = []
    for new in executions:
        named = new.delay_until
        if named is None and new.policy is not None and new.delay is None:
            named = new.policy.delay_until
        delays.append(None if named is None else epoch_ms(named))
    return delays if any(delays) else None


def _dedup_window_ms(new: NewExecution) -> int:
    if new.idempotency_window is not None:
        return milliseconds(new.idempotency_window)
    return DAY_MS if new.policy is None else milliseconds(new.policy.dedup_window)
