"""The model itself, and that a run of the machine ends where the two sides differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Duplicate
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import LeaseExpired, NotFound, StaleLease
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.joins import AnyOf
from flowfabric.testing import TestServer
from tests import given
from tests.proofs.arena import Arena
from tests.proofs.model import dispatch, flows, moves, sweeps
from tests.proofs.model.answers import Divergence, same
from tests.proofs.model.machine import Machine, run
from tests.proofs.model.real import START_MS, Real
from tests.proofs.model.records import Execution, Flow, World
from tests.proofs.model.tally import Tally

FLOW = UUID("11111111-1111-1111-1111-111111111111")
WORKER = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))


@pytest.fixture
def world() -> World:
    return World(START_MS)


def created(world: World, **fields: Any) -> ExecutionId:
    [answer] = moves.create_execution(world, [given.new(**fields)])
    return answer.execution_id


def claimed(world: World, limit: int = 1) -> list[Lease]:
    tasks = moves.claim(world, WORKER, ttl_ms=1000, limit=limit, lease_id=UUID(int=limit))
    return [each.lease for each in tasks]


def test_the_best_is_claimed_first(world: World) -> None:
    old = created(world)
    world.now_ms += 1
    young, urgent = created(world), created(world, priority=1)

    assert [each.execution_id for each in claimed(world, 3)] == [urgent, old, young]


def test_a_key_stands_for_the_first_until_it_expires(world: World) -> None:
    first = created(world, idempotency_key="k")

    [again] = moves.create_execution(world, [given.new(idempotency_key="k")])
    world.now_ms += 24 * 60 * 60 * 1000

    assert again == Duplicate(execution_id=first)
    assert created(world, idempotency_key="k") != first


def test_a_lease_that_ran_out_is_refused_and_then_stale(world: World) -> None:
    created(world)
    [old] = claimed(world)
    world.now_ms += 1000

    [expired] = moves.complete(world, [Completion(old)])
    assert sweeps.expire_leases(world) == 1
    claimed(world)
    [stale] = moves.complete(world, [Completion(old)])

    assert isinstance(expired, LeaseExpired)
    assert isinstance(stale, StaleLease)


def test_a_lost_answer_is_given_again(world: World) -> None:
    execution_id = created(world)
    [lease] = claimed(world)

    [done], [again] = [moves.complete(world, [Completion(lease)]) for _ in range(2)]

    assert done == Completed(execution_id=execution_id)
    assert again == Completed(execution_id=execution_id, repeated=True)


def test_a_skip_travels_and_an_any_of_gets_over_it(world: World) -> None:
    a, b, c, d = (ExecutionId(uuid_partition(FLOW), UUID(int=number)) for number in range(1, 5))
    arrows = [(a, c), (b, d), (c, d)]
    flows.submit_flow(
        world,
        NewFlow(
            flow_id=FLOW,
            flow_kind="proof",
            members=[given.new(execution_id=each) for each in (a, b, c, d)],
            edges=[NewEdge(upstream=up, downstream=down) for up, down in arrows],
            policies={d: AnyOf()},
        ),
    )
    first, second = claimed(world, 2)
    moves.fail(world, Failure(lease=first, reason="boom", category="permanent"))
    moves.complete(world, [Completion(second)])

    assert dispatch.dispatch(world) == 3
    states = [world.executions[each].public_state for each in (a, b, c, d)]
    assert states == ["failed", "completed", "skipped", "waiting"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (NotFound("execution", "e"), NotFound("flow", "e")),
        (NotFound("execution", "e"), None),
        ([1], [1, 1]),
        (True, 1),
    ],
)
def test_what_differs_is_not_the_same(told: Any, expected: Any) -> None:
    assert same(told, told)
    assert not same(told, expected)


# Planted faults: in the model, where the engine's answers then look wrong, and in what is stored.


@pytest.fixture(scope="module")
def real(ff_server: TestServer) -> Iterator[Real]:
    with Arena(ff_server, 1, quiet=True).database() as dsn:
        opened = Real(dsn)
        try:
            yield opened
        finally:
            opened.close()


def _any_epoch(seen: Execution, held: Lease) -> bool:
    return (seen.attempt_index, seen.lease_id) == (held.attempt_index, held.lease_id)


def _youngest_first(each: Execution) -> Any:
    return -each.priority, -each.created_at_ms, each.execution_id.uuid


def _too_early(world: World, each: Execution) -> bool:
    ends = each.lease_expires_at_ms
    return ends is not None and ends <= world.now_ms + 1


def _never(_: Flow, __: Any) -> str:
    return "pending"


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (moves, "was_left_by", _any_epoch),
        (Execution, "place", property(_youngest_first)),
        (sweeps, "has_lapsed", _too_early),
        (Flow, "decision", _never),
        (moves, "retries_left", lambda _policy, _count: False),
    ],
)
def test_a_model_that_is_wrong_is_noticed(
    real: Real, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, fault: Any
) -> None:
    monkeypatch.setattr(where, name, fault)

    with pytest.raises(Divergence):
        run(real, Tally(), runs=100, steps=40, from_seed=3)


def test_the_same_seed_finds_the_same(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "was_left_by", _any_epoch)

    def found() -> list[str]:
        with pytest.raises(Divergence) as raised:
            run(real, Tally(), runs=100, steps=40, from_seed=7)
        return raised.value.__notes__

    assert found() == found()


PLANTED = {
    "UPDATE ff.exec_core SET priority = 1": "priority",
    "UPDATE ff.exec_core SET lease_epoch = lease_epoch + 1": "lease_epoch",
    "UPDATE ff.flow_core SET cancel_reason = 'why'": "why",
    "DELETE FROM ff.lease_event": "I2, I8",
    "INSERT INTO ff.ready SELECT route_id, created_at_ms, priority, partition_key, execution_id,"
    " deadline_at_ms FROM ff.exec_core": "queued or leased",
    "UPDATE ff.completion_event SET outcome = 'expired'": "the last end told",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_stored_otherwise_is_noticed(real: Real, fault: str) -> None:
    machine: Any = type("Machine", (Machine,), {"real": real, "tally": Tally()})()
    machine.begin(salt=3, length=0)
    machine.claim_everything(ttl=60)
    machine.complete(number=0, how=0, also=11, result=None)
    machine.alike()

    real.plant(fault)

    with pytest.raises(Divergence, match=PLANTED[fault]):
        machine.alike()
