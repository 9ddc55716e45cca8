"""Flows: submitted as whole graphs or built piece by piece, read, cancelled and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from uuid import UUID, uuid4, uuid5

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.app.flow import keyed_flow_id, member_uuid
from flowfabric.engine.flows.add_execution_to_flow import AlreadyMember, MemberAdded
from flowfabric.engine.flows.create_flow import FlowCreated, FlowExists
from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.edge import EdgeSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.engine.joins.apply_dependency_to_child import EdgeAlreadyApplied, EdgeApplied
from flowfabric.engine.joins.set_edge_group_policy import JoinPolicySet
from flowfabric.engine.joins.stage_dependency_edge import EdgeStaged
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from flowfabric.joins import JoinPolicy
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.etags import changed_version, seen_at
from flowfabric.server.pages import PageQuery, check_limit, page, page_of
from flowfabric.server.problems import invalid
from flowfabric.server.routes.execution_controls import Tag, TagRequest
from flowfabric.server.routes.executions import SubmitRequest, new_execution
from flowfabric.server.table import BATCH, CONTROL, NOTHING, Route, route
from flowfabric.states import Scope

F: Final = "/v1/flows/{flow_id}"


class EdgeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`downstream` waits for `upstream`: each an execution id, or the `member_name` of a member."""

    upstream: str
    downstream: str
    data_passing_ref: str | None = None
    edge_id: UUID | None = None


class FlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A flow; with members a whole graph, without an empty one to build piece by piece."""

    flow_kind: str
    flow_id: UUID | None = None
    namespace: str | None = None
    members: list[SubmitRequest] = []
    edges: list[EdgeRequest] = []
    policies: Mapping[str, JoinPolicy] = {}
    tags: Mapping[str, str] = {}
    idempotency_key: str | None = None
    on_conflict: Literal["error", "return"] = "error"


class MemberRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An execution of the flow's partition that becomes a member."""

    execution_id: ExecutionId
    member_name: str | None = None


class StageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An edge to add to a flow that has not begun to depend on it."""

    upstream: ExecutionId
    downstream: ExecutionId
    expected_graph_revision: int
    edge_id: UUID | None = None
    data_passing_ref: str | None = None


class ApplyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge must connect."""

    upstream: ExecutionId | None = None
    downstream: ExecutionId | None = None


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many upstreams of a member must succeed."""

    policy: JoinPolicy
    expected_n: int | None = None


class EdgesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edges from one member, or to one."""

    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """Edges of a flow."""

    items: list[EdgeSnapshot]


FlowAnswer = FlowSubmitted | FlowCreated | FlowExists


async def submit_flow(call: ApiCall, body: FlowRequest) -> Reply:
    """Submit a whole graph in one request; without members, create an empty flow."""
    namespace = call.namespace(body.namespace)
    key = call.idempotency_key(body.idempotency_key)
    flow_id = body.flow_id or (uuid4() if key is None else keyed_flow_id(namespace, key))
    where = {"location": f"/v1/flows/{flow_id}"}
    if not body.members:
        made = await call.engine.create_flow(
            flow_id, flow_kind=body.flow_kind, namespace=namespace, tags=body.tags
        )
        status = 201 if isinstance(made, FlowCreated) else 200
        return Reply(value=made, status=status, headers=where)
    done = await call.engine.submit_flow(_graph(call, body, flow_id, namespace, key))
    return Reply(value=done, status=200 if done.repeated else 201, headers=where)


def _graph(
    call: ApiCall, body: FlowRequest, flow_id: UUID, namespace: str, key: str | None
) -> NewFlow:
    """The flow with the ids of its members, which follow from that of the flow unless given."""
    partition = uuid_partition(flow_id, call.engine.partitions)
    members = [
        new_execution(
            call,
            msgspec.structs.replace(
                each,
                namespace=namespace,
                execution_id=each.execution_id
                or ExecutionId(partition, _member_uuid(flow_id, number)),
            ),
        )
        for number, each in enumerate(body.members)
    ]
    named = {each.member_name: each.execution_id for each in members if each.member_name}

    def member(field: str, given: str) -> ExecutionId:
        if given in named:
            return named[given]
        if given.startswith("{") or "." in given:
            return parse_execution_id(given)
        raise invalid(field, f"{given!r} is neither a member_name nor an execution id")

    return NewFlow(
        flow_id=flow_id,
        flow_kind=body.flow_kind,
        namespace=namespace,
        tags=body.tags,
        idempotency_key=key,
        on_conflict=body.on_conflict,
        members=members,
        edges=[
            NewEdge(
                upstream=member(f"edges[{number}].upstream", each.upstream),
                downstream=member(f"edges[{number}].downstream", each.downstream),
                data_passing_ref=each.data_passing_ref,
                edge_id=each.edge_id or new_uuid(),
            )
            for number, each in enumerate(body.edges)
        ],
        policies={member("policies", name): each for name, each in body.policies.items()},
    )


def _member_uuid(flow_id: UUID, number: int) -> UUID:
    """The id of the n-th member, as the Python client makes it where it can be made so."""
    if flow_id.version in range(1, 6):
        return member_uuid(flow_id, number)
    return uuid5(flow_id, f"member {number}")


async def describe_flow(call: ApiCall) -> Reply:
    """The flow, with counts of its members and the states of its joins."""
    flow_id = call.uuid("flow_id")
    found = await call.engine.describe_flow(flow_id, namespaces=call.namespaces)
    if found is None:
        raise NotFound("flow", flow_id)
    version = changed_version(found.last_mutation_at, f"{found.graph_revision:x}")
    return Reply(value=found, version=version)


async def list_flow_members(call: ApiCall, query: PageQuery) -> Reply:
    """The members of the flow, a page at a time."""
    cursor = None if query.cursor is None else parse_execution_id(query.cursor)
    flow_id = call.uuid("flow_id")
    found = await call.engine.list_flow_members(
        flow_id, cursor=cursor, limit=check_limit(query.limit), namespaces=call.namespaces
    )
    if not found.members:
        await _check_exists(call, flow_id)
    return page(call, FlowMember, found.members, found.next_cursor, query)


async def list_edges(call: ApiCall, query: EdgesQuery) -> Edges:
    """The edges of the flow."""
    outgoing = None if query.from_ is None else parse_execution_id(query.from_)
    incoming = None if query.to is None else parse_execution_id(query.to)
    flow_id = call.uuid("flow_id")
    found = await call.engine.list_edges(
        flow_id, outgoing_from=outgoing, incoming_to=incoming, namespaces=call.namespaces
    )
    if not found:
        await _check_exists(call, flow_id)
    return Edges(items=found)


async def describe_edge(call: ApiCall) -> EdgeSnapshot:
    """One edge of the flow."""
    edge_id = call.uuid("edge_id")
    found = await call.engine.describe_edge(
        call.uuid("flow_id"), edge_id, namespaces=call.namespaces
    )
    if found is None:
        raise NotFound("edge", edge_id)
    return found


async def _check_exists(call: ApiCall, flow_id: UUID) -> None:
    """Raise `NotFound`, where an operation answers with nothing, for a flow that does not exist."""
    namespace = await call.engine.get_flow_namespace(flow_id)
    if namespace is None or not call.principal.sees(namespace):
        raise NotFound("flow", flow_id)


async def add_execution_to_flow(call: ApiCall, body: MemberRequest) -> MemberAdded | AlreadyMember:
    """Make an execution a member of the flow."""
    return await call.engine.add_execution_to_flow(
        call.uuid("flow_id"),
        body.execution_id,
        member_name=body.member_name,
        namespaces=call.namespaces,
    )


async def stage_dependency_edge(call: ApiCall, body: StageRequest) -> EdgeStaged:
    """Add an edge, which counts once it is applied."""
    return await call.engine.stage_dependency_edge(
        call.uuid("flow_id"),
        body.edge_id or new_uuid(),
        body.upstream,
        body.downstream,
        expected_graph_revision=body.expected_graph_revision,
        data_passing_ref=body.data_passing_ref,
        namespaces=call.namespaces,
    )


async def apply_dependency_to_child(
    call: ApiCall, body: ApplyRequest
) -> EdgeApplied | EdgeAlreadyApplied:
    """Let the downstream wait for the upstream of a staged edge."""
    return await call.engine.apply_dependency_to_child(
        call.uuid("flow_id"),
        call.uuid("edge_id"),
        upstream=body.upstream,
        downstream=body.downstream,
        namespaces=call.namespaces,
    )


async def set_edge_group_policy(call: ApiCall, body: PolicyRequest) -> JoinPolicySet:
    """Say how many upstreams of a member must succeed."""
    return await call.engine.set_edge_group_policy(
        call.uuid("flow_id"),
        call.named(),
        body.policy,
        expected_n=body.expected_n,
        namespaces=call.namespaces,
    )


async def set_flow_tag(call: ApiCall, body: TagRequest) -> None:
    """Set one tag of the flow."""
    await call.engine.set_flow_tag(
        call.uuid("flow_id"),
        call.text("key"),
        body.value,
        actor=call.actor,
        reason=body.reason,
        expected_last_mutation_at=seen_at(call),
        namespaces=call.namespaces,
    )


async def get_flow_tag(call: ApiCall) -> Tag:
    """The value of one tag of the flow."""
    key = call.text("key")
    found = await call.engine.get_flow_tag(call.uuid("flow_id"), key, namespaces=call.namespaces)
    if found is None:
        raise NotFound("tag", key)
    return Tag(key=key, value=found)


def _read(path: str, handler: Any, answer: Any, **more: Any) -> Route:
    return route("GET", path, handler, scope=Scope.READ, answers={200: answer}, **more)


def _write(method: str, path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {
        "scope": Scope.WRITE,
        "limit": CONTROL,
        "answers": {200: answer},
        **more,
    }
    return route(method, path, handler, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _write(
        "POST",
        "/v1/flows",
        submit_flow,
        FlowRequest,
        FlowAnswer,
        limit=BATCH,
        idempotency_key=True,
        answers={201: FlowAnswer, 200: FlowAnswer},
    ),
    _read(F, describe_flow, FlowSnapshot, etag=True),
    _read(F + "/members", list_flow_members, page_of(FlowMember), query=PageQuery),
    _read(F + "/edges", list_edges, Edges, query=EdgesQuery),
    _read(F + "/edges/{edge_id}", describe_edge, EdgeSnapshot),
    _write(
        "POST", F + "/members", add_execution_to_flow, MemberRequest, MemberAdded | AlreadyMember
    ),
    _write("POST", F + "/edges", stage_dependency_edge, StageRequest, EdgeStaged),
    _write(
        "POST",
        F + "/edges/{edge_id}/apply",
        apply_dependency_to_child,
        ApplyRequest,
        EdgeApplied | EdgeAlreadyApplied,
    ),
    _write(
        "PUT", F + "/groups/{execution_id}", set_edge_group_policy, PolicyRequest, JoinPolicySet
    ),
    _write(
        "PUT",
        F + "/tags/{key}",
        set_flow_tag,
        TagRequest,
        NOTHING,
        answers={204: NOTHING},
        if_match=True,
    ),
    _read(F + "/tags/{key}", get_flow_tag, Tag),
)
