"""Where tests of children begin: a parent that worker w-1 holds, and children called by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.read_join import Join
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.wait_children import ChildWait, WaitingChildren
from flowfabric.ids import ExecutionId, GroupId, child_id, children_group_id, parent_flow_id
from flowfabric.joins import JoinPolicy
from tests import given
from tests.engine.flows.graphs import Graph


class Family(Graph):
    """The parent is called `p`; `abc` at position 0 are its children by the first call."""

    def __init__(self, engine: Engine, lease: Lease) -> None:
        parent = lease.execution_id
        super().__init__(engine, parent_flow_id(parent), {"p": parent})
        self.lease = self.leases["p"] = lease

    @property
    def parent(self) -> ExecutionId:
        return self["p"]

    def join(self, position: int = 0) -> GroupId:
        """The join of one call."""
        return children_group_id(self.parent, position)

    def born(self, names: str, position: int = 0, **fields: Any) -> list[NewExecution]:
        """The children of one call, to be spawned; they are called by their names afterwards."""
        fields.setdefault("execution_kind", "child")
        for index, name in enumerate(names):
            self.ids[name] = child_id(self.parent, position, index, kind=fields["execution_kind"])
        return [given.new(execution_id=self[name], **fields) for name in names]

    async def spawn(
        self,
        names: str | Sequence[NewExecution],
        *,
        position: int = 0,
        policy: JoinPolicy | None = None,
        **fields: Any,
    ) -> Join:
        """The parent gets the children of one call, and waits for them."""
        new = self.born(names, position, **fields) if isinstance(names, str) else names
        found = await self.engine.spawn_children(
            self.lease, new, group=self.join(position), policy=policy
        )
        assert found is not None
        return found

    async def put_down(self, position: int = 0) -> None:
        """The parent waits for the children of one call."""
        ask = ChildWait(lease=self.lease, groups=(self.join(position),))
        [answer] = await self.engine.wait_children([ask])
        assert answer == WaitingChildren(execution_id=self.parent)
        del self.leases["p"]

    async def take_up(self) -> Lease:
        """Worker w-1 holds the parent again."""
        [self.lease] = await self.claim("p")
        return self.lease

    async def waited(self, position: int = 0) -> str:
        """`1/0/0/2 pending`: how a wait stands."""
        row = await self.wait_row(position)
        counts = (row[f"{which}_count"] for which in ("success", "fail", "skip", "running"))
        return f"{'/'.join(map(str, counts))} {row['group_state']}"

    async def wait_row(self, position: int = 0) -> dict[str, Any]:
        [found] = await self.fetch(
            "SELECT * FROM ff.edge_group WHERE group_id = $1", self.join(position).uuid
        )
        return dict(found)

    async def read(self, position: int = 0) -> tuple[str, list[str], list[str]]:
        """How a wait was decided, and by whose success or loss."""
        wait = await self.engine.read_join(self.join(position))
        by_id = {each: name for name, each in self.ids.items()}
        return (
            wait.group_state.value,
            [by_id[each] for each in wait.succeeded],
            [by_id[each] for each in wait.lost],
        )

    async def settle(self) -> None:
        """Everything that follows from what was told happens."""
        while await self.carry_all() + await self.tick():
            pass

    async def why(self, name: str) -> tuple[str, str | None, str | None]:
        """Where a member stands, and who cancelled it why."""
        row = await self.row(name)
        return row["public_state"], row["cancellation_reason"], row["cancelled_by"]


async def parent(engine: Engine, db: Connection, **fields: Any) -> Family:
    """An execution that worker w-1 holds and that has no children yet."""
    return Family(engine, await given.claimed(db, **fields))


def failing(lease: Lease) -> Failure:
    """The holder fails, and may try again if its policy lets it."""
    return Failure(lease=lease, reason="boom")
