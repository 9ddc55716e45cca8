"""A graph of calls, built before it runs: its members and what each of them waits for."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from flowfabric.app.check_call import check_call
from flowfabric.app.feed import check_fed
from flowfabric.app.member import Member, MemberSettings
from flowfabric.app.start_once import StartOnce
from flowfabric.app.task import Call, PartialCall
from flowfabric.budgets import GivenBudgets, budget_names
from flowfabric.engine.flows.flow_tags import check_flow_tags
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lifecycle.create_execution import OnConflict
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_lane, check_name, check_text, uuid_partition
from flowfabric.limits import refuse_merged
from flowfabric.policy import Retry
from flowfabric.tracing import submit_span

R = TypeVar("R")

_TASK_SETTINGS: Final = MemberSettings()
_NO_ID: Final = ExecutionId(0, UUID(int=0))


class Flow:
    """A graph of calls. `client.start(flow)` starts it, once."""

    def __init__(
        self,
        kind: str,
        *,
        tags: Mapping[str, str] | None = None,
        budget: GivenBudgets | None = None,
    ) -> None:
        self.budgets = budget_names(budget)
        self.kind = check_name(kind, field="kind")
        check_flow_tags({} if tags is None else tags)
        self.tags = dict(tags or {})
        self.members: dict[str, Member[Any]] = {}
        self.flow_id = uuid4()
        self._suffixes: Counter[str] = Counter()
        self.once = StartOnce(self.kind, self.flow_id)

    def add(
        self,
        call: Call[R] | PartialCall[R],
        *,
        name: str | None = None,
        lane: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        delay_until: datetime | None = None,
        deadline: float | timedelta | None = None,
        deadline_at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        limit_key: str | None = None,
    ) -> Member[R]:
        """Add a member that waits for nothing yet; its name is `name`, else that of its task.

        The arguments that `task.partial(...)` left out are to be fed with `after(..., feed=...)`.
        The other settings replace those of its task. `delay` and `deadline` count from the start of
        the flow. Raises `ValidationError` for a name that is given already, for a setting that is
        not valid, and for a task with `unique` or `debounce`; `FlowAlreadyStarted`.
        """
        self.once.check()
        missing: frozenset[str] = frozenset()
        if isinstance(call, PartialCall):
            call, missing = call.call, call.missing
        check_call(call)
        refuse_merged(call.task.merged, call.task.kind, "a member of a flow")
        limit = call.task.limit
        if missing and limit_key is None and limit is not None and callable(limit.key):
            why = f"of task {call.task.kind!r} needs all arguments: give limit_key= to this member"
            raise invalid_input("limit_key", None, why)
        if lane is not None:
            check_lane(lane, field="lane")
        if name is not None and name in self.members:
            raise invalid_input("name", name, "is the name of another member")
        settings = MemberSettings(
            lane=lane,
            priority=priority,
            delay=delay,
            delay_until=delay_until,
            deadline=deadline,
            deadline_at=deadline_at,
            tags=tags,
            retry=retry,
            timeout=timeout,
            limit_key=limit_key,
        )
        member = Member(self, call, name or self._free_name(call.task.kind), settings, missing)
        check_name(member.name, field="name")
        if settings != _TASK_SETTINGS:
            member.execution(_NO_ID, namespace="default", creator=None)
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
        """The flow as the engine creates it; in a namespace the same key gives the same flow id.

        Raises `ValidationError` if a member lacks an argument that no upstream feeds.
        """
        for member in self:
            check_fed(member)
        flow_id = self.flow_id if key is None else keyed_flow_id(namespace, key)
        partition = uuid_partition(flow_id, partitions)
        ids = {
            name: ExecutionId(partition, member_uuid(flow_id, number))
            for number, name in enumerate(self.members)
        }
        with submit_span(self.kind):
            members = [
                member.execution(ids[member.name], namespace=namespace, creator=creator)
                for member in self
            ]
        return NewFlow(
            flow_id=flow_id,
            flow_kind=self.kind,
            namespace=namespace,
            tags=self.tags,
            idempotency_key=key,
            on_conflict=on_conflict,
            members=members,
            edges=[
                NewEdge(
                    upstream=ids[upstream],
                    downstream=ids[member.name],
                    data_passing_ref=ref,
                )
                for member in self
                for upstream, ref in member.upstreams.items()
            ],
            policies={ids[member.name]: member.policy for member in self if member.upstreams},
            ids_follow=True,
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
    """The id of the n-th member of a flow; the same when the flow is started again.

    It begins as the id of the flow, with the time: the members share the pages of each index.
    """
    digest = hashlib.sha256(flow_id.bytes + number.to_bytes(4, "big")).digest()
    return UUID(bytes=flow_id.bytes[:6] + digest[:10], version=flow_id.version or 5)
