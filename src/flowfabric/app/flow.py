"""A graph of calls, built before it runs: its members and what each of them waits for."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from flowfabric.app.task import Call
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lifecycle.create_execution import NewExecution, OnConflict
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_name, check_text, uuid_partition
from flowfabric.joins import AllOf, JoinPolicy

R = TypeVar("R")


class Member(Generic[R]):
    """One call of a flow; `after` says what it waits for."""

    def __init__(self, flow: Flow, call: Call[R], name: str, lane: str | None) -> None:
        self._flow, self.call, self.name, self.lane = flow, call, name, lane
        self.upstreams: dict[str, bool] = {}
        """The members it waits for, by name, and whether their result is passed to it."""
        self.policy: JoinPolicy = AllOf()

    def __repr__(self) -> str:
        return f"<member {self.name!r} of flow {self._flow.kind!r}>"

    def after(
        self, *members: Member[Any], policy: JoinPolicy | None = None, feed: bool = False
    ) -> Member[R]:
        """Wait for these members: for all, or as `policy` says (`AnyOf()`, `Quorum(2)`).

        With `feed` the result of the upstream becomes this member's whole input. Raises
        `ValidationError` for a member of another flow, and for one it already waits for.
        """
        for member in members:
            if self._flow.members.get(member.name) is not member:
                raise invalid_input("after", member.name, f"is not a member of {self._flow.kind!r}")
            if member.name in self.upstreams:
                raise invalid_input(
                    "after", member.name, f"is an upstream of {self.name!r} already"
                )
            self.upstreams[member.name] = feed
        if policy is not None:
            self.policy = policy
        return self


class Flow:
    """A graph of calls. `client.start(flow)` starts it, once."""

    def __init__(self, kind: str, *, tags: Mapping[str, str] | None = None) -> None:
        self.kind = check_name(kind, field="kind")
        self.tags = dict(tags or {})
        self.members: dict[str, Member[Any]] = {}
        self.flow_id = uuid4()
        self._suffixes: Counter[str] = Counter()

    def add(self, call: Call[R], *, name: str | None = None, lane: str | None = None) -> Member[R]:
        """Add a member that waits for nothing yet; its name is `name`, else that of its task."""
        if name is not None and name in self.members:
            raise invalid_input("name", name, "is the name of another member")
        member = Member(self, call, name or self._free_name(call.task.kind), lane)
        check_name(member.name, field="name")
        self.members[member.name] = member
        return member

    def __iter__(self) -> Iterator[Member[Any]]:
        return iter(self.members.values())

    def build(
        self,
        *,
        namespace: str,
        creator: str,
        partitions: int,
        key: str | None = None,
        on_conflict: OnConflict = "error",
    ) -> NewFlow:
        """The flow as the engine creates it; in a namespace the same key gives the same flow id."""
        flow_id = self.flow_id if key is None else keyed_flow_id(namespace, key)
        partition = uuid_partition(flow_id, partitions)
        ids = {
            name: ExecutionId(partition, member_uuid(flow_id, number))
            for number, name in enumerate(self.members)
        }
        return NewFlow(
            flow_id=flow_id,
            flow_kind=self.kind,
            namespace=namespace,
            tags=self.tags,
            idempotency_key=key,
            on_conflict=on_conflict,
            members=[_execution(member, ids[member.name], namespace, creator) for member in self],
            edges=[
                NewEdge(
                    upstream=ids[upstream],
                    downstream=ids[member.name],
                    data_passing_ref="result" if feed else None,
                )
                for member in self
                for upstream, feed in member.upstreams.items()
            ],
            policies={ids[member.name]: member.policy for member in self if member.upstreams},
        )

    def _free_name(self, kind: str) -> str:
        name = kind
        while name in self.members:
            self._suffixes[kind] += 1
            name = f"{kind}-{self._suffixes[kind] + 1}"
        return name


def keyed_flow_id(namespace: str, key: str) -> UUID:
    """The id of the flow with this idempotency key."""
    check_text(key, field="idempotency_key", at_most=1024)
    digest = hashlib.sha256(f"flow\x1f{namespace}\x1f{key}".encode()).digest()
    return UUID(bytes=digest[:16], version=5)


def member_uuid(flow_id: UUID, number: int) -> UUID:
    """The id of the n-th member of a flow; the same when the flow is started again."""
    digest = hashlib.sha256(flow_id.bytes + number.to_bytes(4, "big")).digest()
    return UUID(bytes=digest[:16], version=5)


def _execution(
    member: Member[Any], execution_id: ExecutionId, namespace: str, creator: str
) -> NewExecution:
    task = member.call.task
    return NewExecution(
        execution_id=execution_id,
        execution_kind=task.kind,
        lane_id=member.lane or task.lane,
        namespace=namespace,
        input_payload=member.call.payload,
        payload_encoding=task.encoding,
        priority=task.priority,
        creator_identity=creator,
        required_capabilities=task.requires,
        policy=task.policy,
        member_name=member.name,
    )
