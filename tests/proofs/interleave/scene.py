"""A situation that two operations meet in: who is there, by name, and what is held of them."""

from __future__ import annotations

from uuid import UUID

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId, GroupId, uuid_partition
from flowfabric.tokens import WaitpointToken
from tests.proofs.interleave.saved import Known

FLOW_ID = UUID("f1000000-0000-4000-8000-000000000001")
HOME = uuid_partition(FLOW_ID)


class Scene:
    """Executions, leases and edges by name; `x` is the one that everybody means.

    Ids are the same in every run. They ascend in the order in which they are named, or descend:
    rows are locked by id, and who depends on whom must not matter to that.
    """

    def __init__(self, name: str, *, descending: bool = False) -> None:
        self.name, self._descending = name, descending
        self.ids: dict[str, ExecutionId] = {}
        self.leases: dict[str, Lease] = {}
        self.edges: dict[str, UUID] = {}
        self.joins: dict[str, GroupId] = {}
        self.tokens: dict[str, WaitpointToken] = {}
        self.flow_id: UUID | None = None
        self.revision = 0
        self.known = Known({})

    def id(self, name: str) -> ExecutionId:
        """The id of that name, made at its first use."""
        if name not in self.ids:
            number = len(self.ids) + 1
            self.ids[name] = ExecutionId(HOME, self.uuid(-number if self._descending else number))
        return self.ids[name]

    def uuid(self, number: int) -> UUID:
        return UUID(int=(0x5000_0000_0000_4000_8000 << 48) + number)

    def has(self, *names: str) -> bool:
        """Is each of them there? `held x` is a lease, `edge x>y` an edge, `token x` a token."""
        return all(self._has(name) for name in names)

    def _has(self, name: str) -> bool:
        kind, _, rest = name.partition(" ")
        match kind:
            case "held":
                return rest in self.leases
            case "edge":
                return rest in self.edges
            case "wait":
                return rest in self.joins
            case "token":
                return rest in self.tokens
            case _:
                return name in self.ids or (name == "flow" and self.flow_id is not None)

    def learn(self) -> None:
        """Everything that is there has a name from now on."""
        names = {str(each.uuid): name for name, each in self.ids.items()}
        names |= {str(lease.lease_id): f"lease of {name}" for name, lease in self.leases.items()}
        names |= {str(edge): name for name, edge in self.edges.items()}
        names |= {str(join.uuid): f"join of {name}" for name, join in self.joins.items()}
        if self.flow_id is not None:
            names[str(self.flow_id)] = "flow"
        self.known = Known(names)
