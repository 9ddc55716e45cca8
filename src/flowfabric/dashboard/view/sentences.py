"""States and events in words."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.states import PublicState


class StateLook(msgspec.Struct, frozen=True):
    """How a state is drawn: the symbol of its icon, and its colour."""

    icon: str
    hue: str


STATES: Final = {
    PublicState.WAITING: StateLook("ring", "grey"),
    PublicState.DELAYED: StateLook("clock", "grey"),
    PublicState.RATE_LIMITED: StateLook("gate", "amber"),
    PublicState.WAITING_CHILDREN: StateLook("fork", "teal"),
    PublicState.ACTIVE: StateLook("play", "blue"),
    PublicState.SUSPENDED: StateLook("pause", "violet"),
    PublicState.RESUMABLE: StateLook("resume", "violet"),
    PublicState.COMPLETED: StateLook("tick", "green"),
    PublicState.FAILED: StateLook("cross", "red"),
    PublicState.EXPIRED: StateLook("glass", "red"),
    PublicState.CANCELLED: StateLook("slash", "brown"),
    PublicState.SKIPPED: StateLook("skip", "grey"),
}
"""Every state, in the order in which lists of states show them."""

OPEN_STATES: Final = tuple(each for each in STATES if not each.is_terminal)
ENDED_STATES: Final = tuple(each for each in STATES if each.is_terminal)


def state_word(state: object) -> str:
    """A word of an enum as people write it."""
    return str(state).replace("_", " ")
