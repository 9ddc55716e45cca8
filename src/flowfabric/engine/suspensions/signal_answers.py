"""What the sender of a signal is told."""

from __future__ import annotations

from uuid import UUID

import msgspec

from flowfabric.conditions import Match
from flowfabric.states import SignalEffect


class SignalAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """The signal is stored.

    `match` says how the signal relates to the condition of an open suspension; None if nothing
    waits for its waitpoint, or if it was sent by name.
    """

    signal_id: UUID
    effect: SignalEffect
    match: Match | None = None

    @property
    def resumed(self) -> bool:
        """Was the execution suspended, and can it go on by this signal?"""
        return self.effect is SignalEffect.RESUME_CONDITION_SATISFIED

    @property
    def duplicate(self) -> bool:
        """False: the signal is new."""
        return False


class SignalDuplicate(msgspec.Struct, frozen=True, kw_only=True):
    """A signal with the same idempotency key was accepted before; nothing was written."""

    existing_signal_id: UUID

    @property
    def resumed(self) -> bool:
        """False: this call resumed nothing."""
        return False

    @property
    def duplicate(self) -> bool:
        """True: an earlier signal has the same key."""
        return True
