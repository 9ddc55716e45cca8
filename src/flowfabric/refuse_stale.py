"""A change is made to the version that its caller has seen, or refused."""

from __future__ import annotations

from datetime import datetime

from flowfabric.errors import StaleView
from flowfabric.instants import check_instant, epoch_ms, instant


def seen_at_ms(seen_at: datetime | None) -> int | None:
    """The instant as a statement is given it; raises `ValidationError(invalid_input)`."""
    if seen_at is None:
        return None
    return epoch_ms(check_instant(seen_at, field="expected_last_mutation_at"))


def refuse_stale(
    entity: str, name: object, seen_at: datetime | None, *, changed_at_ms: int
) -> None:
    """Raise `StaleView` if it has changed after `seen_at`; None is any version."""
    seen_ms = seen_at_ms(seen_at)
    if seen_at is None or seen_ms is None or changed_at_ms <= seen_ms:
        return
    raise StaleView(entity, name, seen_at=seen_at, changed_at=instant(changed_at_ms))
