"""Which events a subscriber wants."""

from __future__ import annotations

from typing import Any

import msgspec

from flowfabric.engine.events.outbox import Entry
from flowfabric.errors import invalid_input
from flowfabric.ids import NUM_FLOW_PARTITIONS, check_name, check_tag_key


class EventFilter(msgspec.Struct, frozen=True):
    """An event matches if it has every value that is set; with nothing set all events match.

    `tag` is a key, and the value that the tags of the execution must have for it.
    """

    namespace: str | None = None
    tag: tuple[str, str] | None = None
    partition: int | None = None

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
        if entry.event is None:
            return False
        if self.partition is not None and entry.partition_key != self.partition:
            return False
        if self.namespace is not None and entry.event.namespace != self.namespace:
            return False
        return self.tag is None or entry.event.tags.get(self.tag[0]) == self.tag[1]
