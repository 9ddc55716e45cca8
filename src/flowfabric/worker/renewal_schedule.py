"""When the renewer does what: arithmetic on instants of the monotonic clock, without waiting.

No lease waits longer than a third of its TTL for a renewal. Looks for lost leases and heartbeats
take the connection only for the time until the next renewal.
"""

from __future__ import annotations

import math
import random
from typing import Final

HEARTBEAT: Final = 10.0
"""Seconds between two heartbeats of a worker."""
_FIRST_PAUSE: Final = 0.35
"""Seconds between the first two tries that fail: at most three tries a second."""
_RECONNECT_PAUSE: Final = 0.8
"""Seconds between two tries to reconnect, at most half as much more: two of them fit into the time
in which a worker must be connected again to keep its leases."""
_LOOK_PAUSE: Final = 0.05
"""Seconds between two looks for lost leases, at least."""
_LOOK_SHARE: Final = 4
"""After a look the next one waits so many times as long as that look took."""


class RenewalSchedule:
    """The instants at which renewals, looks for lost leases and heartbeats are due.

    `oldest` is the instant of the last renewal of the lease that was renewed the longest ago, or
    None if no lease is held.
    """

    def __init__(self, ttl: float, now: float) -> None:
        self.every = ttl / 3
        self._renewed_at = now
        self._heartbeat_at = now + HEARTBEAT
        self._look_asked = False
        self._look_at = 0.0
        self._renewal_not_before = self._others_not_before = 0.0
        self.reconnect_at = 0.0
        """When the next try to reconnect is due, if the connection is lost."""
        self._pause = 0.0

    def next_at(self, oldest: float | None) -> float:
        """When something is due."""
        return min(self._renewal_at(oldest), self._others_at())

    # Renewals.

    def renewal_is_due(self, oldest: float | None, now: float) -> bool:
        """Must leases be renewed now?

        Before a look or a heartbeat they are renewed up to half of their time early, so that a
        statement that hangs leaves the time for the next renewal.
        """
        early = self.every / 2 if now >= self._others_at() else 0.0
        return now >= self._renewal_at(oldest) - early

    def renewed(self, began: float) -> None:
        """A renewal that began then covers every lease that was older than `every` / 2."""
        self._renewed_at = began

    def _renewal_at(self, oldest: float | None) -> float:
        at = self._renewed_at + self.every
        if oldest is not None:  # a lease that the last renewal left out is due before that
            at = min(at, max(oldest, self._renewed_at - self.every / 2) + self.every)
        return max(at, self._renewal_not_before)

    def seconds_until_renewal(self, oldest: float | None, now: float) -> float:
        """How long something else may take; at least a moment, at most `every`."""
        return min(self.every, max(0.05, self._renewal_at(oldest) - now))

    # Looks for lost leases, and heartbeats.

    def ask_for_look(self) -> None:
        """Leases may have been lost: look soon; many calls are answered by one look."""
        self._look_asked = True

    def look_is_due(self, now: float) -> bool:
        return now >= max(self._look_due_at(), self._others_not_before)

    def look_begins(self) -> None:
        """What is asked from now on needs another look."""
        self._look_asked = False

    def looked(self, began: float, now: float) -> None:
        """A look has ended; looks take at most a fifth of the time."""
        self._look_at = now + max(_LOOK_PAUSE, _LOOK_SHARE * (now - began))

    def heartbeat_is_due(self, now: float) -> bool:
        return now >= max(self._heartbeat_at, self._others_not_before)

    def heartbeat_sent(self, began: float) -> None:
        self._heartbeat_at = began + HEARTBEAT

    def heartbeat_soon(self, now: float) -> None:
        """What a heartbeat reports has changed: send one now, but at most one a second."""
        last = self._heartbeat_at - HEARTBEAT
        self._heartbeat_at = min(self._heartbeat_at, max(now, last + 1.0))

    def _look_due_at(self) -> float:
        return self._look_at if self._look_asked else math.inf

    def _others_at(self) -> float:
        return max(min(self._look_due_at(), self._heartbeat_at), self._others_not_before)

    # Failures.

    def succeeded(self) -> None:
        """The database answers: pauses are short again."""
        self._pause = 0.0

    def failed(self, began: float, now: float, *, renewal: bool) -> None:
        """A try that began then has failed: the next one waits, longer after each failure.

        From the beginning of one renewal to the next no more than `every` goes by: after a
        statement that hung so long the next try follows at once. The failure of something else
        does not postpone a renewal.
        """
        self._pause = min(max(_FIRST_PAUSE, self._pause * 2), max(_FIRST_PAUSE, self.every))
        retry_at = max(now, min(now + self._pause * random.uniform(1.0, 1.5), began + self.every))
        self._others_not_before = retry_at
        self.reconnect_at = min(retry_at, now + _RECONNECT_PAUSE * random.uniform(1.0, 1.5))
        if renewal:
            self._renewal_not_before = retry_at

    def reconnected(self) -> None:
        """The database answers again: what waits for the next try is due."""
        self._renewal_not_before = self._others_not_before = 0.0
