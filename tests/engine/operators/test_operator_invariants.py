"""What holds after every move, whatever workers and operators did."""

from collections import defaultdict
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.operators.override_complete import override_complete
from flowfabric.engine.operators.override_delay import override_delay
from flowfabric.engine.operators.override_fail import override_fail
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, revoke_lease
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.engine.operators.wake_execution import wake_execution
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import actions
from tests.engine.lifecycle.queued import check_queue
from tests.engine.lifecycle.test_invariants import Walk, check_row

CONTROLS = {
    "cancel": lambda db, each: cancel_execution(db, each, reason="walk"),
    "revoke": lambda db, each: revoke_lease(db, each, reason="walk"),
    "complete": lambda db, each: override_complete(db, each, reason="walk"),
    "fail": lambda db, each: override_fail(db, each, reason="walk"),
    "delay": lambda db, each: override_delay(db, each, delay=1, reason="walk"),
    "replay": replay_execution,
    "priority": lambda db, each: change_priority(db, each, 1),
    "block": lambda db, each: block_execution_for_admission(db, each, "paused_by_operator"),
    "unblock": unblock_execution,
    "wake": wake_execution,
}
CHANCES = ["cancel", "revoke", "revoke", "replay", "replay", "replay", "priority", "block"]
CHANCES += ["unblock", "unblock", "tag", "lane", "trim", "complete", "fail", "delay", "wake"]
STATES = ["active", "active", "active", "paused"]
FITTING = {"replay": "terminal"} | dict.fromkeys(
    ("revoke", "cancel", "complete", "fail", "delay"), "active"
)


class Operated(Walk):
    """A random life of a few executions under workers and operators."""

    async def step(self) -> None:
        if not self.rows or self.chance.random() < 0.6:
            await super().step()
            return
        match self.chance.choice(CHANCES):
            case "tag":
                await set_execution_tag(self.db, self.any_execution(), "walk.step", "x")
            case "lane":
                await set_lane_state(self.db, "default", self.chance.choice(STATES))
            case "trim":
                await self.trim()
            case control:
                await self.control(control)

    def any_execution(self, phase: str | None = None) -> ExecutionId:
        """Any of them, mostly of this phase if there is one."""
        fitting = [key for key, row in self.rows.items() if row["lifecycle_phase"] == phase]
        mostly = fitting if fitting and self.chance.random() < 0.7 else list(self.rows)
        return ExecutionId(*self.chance.choice(mostly))

    async def control(self, name: str) -> None:
        """What succeeds leaves one operator event; what is refused leaves nothing at all."""
        execution_id = self.any_execution(FITTING.get(name, "runnable"))
        before, told = await given.everything(self.db), len(await actions(self.db))
        try:
            answer: Any = await CONTROLS[name](self.db, execution_id)
        except FlowFabricError as error:
            answer = error
        refused = isinstance(answer, FlowFabricError | LeaseNotRevoked)
        if refused or getattr(answer, "repeated", False):
            assert await given.everything(self.db) == before
        else:
            assert len(await actions(self.db)) == told + 1

    async def trim(self) -> None:
        await trim_retention(self.db, Trim(lane_id="default", retention=30))
        left = {tuple(row) for row in await self.db.fetch(LEFT)}
        self.leases = [lease for lease in self.leases if key_of(lease.execution_id) in left]
        self.rows = {key: row for key, row in self.rows.items() if key in left}

    async def check(self) -> None:
        now = {
            (row["partition_key"], row["execution_id"]): dict(row)
            for row in await self.db.fetch("SELECT * FROM ff.execution")
        }
        ends: defaultdict[Any, list[str]] = defaultdict(list)
        for event in await self.db.fetch("SELECT * FROM ff.completion_event ORDER BY event_id"):
            ends[event["partition_key"], event["execution_id"]].append(event["outcome"])
        assert set(ends) <= set(now)
        await self.check_histories(now)
        await check_queue(self.db)
        for key, row in now.items():
            check_row(row)
            check_ends(row, ends[key])
            if key in self.rows:
                check_change(self.rows[key], row)
        self.rows = now

    async def check_histories(self, now: dict[Any, dict[str, Any]]) -> None:
        holders: dict[Any, Any] = {}
        for event in await self.db.fetch("SELECT * FROM ff.lease_event ORDER BY event_id"):
            key = (event["partition_key"], event["execution_id"])
            if event["event_type"] == "acquired":
                assert key not in holders
                holders[key] = event["lease_id"]
            elif event["event_type"] != "renewed":
                assert holders.pop(key) == event["lease_id"]
        assert holders == {
            key: row["lease_id"] for key, row in now.items() if row["lifecycle_phase"] == "active"
        }


LEFT = "SELECT partition_key, execution_id FROM ff.execution"


def key_of(execution_id: ExecutionId) -> tuple[int, Any]:
    return (execution_id.partition_key, execution_id.uuid)


def check_ends(row: dict[str, Any], ends: list[str]) -> None:
    """One completion event for each end: each replay followed one, and the last may stand."""
    ended = row["lifecycle_phase"] == "terminal"
    assert len(ends) == row["replay_count"] + ended
    if ended:
        assert ends[-1] == row["terminal_outcome"]


def check_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    for counter in (
        "lease_epoch",
        "attempt_index",
        "total_attempt_count",
        "replay_count",
        "last_mutation_at_ms",
    ):
        assert after[counter] >= before[counter]
    if before["started_at_ms"] is not None:
        assert after["started_at_ms"] == before["started_at_ms"]
    for constant in ("created_at_ms", "route_id"):
        assert after[constant] == before[constant]
    if before["lifecycle_phase"] == "terminal" and after["replay_count"] == before["replay_count"]:
        assert after == before | {name: after[name] for name in ("tags", "last_mutation_at_ms")}


@pytest.mark.parametrize("seed", range(2))
async def test_the_invariants_hold_after_every_step_of_a_random_walk_with_operators(
    db: Connection, clock: Clock, seed: int
) -> None:
    walk = Operated(db, clock, seed)
    done: set[str] = set()
    steps = 0
    while steps < 400 or len(done) < 6:  # on until it has met most of what operators do
        await walk.step()
        await walk.check()
        done |= {action.event_type for action in await actions(db)}
        steps += 1
        assert steps < 4000, f"the walk is too short to prove anything: {done}"
