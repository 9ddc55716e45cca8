"""The state machine as it is drawn in executions.md section 6: one entry per row of the drawing.

The rows from 34 on are what flows add, and those from 38 on what suspensions add.

A vector is phase / eligibility / blocking_reason / outcome / attempt_state. An entry says from
where (what is not named may be anything) and to where (what is not named stays as it was).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Final, NamedTuple


class Vector(NamedTuple):
    """Where an execution stands."""

    phase: str
    eligibility: str
    blocking: str
    outcome: str
    attempt: str

    def __str__(self) -> str:
        return "/".join(self)


class Arrow(NamedTuple):
    """One row of the drawing."""

    number: int
    operation: str
    start: Mapping[str, str | tuple[str, ...]]
    end: Mapping[str, str | tuple[str, ...]]


ABSENT: Final = "absent"
ENDED: Final = "attempt_terminal, or unchanged if there never was an attempt"

PENDING = ("pending_first_attempt", "pending_retry_attempt", "pending_replay_attempt")
ELIGIBLE = {"phase": "runnable", "eligibility": "eligible_now"}
ACTIVE = {"phase": "active"}
ALIVE = {"phase": ("runnable", "active", "suspended")}

WAITING = {**ELIGIBLE, "blocking": "waiting_for_worker", "outcome": "none"}
DELAYED = {"phase": "runnable", "eligibility": "not_eligible_until_time", "outcome": "none"}
CHILDREN = {
    "phase": "runnable",
    "eligibility": "blocked_by_dependencies",
    "blocking": "waiting_for_children",
    "outcome": "none",
}
RUNNING = {
    "phase": "active",
    "eligibility": "not_applicable",
    "blocking": "none",
    "outcome": "none",
    "attempt": "running_attempt",
}
OVER = {"phase": "terminal", "eligibility": "not_applicable", "blocking": "none"}
RETRY = {"attempt": "pending_retry_attempt"}
INTERRUPTED = {"attempt": "attempt_interrupted"}
TERMINAL = {"attempt": "attempt_terminal"}
SUSPENDED = {
    "phase": "suspended",
    "eligibility": "not_applicable",
    "outcome": "none",
    "attempt": "attempt_interrupted",
}
FIRST = {"attempt": "pending_first_attempt"}
PARKED = {
    "phase": "runnable",
    "eligibility": "blocked_by_operator",
    "blocking": "paused_by_flow_cancel",
    "outcome": "none",
}

PAUSED = {"eligibility": "blocked_by_operator", "blocking": "paused_by_operator"}
NOT_PAUSED = (
    "eligible_now",
    "not_eligible_until_time",
    "blocked_by_budget",
    "blocked_by_quota",
    "blocked_by_route",
    "blocked_by_lane_state",
)

CREATIONS: Final = (
    Arrow(1, "create", {}, WAITING | FIRST),
    Arrow(2, "create with a delay", {}, DELAYED | {"blocking": "waiting_for_delay"} | FIRST),
    Arrow(34, "create held", {}, CHILDREN | FIRST),
)

ARROWS: Final = (
    Arrow(3, "dependency applied", {"eligibility": NOT_PAUSED}, CHILDREN),
    Arrow(3, "dependency applied under an operator's block", PAUSED, {}),
    Arrow(4, "dependencies satisfied", {"eligibility": "blocked_by_dependencies"}, WAITING),
    Arrow(
        4,
        "dependencies satisfied before its time",
        {"eligibility": "blocked_by_dependencies"},
        DELAYED | {"blocking": "waiting_for_delay"},
    ),
    Arrow(4, "dependencies satisfied under an operator's block", PAUSED, {}),
    Arrow(5, "dependency impossible", ALIVE, OVER | {"outcome": "skipped", "attempt": ENDED}),
    *(
        Arrow(6, "block for admission", ELIGIBLE, {"eligibility": held, "blocking": reason})
        for held, reason in (
            ("blocked_by_budget", "waiting_for_budget"),
            ("blocked_by_quota", "waiting_for_quota"),
            ("blocked_by_route", "waiting_for_capable_worker"),
            ("blocked_by_operator", "paused_by_operator"),
            ("blocked_by_lane_state", "paused_by_policy"),
        )
    ),
    Arrow(
        7,
        "unblock",
        {"eligibility": ("blocked_by_budget", "blocked_by_quota", "blocked_by_route")},
        WAITING,
    ),
    Arrow(7, "unblock by an operator", PAUSED, WAITING),
    Arrow(7, "unblock of one that waits for others besides", PAUSED, CHILDREN),
    Arrow(8, "grant issued", ELIGIBLE, {}),
    Arrow(9, "claim", ELIGIBLE | {"attempt": PENDING}, RUNNING),
    Arrow(10, "claim what was interrupted", ELIGIBLE | INTERRUPTED, RUNNING),
    Arrow(11, "renew", ACTIVE, {}),
    Arrow(12, "progress", ACTIVE, {}),
    Arrow(13, "complete", ACTIVE, OVER | {"outcome": "success"} | TERMINAL),
    Arrow(
        14,
        "fail, retried later",
        ACTIVE,
        DELAYED | {"blocking": "waiting_for_retry_backoff"} | RETRY,
    ),
    Arrow(14, "fail, retried at once", ACTIVE, WAITING | RETRY),
    Arrow(15, "fail for good", ACTIVE, OVER | {"outcome": "failed"} | TERMINAL),
    Arrow(16, "delay", ACTIVE, DELAYED | {"blocking": "waiting_for_delay"} | INTERRUPTED),
    Arrow(17, "wait for children", ACTIVE, CHILDREN | INTERRUPTED),
    Arrow(
        18,
        "suspend",
        ACTIVE,
        SUSPENDED
        | {
            "blocking": (
                "waiting_for_signal",
                "waiting_for_approval",
                "waiting_for_callback",
                "waiting_for_tool_result",
                "waiting_for_budget",
                "paused_by_operator",
                "paused_by_policy",
            )
        },
    ),
    Arrow(19, "resume", {"phase": "suspended"}, WAITING | INTERRUPTED),
    Arrow(
        20,
        "resume later",
        {"phase": "suspended"},
        DELAYED | {"blocking": "waiting_for_resume_delay"} | INTERRUPTED,
    ),
    Arrow(21, "promote", {"eligibility": "not_eligible_until_time"}, WAITING),
    Arrow(22, "lease expiry", ACTIVE, WAITING | INTERRUPTED),
    Arrow(23, "revoke or release", ACTIVE, WAITING | INTERRUPTED),
    Arrow(24, "reclaim", ACTIVE, RUNNING),
    Arrow(24, "reclaim what was interrupted", ELIGIBLE | INTERRUPTED, RUNNING),
    Arrow(25, "reclaim cap", ACTIVE, OVER | {"outcome": "failed"} | TERMINAL),
    Arrow(25, "reclaim cap", ELIGIBLE | INTERRUPTED, OVER | {"outcome": "failed"} | TERMINAL),
    Arrow(
        26,
        "attempt timeout, retried later",
        ACTIVE,
        DELAYED | {"blocking": "waiting_for_retry_backoff"} | RETRY,
    ),
    Arrow(26, "attempt timeout, retried at once", ACTIVE, WAITING | RETRY),
    Arrow(27, "attempt timeout", ACTIVE, OVER | {"outcome": "expired"} | TERMINAL),
    Arrow(28, "deadline", ALIVE, OVER | {"outcome": "expired", "attempt": ENDED}),
    Arrow(29, "cancel", ALIVE, OVER | {"outcome": "cancelled", "attempt": ENDED}),
    Arrow(30, "change priority", ELIGIBLE, {}),
    Arrow(31, "replay", {"phase": "terminal"}, WAITING | {"attempt": "pending_replay_attempt"}),
    Arrow(
        32,
        "replay of a skipped member",
        {"phase": "terminal", "outcome": "skipped"},
        CHILDREN | {"attempt": "pending_replay_attempt"},
    ),
    Arrow(35, "join a flow, or get a signal by name", ALIVE, {}),
    Arrow(36, "park for the cancel of its flow", {"phase": "runnable"}, PARKED),
    Arrow(37, "come back to a cancelled flow", ACTIVE, PARKED | INTERRUPTED),
    Arrow(37, "come back to a cancelled flow, to be retried", ACTIVE, PARKED | RETRY),
    Arrow(37, "be resumed in a cancelled flow", {"phase": "suspended"}, PARKED | INTERRUPTED),
    Arrow(
        38,
        "suspension timeout",
        {"phase": "suspended"},
        OVER | {"outcome": ("failed", "cancelled", "expired")} | TERMINAL,
    ),
    Arrow(
        39,
        "suspension timeout, escalated",
        {"phase": "suspended"},
        {"blocking": "paused_by_operator"},
    ),
)
REMOVAL: Final = (33, "trim retention")


def _one_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _attempts_of_an_end(before: str) -> tuple[str, ...]:
    if before == "pending_first_attempt":
        return (before,)
    # A replay may follow an end that came before any attempt.
    return (before, "attempt_terminal") if before == "pending_replay_attempt" else _ATTEMPTED


_ATTEMPTED: Final = ("attempt_terminal",)


def ends(arrow: Arrow, start: Vector) -> Iterator[Vector]:
    """Where the arrow leads from `start`; nowhere if it does not begin there."""
    if any(getattr(start, name) not in _one_of(value) for name, value in arrow.start.items()):
        return
    choices: list[tuple[str, ...]] = []
    for name, before in zip(Vector._fields, start, strict=True):
        value = arrow.end.get(name, before)
        choices.append(_attempts_of_an_end(before) if value == ENDED else _one_of(value))
    for words in product(*choices):
        yield Vector(*words)


@cache
def drawn() -> frozenset[tuple[int, str, str]]:
    """Every arrow between vectors that can be reached, with the number of its row."""
    found: set[tuple[int, str, str]] = set()
    reached: set[Vector] = set()
    ahead: list[Vector] = []
    for creation in CREATIONS:
        born = Vector(**creation.end)  # pyright: ignore[reportArgumentType]
        found.add((creation.number, ABSENT, str(born)))
        ahead.append(born)
    while ahead:
        start = ahead.pop()
        if start in reached:
            continue
        reached.add(start)
        for arrow in ARROWS:
            for end in ends(arrow, start):
                found.add((arrow.number, str(start), str(end)))
                ahead.append(end)
        if start.phase == "terminal":
            found.add((REMOVAL[0], str(start), ABSENT))
    return frozenset(found)


def vectors() -> set[Vector]:
    """Every vector that can be reached."""
    return {Vector(*end.split("/")) for _, _, end in drawn() if end != ABSENT}
