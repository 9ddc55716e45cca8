"""The text that a scrape gets."""

from __future__ import annotations

from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, REGISTRY, CollectorRegistry, generate_latest

from flowfabric.metrics.collector import CountersCollector
from flowfabric.metrics.shared import SharedCounters
from flowfabric.metrics.snapshot import snapshot

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The content type of the text."""


def registry(shared: SharedCounters | None = None) -> CollectorRegistry:
    """Our metrics, and those of the application in the default registry of prometheus-client.

    With `shared` ours are those of all processes together.
    """
    made = CollectorRegistry()
    made.register(CountersCollector(snapshot if shared is None else shared.read))
    made.register(REGISTRY)
    return made


def exposition(shared: SharedCounters | None = None) -> bytes:
    """The metrics of this process, or of all processes of its command, as text."""
    return generate_latest(registry(shared))
