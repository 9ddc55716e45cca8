"""Which events a subscriber wants."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.events.outbox import Entry
from flowfabric.errors import invalid_input
from flowfabric.ids import NUM_FLOW_PARTITIONS, ExecutionId, check_name, check_tag_key

_TYPES: Final = ("event_type", "outcome", "kind", "effect")
"""What the event of each family calls its type."""


class EventFilter(msgspec.Struct, frozen=True):
    """An event matches if it has every value that is set; with nothing set all events match.

    `tag` is a key, and the value that the tags of the execution must have for it. `types` are types
    of events, outcomes of completions or effects of signals: the event has one of them. Events of
    lanes have the lane in their details.
    """

    namespace: str | None = None
    tag: tuple[str, str] | None = None
    partition: int | None = None
    lane_id: str | None = None
    execution_kind: str | None = None
    execution_id: ExecutionId | None = None
    flow_id: UUID | None = None
    worker_instance_id: str | None = None
    actor: str | None = None
    types: tuple[str, ...] = ()

    def check(self, *, partitions: int = NUM_FLOW_PARTITIONS) -> EventFilter:
        """The filter, if events can match it; else `ValidationError(invalid_input)`."""
        if self.namespace is not None:
            check_name(self.namespace, field="namespace")
        if self.tag is not None:
            check_tag_key(self.tag[0])
        if self.partition is not None and not 0 <= self.partition < partitions:
            raise invalid_input("partition", self.partition, f"must be 0 to {partitions - 1}")
        return self

    def accepts(self, entry: Entry[Any]) -> bool:
        """Does the event match?"""
        event = entry.event
        if event is None:
            return False
        if self.partition is not None and entry.partition_key != self.partition:
            return False
        if self.namespace is not None and event.namespace != self.namespace:
            return False
        if self.tag is not None and event.tags.get(self.tag[0]) != self.tag[1]:
            return False
        if self.types and not any(getattr(event, name, None) in self.types for name in _TYPES):
            return False
        return all(
            wanted is None or _value(event, name) == wanted
            for name, wanted in (
                ("lane_id", self.lane_id),
                ("execution_kind", self.execution_kind),
                ("execution_id", self.execution_id),
                ("flow_id", self.flow_id),
                ("worker_instance_id", self.worker_instance_id),
                ("actor", self.actor),
            )
        )


def _value(event: Any, name: str) -> object:
    found = getattr(event, name, None)
    if found is None and name in ("lane_id", "worker_instance_id"):
        details: dict[str, object] | None = getattr(event, "details", None)
        return None if details is None else details.get(name)
    return found
