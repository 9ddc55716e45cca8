"""Grants, claims by name and reclaims, at random: only drawn arrows, and every invariant holds."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.claim_execution import claim_execution
from flowfabric.engine.grants.claim_for_worker import claim_for_worker
from flowfabric.engine.grants.claim_from_resume_grant import claim_from_resume_grant
from flowfabric.engine.grants.claim_resumed_execution import claim_resumed_execution
from flowfabric.engine.grants.expire_grants import expire_grants
from flowfabric.engine.grants.grant import ReclaimGrant
from flowfabric.engine.grants.issue_claim_grant import issue_claim_grant
from flowfabric.engine.grants.issue_grant_and_claim import issue_grant_and_claim
from flowfabric.engine.grants.issue_reclaim_grant import issue_reclaim_grant
from flowfabric.engine.grants.reclaim_execution import reclaim_execution
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import mark_lease_expired_if_due
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.testing import Clock
from tests import given
from tests.walls.state_machine import drawn
from tests.walls.test_state_machine import INSTALL, WALKED

Step = Callable[[], Awaitable[object]]
KINDS = {"fresh", "resumed", "reclaimed"}
WALKED_BY_GRANTS = {1, 9, 10, 14, 22, 23, 24, 25, 29}


class Walk:
    """Two workers, a few executions, and workers that die or come back."""

    def __init__(self, db: Connection, clock: Clock, seed: int) -> None:
        self.db, self.clock, self.chance = db, clock, random.Random(seed)
        self.executions: list[ExecutionId] = []
        self.leases: list[Lease] = []
        self.kinds: set[str] = set()
        self.epochs: dict[Any, int] = {}
        self.steps: list[tuple[int, Step]] = [
            (1, self.create),
            (2, self.claim),
            (4, self.grant),
            (3, self.grant_any),
            (6, self.claim_by_name),
            (9, self.resume),
            (6, self.grant_reclaim),
            (9, self.reclaim),
            (1, self.operate),
            (5, self.hold),
            (2, self.sweep),
            (2, self.mark),
            (6, self.pass_time),
            (1, self.cancel),
        ]

    async def step(self) -> None:
        [(_, step)] = self.chance.choices(self.steps, [weight for weight, _ in self.steps])
        undone = self.db.transaction()
        await undone.start()
        try:
            await step()
        except EngineError:
            await undone.rollback()
        else:
            await undone.commit()

    def one(self) -> ExecutionId:
        return self.chance.choice(self.executions[-3:])

    def who(self) -> dict[str, Any]:
        worker = self.chance.choice("wwwx")
        return {"worker_id": worker, "worker_instance_id": f"{worker}-{self.chance.choice('12')}"}

    def terms(self) -> dict[str, Any]:
        return self.who() | {
            "lane_id": "default",
            "worker_capabilities": [],
            "grant_ttl": self.chance.choice([4, 20]),
        }

    def taker(self) -> dict[str, Any]:
        return self.who() | {"lease_ttl": self.chance.choice([4, 30])}

    def held(self, answer: object) -> None:
        if isinstance(answer, ClaimedById):
            self.leases.append(answer.lease)
            self.kinds.add(answer.kind)

    async def create(self) -> None:
        retry = RetryPolicy(max_retries=2, backoff=FixedBackoff(delay=0))
        policy = ExecutionPolicy(
            retry_policy=retry, max_reclaim_count=self.chance.choice([1, 3, 100])
        )
        self.executions.append(await given.created(self.db, policy=policy))

    async def claim(self) -> None:
        worker = self.chance.choice([given.WORKER, given.OTHER])
        tasks = await claim(self.db, worker, ttl=self.chance.choice([4, 30]))
        self.leases += [task.lease for task in tasks]

    async def grant(self) -> None:
        await issue_claim_grant(self.db, self.one(), **self.terms())

    async def grant_any(self) -> None:
        await claim_for_worker(self.db, **self.terms())

    async def claim_by_name(self) -> None:
        index = self.chance.choice([0, 0, 1, 2])
        self.held(
            await claim_execution(self.db, self.one(), expected_attempt_index=index, **self.taker())
        )

    async def resume(self) -> None:
        """The grant and its use at once, or the use of a grant that may be another's."""
        execution_id, taker = self.one(), self.taker()
        if self.chance.random() < 0.5:
            who = {name: taker[name] for name in ("worker_id", "worker_instance_id")}
            await issue_claim_grant(self.db, execution_id, **self.terms() | who)
        self.held(await claim_resumed_execution(self.db, execution_id, **taker))

    async def grant_reclaim(self) -> None:
        """The worker of the grant may go on with the lost attempt at once."""
        terms = self.terms()
        grant = await issue_reclaim_grant(self.db, self.one(), **terms)
        if isinstance(grant, ReclaimGrant) and self.chance.random() < 0.2:
            who = {name: terms[name] for name in ("worker_id", "worker_instance_id")}
            self.held(await claim_from_resume_grant(self.db, grant, lease_ttl=30, **who))

    async def reclaim(self) -> None:
        self.held(await reclaim_execution(self.db, self.one(), **self.taker()))

    async def operate(self) -> None:
        await issue_grant_and_claim(self.db, self.one(), lane_id="default", lease_ttl=5)

    async def hold(self) -> None:
        leases = self.leases[-self.chance.randint(1, 3) :]
        match self.chance.choice(["complete", "fail", "release", "renew", "renew"]):
            case "complete":
                await complete(self.db, [Completion(lease) for lease in leases[:1]])
            case "fail":
                await fail(self.db, [Failure(lease=lease, reason="no") for lease in leases])
            case "release":
                await release(self.db, leases)
            case _:
                await renew(self.db, leases, ttl=10)

    async def sweep(self) -> None:
        step = self.chance.choice([expire_leases, expire_grants, promote_due])
        await step(self.db, self.chance.choice([1, 10]))

    async def mark(self) -> None:
        await mark_lease_expired_if_due(self.db, self.one())

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice([0.5, 2, 5, 20]))

    async def cancel(self) -> None:
        if self.chance.random() < 0.2:
            await cancel_execution(self.db, self.one(), reason="walk")

    async def check(self) -> None:
        """I2, I3, I4, I8 of executions.md section 14, and what is true of grants."""
        rows = {
            row["execution_id"]: row for row in await self.db.fetch("SELECT * FROM ff.execution")
        }
        ended = await self.db.fetch("SELECT execution_id, outcome FROM ff.completion_event")
        assert sorted((event["execution_id"], event["outcome"]) for event in ended) == sorted(
            (name, row["terminal_outcome"])
            for name, row in rows.items()
            if row["lifecycle_phase"] == "terminal"
        )
        holders: dict[Any, Any] = {}
        for event in await self.db.fetch("SELECT * FROM ff.lease_event ORDER BY event_id"):
            if event["event_type"] in ("acquired", "reclaimed"):
                assert event["execution_id"] not in holders
                holders[event["execution_id"]] = event["lease_id"]
            else:
                assert holders.pop(event["execution_id"]) == event["lease_id"]
        assert holders == {
            name: row["lease_id"]
            for name, row in rows.items()
            if row["lifecycle_phase"] == "active"
        }
        indexes: dict[Any, set[int]] = {name: set() for name in rows}
        for attempt in await self.db.fetch("SELECT * FROM ff.attempt"):
            indexes[attempt["execution_id"]].add(attempt["attempt_index"])
        for name, row in rows.items():
            if row["lifecycle_phase"] == "active":
                indexes[name].add(row["attempt_index"])
            assert indexes[name] == set(range(row["total_attempt_count"]))
            assert row["lease_epoch"] >= self.epochs.get(name, 0)
            self.epochs[name] = row["lease_epoch"]
        assert not await self.db.fetchval(
            "SELECT EXISTS (SELECT FROM ff.unused_grant WHERE expires_at_ms > ff.now_ms()"
            " GROUP BY execution_id HAVING count(*) > 1)"
        ), "two grants of one execution run"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.whole)])
async def test_grants_and_reclaims_walk_only_along_arrows(
    db: Connection, clock: Clock, seed: int
) -> None:
    await db.execute(INSTALL)
    await db.copy_records_to_table("drawn", schema_name="ff_walls", records=drawn())
    await seed_waitpoint_hmac_secret(db, "k1", "5e" * 32)
    walk = Walk(db, clock, seed)
    await walk.create()

    walked: set[int] = set()
    for _ in range(20):
        for _ in range(200):
            await walk.step()
            await walk.check()
        walked = {row["row_number"] for row in await db.fetch(WALKED)}
        if walked >= WALKED_BY_GRANTS and walk.kinds >= KINDS:
            break

    assert walked >= WALKED_BY_GRANTS
    assert walk.kinds == KINDS
