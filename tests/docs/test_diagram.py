"""The drawn states: words of the enums only, and every arrow is one that the engine takes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.cancel_execution import cancel_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import Rest, delay
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.states import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    PublicState,
    TerminalOutcome,
)
from flowfabric.testing import Clock
from tests import given
from tests.docs.pages import PAGES, blocks, name_of, quoted, rows, sections

CONCEPTS = "docs/concepts.md"
ARROW = re.compile(r"^ *(\S+) --> (\S+)(?: : (.+))?$", re.MULTILINE)
ENDS = "[*]"
STATES = {state.value for state in PublicState} | {ENDS}
NOT_REACHED = {"rate_limited", "waiting_children", "suspended", "resumable", "skipped"}


def arrows() -> list[tuple[str, str, str]]:
    """(from, to, operation) for each operation on each arrow."""
    [drawn] = [each for each in blocks(CONCEPTS) if each.language == "mermaid"]
    return [
        (before, after, operation)
        for before, after, label in ARROW.findall(drawn.text)
        for operation in (label.split(", ") if label else [""])
    ]


def test_diagrams_use_only_words_of_the_enums() -> None:
    operations = {
        path.name.removesuffix(".py")
        for path in resources.files("flowfabric.engine.lifecycle").iterdir()
    }
    for page in PAGES:
        for each in blocks(name_of(page)):
            if each.language != "mermaid":
                continue
            for before, after, label in ARROW.findall(each.text):
                assert {before, after} <= STATES, each
                assert not label or set(label.split(", ")) <= operations, each


def test_every_state_is_drawn_or_said_to_be_out_of_reach() -> None:
    drawn = {word for before, after, _ in arrows() for word in (before, after)}

    assert drawn | NOT_REACHED == STATES
    assert set(quoted(sections(CONCEPTS, 2)["States"])) >= NOT_REACHED


def test_every_end_and_no_other_state_leads_to_nothing() -> None:
    drawn = {before for before, after, _ in arrows() if after == ENDS}

    assert drawn == {"completed", "failed", "cancelled", "expired"}
    assert all(PublicState(state).is_terminal for state in drawn)


def test_the_vectors_use_only_words_of_the_enums() -> None:
    alphabets = [LifecyclePhase, EligibilityState, BlockingReason, TerminalOutcome, AttemptState]
    words = {word.value for alphabet in alphabets for word in alphabet}

    vectors = [cells for cells in rows(sections(CONCEPTS, 2)["States"]) if " / " in cells[1]]
    assert len(vectors) == 11
    for _, vector in vectors:
        for alphabet, part in zip(alphabets, vector.split(" / "), strict=False):
            assert set(quoted(part)) <= words
            assert not quoted(part) or quoted(part)[0] in {word.value for word in alphabet}


# Every arrow is taken.

AT_ONCE = given.retrying(backoff=FixedBackoff(delay_ms=0))
LATER = given.retrying(backoff=FixedBackoff(delay_ms=60_000))
LIMIT = TimeoutPolicy(attempt_timeout_ms=10_000)


def limited(delay_ms: int) -> ExecutionPolicy:
    backoff = FixedBackoff(delay_ms=delay_ms)
    return ExecutionPolicy(timeout_policy=LIMIT, retry_policy=RetryPolicy(backoff=backoff))


FIELDS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("active", "waiting", "fail"): {"policy": AT_ONCE},
    ("active", "delayed", "fail"): {"policy": LATER},
    ("active", "failed", "expire_leases"): {"policy": ExecutionPolicy(max_reclaim_count=0)},
    ("active", "expired", "expire_attempts"): {"policy": ExecutionPolicy(timeout_policy=LIMIT)},
    ("active", "waiting", "expire_attempts"): {"policy": limited(0)},
    ("active", "delayed", "expire_attempts"): {"policy": limited(60_000)},
}
MOVES: dict[str, Callable[[Connection, Lease], Awaitable[object]]] = {
    "renew": lambda db, lease: renew(db, [lease], ttl=30),
    "progress": lambda db, lease: progress(db, lease, percent=1),
    "complete": lambda db, lease: complete(db, [Completion(lease)]),
    "fail": lambda db, lease: fail(db, [Failure(lease=lease, reason="why")]),
    "cancel": lambda db, lease: cancel(db, [Cancellation(lease, "why")]),
    "release": lambda db, lease: release(db, [lease]),
    "delay": lambda db, lease: delay(db, [Rest(lease=lease, delay=60)]),
}
SWEEPS = {
    "promote_due": (promote_due, 60),
    "expire_leases": (expire_leases, 30),
    "expire_attempts": (expire_attempts, 10),
    "expire_executions": (expire_executions, 3600),
}


async def begin(db: Connection, state: str, **fields: Any) -> tuple[ExecutionId, Lease | None]:
    """An execution in that state, alone in the database."""
    for table in ("exec_core", "exec_body", "attempt"):
        await db.execute(f"DELETE FROM ff.{table}")
    if state == "active":
        lease = await given.claimed(db, **fields)
        return lease.execution_id, lease
    if state == "delayed":
        fields["delay"] = 60
    return await given.created(db, **fields), None


async def take(db: Connection, clock: Clock, arrow: tuple[str, str, str]) -> str:
    """Where the operation of the arrow leads from where it begins."""
    before, after, operation = arrow
    if operation == "create_execution":
        execution_id, _ = await begin(db, after)
        return await given.public_state(db, execution_id)
    deadline = {"deadline": 3600} if operation == "expire_executions" else {}
    execution_id, lease = await begin(db, before, **deadline, **FIELDS.get(arrow, {}))
    assert await given.public_state(db, execution_id) == before

    if operation in SWEEPS:
        sweep, seconds = SWEEPS[operation]
        await clock.advance(seconds)
        assert await sweep(db, 10) == 1, arrow
    elif operation == "claim":
        await claim(db, given.WORKER, ttl=30)
    elif operation == "cancel_execution":
        await cancel_execution(db, execution_id, reason="why")
    else:
        assert lease is not None
        await MOVES[operation](db, lease)
    return await given.public_state(db, execution_id)


async def test_every_arrow_is_what_the_engine_does(db: Connection, clock: Clock) -> None:
    drawn = [arrow for arrow in arrows() if arrow[1] != ENDS]

    taken = [(arrow[0], await take(db, clock, arrow), arrow[2]) for arrow in drawn]

    assert taken == drawn
