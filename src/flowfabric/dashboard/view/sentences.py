"""States and events in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from flowfabric.engine.events.read_history import HistoryEntry
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


def reason_word(text: str) -> str:
    """A reason: as it was written, or in words if it is one word of ours."""
    return text if " " in text or not text.islower() else text.replace("_", " ")


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The first tags that people have set; those of FlowFabric itself are left out."""
    kept = [(key, value) for key, value in tags.items() if not key.startswith("ff.")]
    return dict(kept[:3])


class StoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an execution in words."""

    at: datetime
    family: str
    what: str
    hue: str
    by: str
    why: str
    more: list[tuple[str, str]]


_LEASE: Final = {
    "acquired": "claimed",
    "renewed": "lease renewed",
    "expired": "lease lost",
    "reclaimed": "claimed again",
    "revoked": "lease revoked",
    "released": "given back",
}
_LEFT: Final = {
    "completed": "attempt succeeded",
    "failed": "attempt failed",
    "retry": "attempt failed, to be retried",
    "delay": "postponed by its handler",
    "waiting_children": "waits for its children",
    "suspended": "suspended",
    "cancelled": "stopped: cancelled",
    "released": "given back",
    "operator": "lease revoked",
    "disconnected": "worker disconnected",
    "restarted": "attempt begins anew",
}
_BAD: Final = ("failed", "expired", "lease lost", "attempt failed", "worker disconnected")


def story_line(entry: HistoryEntry, *, hidden: bool = False) -> StoryLine:
    """The event in words; without what payloads may say if they are `hidden`."""
    what, why, details = state_word(entry.what), entry.reason or "", dict(entry.details)
    match entry.outbox:
        case "lease":
            what = _LEASE.get(entry.what, what)
            if entry.what in ("released", "revoked") and entry.reason in _LEFT:
                what, why = _LEFT[entry.reason], ""
            error = str(details.pop("error", ""))
            why = "" if hidden else error or why
        case "signal":
            what = f"signal {details.pop('signal_name', '')}"
            why = state_word(entry.what)
        case "completion":
            what = f"ended: {state_word(entry.what)}" if entry.what != "resumable" else "can go on"
        case _:
            pass
    hue = "red" if what.endswith(_BAD) or what in _BAD else _FAMILY_HUES.get(entry.outbox, "grey")
    if what.endswith("success") or what == "attempt succeeded":
        hue = "green"
    more = [
        (state_word(key), str(value)) for key, value in details.items() if value not in (None, "")
    ]
    if entry.attempt_index is not None:
        more.insert(0, ("attempt", str(entry.attempt_index + 1)))
    return StoryLine(
        at=entry.at, family=entry.outbox, what=what, hue=hue, by=entry.by or "", why=why, more=more
    )


_FAMILY_HUES: Final = {"operator": "violet", "signal": "teal", "lease": "blue", "execution": "grey"}

BULK_ACTS: Final = (
    ("cancel", "Cancel"),
    ("replay", "Replay"),
    ("priority", "Priority"),
    ("block", "Block"),
    ("unblock", "Unblock"),
    ("tag", "Tag"),
)
"""What can be done to many executions, and the words of its buttons."""
