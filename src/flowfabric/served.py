"""Sentences about executions that no live worker serves, and about workers that would elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ServedElsewhere(msgspec.Struct, frozen=True):
    """A live worker that serves the kind, in another namespace or on other lanes."""

    worker_instance_id: str
    namespace: str
    lanes: list[str]


def read_elsewhere(found: str) -> list[ServedElsewhere]:
    """The workers that a statement found, as a JSON array of their fields."""
    return [
        ServedElsewhere(*each)
        for each in msgspec.json.decode(found, type=list[tuple[str, str, list[str]]])
    ]


def elsewhere_text(lane_id: str, namespace: str, elsewhere: Sequence[ServedElsewhere]) -> str:
    """Where the first of the workers serves the kind, as a clause; empty without a worker."""
    if not elsewhere:
        return ""
    found = elsewhere[0]
    where: list[str] = []
    if lane_id not in found.lanes:
        lanes = ", ".join(repr(lane) for lane in found.lanes)
        where.append(f"on lane {lanes}" if len(found.lanes) == 1 else f"on lanes {lanes}")
    if found.namespace != namespace:
        where.append(f"in namespace {found.namespace!r}")
    return f"worker {found.worker_instance_id} serves it {' '.join(where)}"


def unserved_text(
    execution_kind: str, lane_id: str, namespace: str, elsewhere: Sequence[ServedElsewhere]
) -> str:
    """That no live worker serves the kind on this lane in this namespace, and which does where."""
    clause = elsewhere_text(lane_id, namespace, elsewhere)
    return (
        f"no live worker serves kind {execution_kind!r} on lane {lane_id!r} "
        f"in namespace {namespace!r}" + (f"; {clause}" if clause else "")
    )
