"""One execution as a sequential machine: what each call answers, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from tests.proofs.history.log import Answer, Held, Op

MAX_RETRIES: Final = 2
MAX_REPLAYS: Final = 3
"""What the policy of every execution in a history says; retries come at once."""

_PUBLIC: Final = {"success": "completed", "failed": "failed", "cancelled": "cancelled"}


class State(msgspec.Struct, frozen=True):
    """Where an execution stands; its leases never run out."""

    phase: str = "absent"
    outcome: str = "none"
    waits_for: str = ""
    attempt: int = 0
    epoch: int = 0
    lease: int = 0
    """The number of the claim whose lease is held, or was last."""
    total: int = 0
    retries: int = 0
    replays: int = 0
    told: tuple[str, ...] = ()
    """Every end that was ever told."""

    @property
    def public(self) -> str:
        if self.phase == "terminal":
            return _PUBLIC[self.outcome]
        return "waiting" if self.phase == "runnable" else self.phase

    def but(self, **changes: object) -> State:
        return msgspec.structs.replace(self, **changes)

    def ended(self, outcome: str, *, rotates: bool) -> State:
        return self.but(
            phase="terminal",
            outcome=outcome,
            epoch=self.epoch + (rotates and self.phase == "active"),
            told=(*self.told, outcome),
        )


Outcome = tuple[Answer, State]


def steps(state: State, op: Op) -> Iterator[Outcome]:
    """Every answer that the call may be given here, and the state after it."""
    if op.name == "create":
        yield _create(state)
    elif op.name == "row":
        yield _row(state)
    elif op.name == "claim":
        yield _claim(state, op)
        if op.contended:  # a claim passes over a row that somebody has locked
            yield ("nothing",), state
    elif state.phase == "absent":
        yield ("absent",), state
    elif op.held is not None:
        yield _HOLDERS[op.name](state, op.held)
    else:
        yield _OTHERS[op.name](state)


def _create(state: State) -> Outcome:
    if state.phase != "absent":
        return ("duplicate",), state
    return ("created",), State(phase="runnable")


def _claim(state: State, op: Op) -> Outcome:
    if state.phase != "runnable":
        return ("nothing",), state
    after = state.but(
        phase="active",
        waits_for="",
        epoch=state.epoch + 1,
        lease=op.number,
        total=max(state.total, state.attempt + 1),
    )
    return ("claimed", after.attempt, after.epoch), after


# What the holder of a lease does.


def _holds(state: State, held: Held) -> bool:
    return state.phase == "active" and _left_by(state, held)


def _left_by(state: State, held: Held) -> bool:
    return (state.lease, state.attempt, state.epoch) == (held.claim, held.attempt, held.epoch)


def _refusal(state: State, held: Held) -> Outcome:
    if state.phase != "active":
        return ("not_active", state.phase, state.outcome, state.epoch), state
    if held.attempt > state.attempt:  # there is no such attempt
        return ("absent",), state
    return ("stale", state.epoch), state


def _renew(state: State, held: Held) -> Outcome:
    return (("renewed",), state) if _holds(state, held) else _refusal(state, held)


def _complete(state: State, held: Held) -> Outcome:
    if _holds(state, held):
        return ("completed", False), state.ended("success", rotates=False)
    if state.outcome == "success" and _left_by(state, held):
        return ("completed", True), state
    return _refusal(state, held)


def _retry(state: State, held: Held) -> Outcome:
    if _holds(state, held) and state.retries < MAX_RETRIES:
        after = state.but(
            phase="runnable",
            waits_for="retry",
            attempt=state.attempt + 1,
            retries=state.retries + 1,
        )
        return ("retry", after.attempt, False), after
    return _fail(state, held)


def _fail(state: State, held: Held) -> Outcome:
    if _holds(state, held):
        return ("failed", False), state.ended("failed", rotates=False)
    if state.outcome == "failed" and _left_by(state, held):
        return ("failed", True), state
    same = (state.lease, state.epoch, state.attempt - 1) == (held.claim, held.epoch, held.attempt)
    if same and state.phase == "runnable" and state.waits_for == "retry":
        return ("retry", state.attempt, True), state
    return _refusal(state, held)


def _release(state: State, held: Held) -> Outcome:
    if _holds(state, held):
        return ("released",), state.but(phase="runnable", epoch=state.epoch + 1)
    return _refusal(state, held)


def _give_up(state: State, held: Held) -> Outcome:
    if _holds(state, held):
        return ("cancelled", False), state.ended("cancelled", rotates=True)
    if state.outcome == "cancelled" and (state.lease, state.attempt) == (held.claim, held.attempt):
        return ("cancelled", True), state
    return _refusal(state, held)


_HOLDERS: Final[Mapping[str, Callable[[State, Held], Outcome]]] = {
    "renew": _renew,
    "complete": _complete,
    "retry": _retry,
    "fail": _fail,
    "release": _release,
    "give_up": _give_up,
}


# What everybody else does.


def _cancel(state: State) -> Outcome:
    if state.phase != "terminal":
        return ("cancelled", False), state.ended("cancelled", rotates=True)
    if state.outcome == "cancelled":
        return ("cancelled", True), state
    return ("ended", state.public), state


def _replay(state: State) -> Outcome:
    if state.phase != "terminal":
        return ("not_terminal", state.public), state
    if state.replays >= MAX_REPLAYS:
        return ("exhausted", state.replays), state
    return ("replayed",), state.but(
        phase="runnable",
        outcome="none",
        waits_for="replay",
        epoch=state.epoch + 1,
        retries=0,
        replays=state.replays + 1,
    )


def _revoke(state: State) -> Outcome:
    if state.phase != "active":
        return ("kept", "no_active_lease"), state
    after = state.but(phase="runnable", epoch=state.epoch + 1)
    return ("revoked", after.epoch), after


def _describe(state: State) -> Outcome:
    epoch = state.epoch if state.phase == "active" else None
    return ("is", state.public, state.total, state.retries, epoch), state


def _row(state: State) -> Outcome:
    """The stored row and the events, read when nobody is at work any more."""
    if state.phase == "absent":
        return ("absent",), state
    counts = (state.attempt, state.epoch, state.total, state.retries, state.replays)
    return ("row", state.phase, state.outcome, *counts, state.told), state


_OTHERS: Final[Mapping[str, Callable[[State], Outcome]]] = {
    "cancel": _cancel,
    "replay": _replay,
    "revoke": _revoke,
    "describe": _describe,
}
