"""Flows to look at: a busy one of every state, and random graphs of any size."""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from flowfabric import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lifecycle.claim import Claimant, Claimed
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from flowfabric.joins import AnyOf, JoinPolicy
from flowfabric.states import FailureClass

Edges = Sequence[tuple[str, str]]

RACE: Edges = (
    ("checkout", "reserve_stock"),
    ("checkout", "charge"),
    ("checkout", "quote-dhl"),
    ("checkout", "quote-ups"),
    ("checkout", "quote-fedex"),
    ("quote-dhl", "pick_carrier"),
    ("quote-ups", "pick_carrier"),
    ("quote-fedex", "pick_carrier"),
    ("reserve_stock", "ship"),
    ("charge", "ship"),
    ("pick_carrier", "ship"),
    ("ship", "send_confirmation_email"),
    ("checkout", "audit"),
    ("audit", "report"),
)


async def submit(
    engine: Engine,
    kind: str,
    edges: Edges,
    *,
    lane: str,
    policies: Mapping[str, JoinPolicy] | None = None,
    kinds: Mapping[str, str] | None = None,
    namespace: str = "default",
) -> tuple[UUID, dict[str, ExecutionId]]:
    """Start a flow of the members that the edges name; their ids by name."""
    flow_id = new_uuid()
    home = uuid_partition(flow_id)
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    ids = {name: ExecutionId(home, new_uuid()) for name in names}
    await engine.submit_flow(
        NewFlow(
            flow_id=flow_id,
            flow_kind=kind,
            namespace=namespace,
            members=[
                NewExecution(
                    execution_id=each,
                    execution_kind=(kinds or {}).get(name, name),
                    member_name=name,
                    lane_id=lane,
                    namespace=namespace,
                )
                for name, each in ids.items()
            ],
            edges=[NewEdge(upstream=ids[one], downstream=ids[other]) for one, other in edges],
            policies={ids[name]: policy for name, policy in (policies or {}).items()},
        )
    )
    return flow_id, ids


def random_edges(seed: int, count: int, edges: int, width: int = 32) -> Edges:
    """A graph of `count` members in layers of `width`, and edges from earlier to later layers."""
    dice = random.Random(seed)
    found: dict[tuple[int, int], None] = {}
    for member in range(width, count):
        found[dice.randrange((member // width - 1) * width, member // width * width), member] = None
    while len(found) < edges:
        member = dice.randrange(width, count)
        layer = member // width
        above = max(layer - (1 if dice.random() < 0.9 else dice.randint(2, 4)), 0)
        found[dice.randrange(above * width, above * width + width), member] = None
    return [(f"step-{one}", f"step-{other}") for one, other in found]


class Hand:
    """Claims what is claimable on a lane, and ends it as it is told to."""

    def __init__(self, engine: Engine, lane: str) -> None:
        self._engine = engine
        self._claimant = Claimant(worker_id="hand", worker_instance_id="hand-1", lanes=(lane,))
        self.held: dict[ExecutionId, Claimed] = {}

    async def claim(self, limit: int = 200) -> int:
        """Hold at most so many more; how many there were."""
        found = await self._engine.claim(self._claimant, ttl=600, limit=limit)
        self.held |= {each.lease.execution_id: each for each in found}
        return len(found)

    async def hold(self, wanted: Collection[ExecutionId], limit: int = 200) -> None:
        """Claim until all of these are held: others may still dispatch what they wait for."""
        async with asyncio.timeout(30):
            while not self.held.keys() >= set(wanted):
                if not await self.claim(limit):
                    await asyncio.sleep(0.02)

    async def complete(self, wanted: Collection[ExecutionId] | None = None) -> int:
        """Complete what is held of these, or all."""
        some = [each for each in self.held if wanted is None or each in wanted]
        done = [Completion(self.held.pop(each).lease, b"1") for each in some]
        if done:
            await self._engine.complete(done)
            await self._engine.dispatch()
        return len(done)

    async def fail(self, one: ExecutionId, reason: str) -> None:
        """Fail one that is held, for good."""
        lease = self.held.pop(one).lease
        failure = Failure(lease=lease, reason=reason, failure_class=FailureClass.PERMANENT)
        await self._engine.fail([failure])
        await self._engine.dispatch()


async def start_order(
    engine: Engine, lane: str = "orders", images: int = 60
) -> tuple[UUID, dict[str, ExecutionId]]:
    """A flow with a race and a stack, of which nothing has run yet."""
    edges = [*RACE]
    for number in range(images):
        edges += [("reserve_stock", f"resize-{number}"), (f"resize-{number}", "ship")]
    kinds = {f"resize-{number}": "resize_image" for number in range(images)}
    return await submit(
        engine, "order", edges, lane=lane, policies={"pick_carrier": AnyOf()}, kinds=kinds
    )


async def busy_flow(engine: Engine, lane: str = "orders", images: int = 60) -> UUID:
    """A flow at work: some members done, some running, a race that was won, a failure, a stack."""
    flow_id, ids = await start_order(engine, lane, images)
    hand = Hand(engine, lane)
    await hand.hold([ids["checkout"]])
    await hand.complete()
    await hand.hold([ids[name] for name in ("quote-dhl", "reserve_stock", "audit")])
    await hand.complete([ids["quote-dhl"], ids["reserve_stock"]])
    await hand.fail(ids["audit"], "the ledger refused row 8812: its checksum is wrong")
    await hand.hold([ids["pick_carrier"]], limit=24)
    resized = [ids[f"resize-{number}"] for number in range(images)]
    await hand.complete([*resized[: images // 2], ids["pick_carrier"]])
    return flow_id
