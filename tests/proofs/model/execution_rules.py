"""Rules of submitters and workers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import Created, NewExecution
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.ids import key_partition
from tests.proofs.model import moves
from tests.proofs.model.common import LANES, POLICIES, Common, move, some, which

KEYS = ("k1", "k2")
TTL = st.sampled_from((2, 10, 60))


class ExecutionRules(Common):
    """Create, claim, and every write of a lease holder."""

    @move(
        lane=st.sampled_from(LANES),
        priority=st.sampled_from((-5, 0, 0, 5, 99_999)),
        policy=st.sampled_from(POLICIES),
        delay=st.sampled_from((None, None, None, 0, 4)),
        deadline=st.sampled_from((None, None, 15)),
        hold=st.sampled_from((None, None, None, True)),
        many=st.integers(1, 3),
        home=which,
    )
    def create(self, home: int, many: int, **fields: Any) -> None:
        fields["lane_id"] = fields.pop("lane")
        where = self.world.flows.get(self.flow(home)) if home % 2 else None
        news = [
            self.new(
                None if where is None else where.partition_key,
                execution_kind="mail" if number else "job",
                required_capabilities=("gpu",) if number == 2 else (),
                input_payload=bytes([number]),
                **fields,
            )
            for number in range(many)
        ]
        self._create(news)

    @move(key=st.sampled_from(KEYS), policy=st.sampled_from(POLICIES), how=some, number=which)
    def create_with_a_key(self, key: str, policy: Any, how: int, number: int) -> None:
        home = key_partition("default", key) + (how == 0)
        fields: dict[str, Any] = {"idempotency_key": key, "policy": policy, "lane_id": LANES[0]}
        if how == 1:
            fields["execution_id"] = self.execution(number)
        self._create([self.new(home, **fields)])

    @move(number=which)
    def create_what_there_is(self, number: int) -> None:
        taken = self.execution(number)
        self._create([self.new(execution_id=taken, lane_id=LANES[0], priority=7)])

    def _create(self, news: list[NewExecution]) -> None:
        told = self.both(
            "create_execution",
            lambda engine: engine.create_execution(news),
            lambda _: moves.create_execution(self.world, news),
            only=news[0].execution_id,
        )
        if isinstance(told, list):
            self.ids += [each.execution_id for each in told if isinstance(each, Created)]

    @move(
        lanes=st.sampled_from((LANES, LANES, LANES[:1], LANES[1:], ("nowhere",))),
        kinds=st.sampled_from((None, None, ("job",), ("mail", "job"))),
        gpu=st.booleans(),
        who=st.sampled_from(("w-1", "w-2")),
        ttl=TTL,
        limit=st.sampled_from((1, 1, 2, 5)),
    )
    def claim(self, lanes: Any, kinds: Any, gpu: bool, who: str, ttl: int, limit: int) -> None:
        claimant = Claimant(
            worker_id="w",
            worker_instance_id=who,
            lanes=lanes,
            kinds=kinds,
            capabilities=("gpu", "ssd") if gpu else (),
        )
        told = self.both(
            "claim",
            lambda engine: engine.claim(claimant, ttl=ttl, limit=limit),
            lambda told: moves.claim(
                self.world,
                claimant,
                ttl_ms=ttl * 1000,
                limit=limit,
                lease_id=self._fresh(told[0].lease.lease_id) if told else self.uuid(),
            ),
        )
        self.leases += [each.lease for each in told]

    def _fresh(self, lease_id: Any) -> Any:
        """The id of a new lease; one that was given out before is not new."""
        used = {each.lease_id for each in self.leases}
        return self.uuid() if lease_id in used else lease_id

    @move(ttl=TTL)
    def claim_everything(self, ttl: int) -> None:
        self.claim(LANES, None, gpu=True, who="w-1", ttl=ttl, limit=20)

    @move(number=which, how=some, ttl=TTL, also=some)
    def renew(self, number: int, how: int, ttl: int, also: int) -> None:
        leases = [self.held(number, how)]
        if also < 4:
            leases.append(self.held(number + 1, also * 3))
        self.both(
            "renew",
            lambda engine: engine.renew(leases, ttl=ttl),
            lambda _: moves.renew(self.world, leases, ttl_ms=ttl * 1000),
            only=leases[0].execution_id,
        )

    @move(
        number=which,
        how=some,
        percent=st.sampled_from((None, 10, 90)),
        message=st.sampled_from((None, "far", "near")),
    )
    def progress(self, number: int, how: int, percent: int | None, message: str | None) -> None:
        lease = self.held(number, how)
        self.both(
            "progress",
            lambda engine: engine.progress(lease, percent=percent, message=message),
            lambda _: moves.progress(self.world, lease, percent=percent, message=message),
            only=lease.execution_id,
        )

    @move(number=which, how=some, also=some, result=st.sampled_from((None, b"r1", b"r2")))
    def complete(self, number: int, how: int, also: int, result: bytes | None) -> None:
        done = [Completion(self.held(number, how), result)]
        if also < 4:
            done.append(Completion(self.held(number, also * 3), result))
        self.both(
            "complete",
            lambda engine: engine.complete(done),
            lambda _: moves.complete(self.world, done),
            only=done[0].lease.execution_id,
        )

    @move(
        number=which,
        how=some,
        category=st.sampled_from(("transient", "transient", "permanent", "infra_crash", "timeout")),
        after=st.sampled_from((None, None, 0, 2.5)),
    )
    def fail(self, number: int, how: int, category: str, after: int | None) -> None:
        lease = self.held(number, how)
        failure = Failure(lease=lease, reason="boom", category=category, retry_after=after)
        self.both(
            "fail",
            lambda engine: _only(engine.fail([failure])),
            lambda _: moves.fail(self.world, failure),
            only=lease.execution_id,
        )

    @move(number=which, how=some, seconds=st.sampled_from((0, 3, 9)))
    def delay(self, number: int, how: int, seconds: int) -> None:
        rest = DelayRequest(lease=self.held(number, how), delay=seconds)
        self.both(
            "delay",
            lambda engine: _only(engine.delay([rest])),
            lambda _: moves.delay(self.world, rest),
            only=rest.lease.execution_id,
        )

    @move(number=which, how=some, also=some)
    def release(self, number: int, how: int, also: int) -> None:
        leases = [self.held(number, how)]
        if also < 4:
            leases.append(self.held(number, also * 3))
        self.both(
            "release",
            lambda engine: engine.release(leases),
            lambda _: moves.release(self.world, leases),
            only=leases[0].execution_id,
        )

    @move(number=which, how=some)
    def cancel(self, number: int, how: int) -> None:
        cancellation = Cancellation(self.held(number, how), "stop")
        self.both(
            "cancel",
            lambda engine: _only(engine.cancel([cancellation])),
            lambda _: moves.cancel(self.world, cancellation),
            only=cancellation.lease.execution_id,
        )


async def _only(answers: Any) -> Any:
    [answer] = await answers
    return answer
