"""A graph to submit: its members and edges, and the checks of the whole graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.engine.flows.flow_tags import check_flow_tags
from flowfabric.engine.lifecycle.create_execution import (
    NewExecution,
    OnConflict,
    check_on_conflict,
)
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    ExecutionNotInFlow,
    SelfReferencingEdge,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, check_name, new_uuid, uuid_partition
from flowfabric.joins import JoinPolicy, Quorum, policy_columns

_KIND: Final = 8
"""How many bytes of a graph digest are of the flow's kind."""


class NewEdge(msgspec.Struct, frozen=True, kw_only=True):
    """`downstream` waits for `upstream`; with a `data_passing_ref` the result is its input."""

    upstream: ExecutionId
    downstream: ExecutionId
    data_passing_ref: str | None = None
    edge_id: UUID = msgspec.field(default_factory=new_uuid)


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A graph to submit; `check` checks it as a whole.

    `check` raises `ValidationError` (`partition_mismatch`, `invalid_input`, `invalid_tag_key`),
    `ExecutionNotInFlow`, `SelfReferencingEdge`, `DependencyAlreadyExists` with the edge that was
    given first, `CycleDetected`.
    """

    flow_id: UUID
    flow_kind: str
    members: Sequence[NewExecution]
    edges: Sequence[NewEdge] = ()
    policies: Mapping[ExecutionId, JoinPolicy] = {}
    namespace: str = "default"
    tags: Mapping[str, str] = {}
    idempotency_key: str | None = None
    """The key that the flow id was computed from."""
    on_conflict: OnConflict = "error"
    """The answer if the flow exists with another kind or other members; `return`: that flow."""
    ids_follow: bool = False
    """The ids of the members follow from that of the flow: no other execution has one of them."""

    def check(self, *, partitions: int = 256) -> NewFlow:
        """The flow, if its members and edges form a valid graph."""
        check_name(self.flow_kind, field="flow_kind")
        check_name(self.namespace, field="namespace")
        check_flow_tags(self.tags)
        check_on_conflict(self.on_conflict)
        if not self.members:
            raise invalid_input("members", list(self.members), "must not be empty")
        home = uuid_partition(self.flow_id, partitions)
        ids = self._check_members(home)
        inbound = self._check_edges(ids)
        for downstream, policy in self.policies.items():
            if downstream not in ids:
                raise ExecutionNotInFlow(downstream, self.flow_id)
            if isinstance(policy, Quorum) and policy.k > inbound[downstream]:
                raise invalid_input("k", policy.k, f"is more than {downstream} has upstreams")
        self._check_acyclic(ids)
        return self

    @property
    def graph_digest(self) -> bytes | None:
        """A digest of kind, members and edges, the same for the same graph; None without a key.

        Of each member: name, kind and payload, JSON as its value. Ids follow from the order of the
        members. The digest of the flow's kind comes first, so that both can be compared.
        """
        if self.idempotency_key is None:
            return None
        number = {each.execution_id: place for place, each in enumerate(self.members)}
        graph = (
            [(each.member_name, each.execution_kind, _comparable(each)) for each in self.members],
            sorted(
                (number[each.upstream], number[each.downstream], each.data_passing_ref or "")
                for each in self.edges
            ),
            sorted(
                (number[each], *policy_columns(policy)) for each, policy in self.policies.items()
            ),
        )
        kind = sha256(self.flow_kind.encode()).digest()
        return kind[:_KIND] + sha256(msgspec.msgpack.encode(graph)).digest()

    def _check_members(self, home: int) -> set[ExecutionId]:
        ids: set[ExecutionId] = set()
        names: set[str] = set()
        for member in self.members:
            execution_id = member.execution_id
            if execution_id.partition_key != home:
                raise ValidationError(
                    "partition_mismatch", f"execution_id {execution_id} is not in {{fp:{home}}}"
                )
            if execution_id in ids:
                raise invalid_input("execution_id", str(execution_id), "is given twice")
            if member.idempotency_key is not None:
                raise invalid_input(
                    "idempotency_key", member.idempotency_key, "cannot be given to a member"
                )
            if member.namespace != self.namespace:
                raise invalid_input("namespace", member.namespace, f"is not {self.namespace!r}")
            if member.member_name is not None:
                check_name(member.member_name, field="member_name")
                if member.member_name in names:
                    raise invalid_input("member_name", member.member_name, "is given twice")
                names.add(member.member_name)
            ids.add(execution_id)
        return ids

    def _check_edges(self, ids: set[ExecutionId]) -> Counter[ExecutionId]:
        inbound: Counter[ExecutionId] = Counter()
        pairs: dict[tuple[ExecutionId, ExecutionId], NewEdge] = {}
        for edge in self.edges:
            if edge.upstream == edge.downstream:
                raise SelfReferencingEdge(edge.upstream)
            for end in (edge.upstream, edge.downstream):
                if end not in ids:
                    raise ExecutionNotInFlow(end, self.flow_id)
            first = pairs.setdefault((edge.upstream, edge.downstream), edge)
            if first is not edge:
                raise DependencyAlreadyExists(first, first.edge_id)
            inbound[edge.downstream] += 1
        return inbound

    def _check_acyclic(self, ids: set[ExecutionId]) -> None:
        graph: dict[ExecutionId, list[ExecutionId]] = {each: [] for each in ids}
        for edge in self.edges:
            graph[edge.downstream].append(edge.upstream)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise CycleDetected(self.flow_id, error.args[1][0]) from None


def digest_differs(one: bytes | None, other: bytes | None) -> list[str]:
    """What two graph digests have otherwise: `kind`, `members`, both; nothing if one is None."""
    if one is None or other is None:
        return []
    differs = {"kind": one[:_KIND] != other[:_KIND], "members": one[_KIND:] != other[_KIND:]}
    return [what for what, is_other in differs.items() if is_other]


def _comparable(member: NewExecution) -> bytes:
    """The payload; JSON with the keys of objects sorted."""
    if member.payload_encoding != "json":
        return member.input_payload
    try:
        return msgspec.json.encode(msgspec.json.decode(member.input_payload), order="sorted")
    except msgspec.DecodeError:
        return member.input_payload
