"""Which finished executions to delete: the filter, and its parameters in SQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.ids import PartitionKey, check_lane, check_tag_key
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds

MAX_BATCH: Final = 1000


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """The executions to delete: those that ended on a lane at least `retention` ago, and match."""

    lane_id: str
    retention: float | timedelta
    partition: PartitionKey | None = None
    namespace: str | None = None
    tag: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_lane(self.lane_id)
        if milliseconds(self.retention, field="retention") < 0:
            raise invalid_input("retention", self.retention, "must not be negative")
        if self.partition is not None and self.partition.family != "fp":
            raise invalid_input("partition", str(self.partition), "holds no executions")
        if self.tag is not None:
            check_tag_key(self.tag[0])


def parameters(trim: Trim, now: datetime | None) -> dict[str, object]:
    """The parameters of both statements; `now` replaces the clock of the database."""
    tag_key, tag_value = trim.tag or (None, None)
    return {
        "lane_id": trim.lane_id,
        "retention_ms": milliseconds(trim.retention),
        "partition_key": None if trim.partition is None else trim.partition.index,
        "namespace": trim.namespace,
        "tag_key": tag_key,
        "tag_value": tag_value,
        "now_ms": None if now is None else epoch_ms(check_instant(now, field="now")),
    }
