"""S3: what is bound to a namespace sees nothing of another; a foreign id is as one that never was.

Bound are the operations that take a namespace, and those that look for an id inside a flow. The
operations that take nothing but the id of an execution or a flow are not bound: a client that
may connect to the database may read every row of it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec

from flowfabric import App, Client, Ctx
from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.executions.search_cursor import read_search_cursor, search_cursor
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf
from flowfabric.limits import QuotaLimits
from tests import given
from tests.engine.flows.graphs import minted
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.tour import (
    FROM_START,
    LANE,
    LATER,
    TOUR,
    Place,
    Stop,
    first_events,
    keyed,
    later,
    settle,
    unclassified,
    unique,
)

WITHOUT_NAMES: Final = frozenset(
    {
        "count_ended",
        "count_matching",
        "group_failures",
        "list_closed_waitpoints",
        "list_ended_leases",
        "list_reviews",
        "read_activity",
        "read_lane_activity",
    }
)
"""They answer with numbers, or with what no place has: they have no text of a namespace."""

FILTERED_BY_THE_READER: Final = frozenset(
    {
        "list_events",
        "list_events_of",
        "preview_bulk_action",  # by the search, whose statements have it
        "subscribe_completions",
        "subscribe_lease_history",
        "subscribe_operator_events",
        "subscribe_signal_delivery",
    }
)
"""Events of all namespaces are read; the filter then takes those that were asked for."""

COUNTS: Final = {
    "count_trimmable": 1,
    "count_claimable": 4,
    "count_expiring_leases": 1,
    "count_schedules": 1,
}
"""Reads that show nothing but a number, and the number of one namespace."""
NAMELESS: Final = ("preview_schedule", "read_quota_policy_limits")
"""Their answers are instants and numbers, which tell nothing of a namespace."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

app = App()


@app.task("job")
def job(ctx: Ctx) -> None:
    """Nobody runs it."""


def marks(place: Place) -> set[str]:
    """Texts that only this namespace has."""
    ids = [place.waiting, place.blocked, place.ended, place.lease.execution_id]
    ids += [place.upstream, place.downstream, place.stranger, place.suspended.execution_id]
    ids.append(place.scheduled)
    uuids = [each.uuid for each in ids] + [place.flow_id, place.edge_id, place.lease.lease_id]
    uuids += [place.suspended.suspension_id, place.waitpoint.waitpoint_id]
    return {str(each) for each in uuids} | {place.instance, place.namespace}


def shown(answer: Any) -> str:
    """Everything that an answer says, as text."""
    return repr(answer) + repr(msgspec.to_builtins(answer, enc_hook=repr))


async def told(call: Awaitable[Any]) -> str:
    """The answer or the error of a call, without the ids in it."""
    try:
        answer = repr(await call)
    except FlowFabricError as error:
        answer = f"{type(error).__name__}: {error}"
    return re.sub(r"unknown-instance-\w+", "INSTANCE", _UUID.sub("ID", answer))


# What a namespace is shown.

Look = Callable[[], Awaitable[Any]]


async def leaks(engine: Engine, mine: Place, foreign: Place) -> dict[str, list[str]]:
    """For each way to look into `mine`: what of `foreign` the answer has; it must have its own."""
    found: dict[str, list[str]] = {}
    for name, look in looks(engine, mine, foreign).items():
        answer = shown(await look())
        found[name] = sorted(mark for mark in marks(foreign) if mark in answer)
        of_its_own = any(mark in answer for mark in marks(mine))
        if name in TOUR and name not in WITHOUT_NAMES and not of_its_own:
            found[name].append("nothing of its own")
    counted = await engine.count_trimmable(mine.trim, now=later())
    leased = (await engine.count_expiring_leases(mine.claimant, within=LATER)).leases
    claimable = await engine.count_claimable(mine.claimant)
    scheduled = sum((await engine.count_schedules(namespace=mine.namespace)).values())
    numbers = (counted, claimable, leased, scheduled)
    for (name, own), number in zip(COUNTS.items(), numbers, strict=True):
        found[name] = [] if number == own else [f"{number} counted, of which {own} are its"]
    return found


def looks(engine: Engine, mine: Place, foreign: Place) -> dict[str, Look]:
    """Every bound read, and some again from where the foreign namespace has its rows."""
    client, space = Client(engine, namespace=mine.namespace), mine.namespace

    def on_tour(stop: Stop) -> Look:
        return lambda: stop.call(engine, mine)

    reads = {
        name: on_tour(stop)
        for name, stop in TOUR.items()
        if (stop.access, stop.bound) == ("read", "namespace") and name not in (*COUNTS, *NAMELESS)
    }
    return reads | {
        "explain_execution": lambda: engine.explain_execution(mine.waiting),
        "search from a foreign cursor": lambda: _search_from(engine, mine, foreign),
        "list_flows from a foreign flow": lambda: engine.list_flows(
            namespace=space, cursor=f"{2**63 - 1}/{foreign.flow_id}"
        ),
        "list_workers from a foreign worker": lambda: engine.list_workers(
            space, after=foreign.instance[:-1]
        ),
        "list_worker_events of a foreign worker": lambda: engine.list_worker_events(
            space, worker_instance_id=foreign.instance
        ),
        "subscribe with a tag too": lambda: first_events(
            engine.subscribe_completions(FROM_START, EventFilter(space, ("a.b", "c"))), within=0.5
        ),
        "client.search": client.search,
        "client.admin.list_workers": client.admin.list_workers,
        "client.admin.expired_leases": client.admin.expired_leases,
        "client.admin.waitpoints": client.admin.waitpoints,
        "client.subscribe_completions": lambda: first_events(
            client.subscribe_completions(FROM_START)
        ),
        "client.subscribe_lease_history": lambda: first_events(
            client.subscribe_lease_history(FROM_START)
        ),
        "client.subscribe_operator_events": lambda: first_events(
            client.subscribe_operator_events(FROM_START)
        ),
        "client.subscribe_signal_delivery": lambda: first_events(
            client.subscribe_signal_delivery(FROM_START)
        ),
    }


async def _search_from(engine: Engine, mine: Place, foreign: Place) -> Any:
    own, other = Search(namespace=mine.namespace), Search(namespace=foreign.namespace)
    page = await engine.search_executions(other, limit=1)
    assert page.next_cursor is not None
    place = read_search_cursor(other, page.next_cursor)
    return await engine.search_executions(own, cursor=search_cursor(own, *place))


# A foreign id, beside one that never was.

Ask = Callable[[Any], Awaitable[Any]]


async def differences(engine: Engine, mine: Place, foreign: Place) -> dict[str, tuple[str, str]]:
    """The calls that answer otherwise for a foreign id than for an unknown one; all, by name."""
    beside = minted(mine.flow_id)  # foreign, in the partition of a flow of mine
    await engine.create_execution([given.new(execution_id=beside, namespace=foreign.namespace)])
    unknown = ExecutionId(beside.partition_key, uuid4())
    key = f"key of {foreign.namespace}"
    await engine.create_execution(
        [given.new(idempotency_key=key, namespace=foreign.namespace, execution_kind="theirs")]
    )
    flow, space = mine.flow_id, mine.namespace

    await engine.create_unique_execution(unique(foreign.namespace, "unique"))
    await engine.debounce_execution(keyed(foreign.namespace, "debounced"), wait=60)

    def created(key: str) -> Awaitable[Any]:
        return _without_its_id(engine, keyed(space, key))

    asked: dict[str, tuple[Ask, Any, Any]] = {
        "add_execution_to_flow": (
            lambda each: engine.add_execution_to_flow(flow, each),
            beside,
            unknown,
        ),
        "ack_cancel_member": (lambda each: engine.ack_cancel_member(flow, each), beside, unknown),
        "set_edge_group_policy": (
            lambda each: engine.set_edge_group_policy(flow, each, AllOf()),
            beside,
            unknown,
        ),
        "stage_dependency_edge to": (
            lambda each: engine.stage_dependency_edge(
                flow, uuid4(), mine.upstream, each, expected_graph_revision=3
            ),
            beside,
            unknown,
        ),
        "stage_dependency_edge from": (
            lambda each: engine.stage_dependency_edge(
                flow, uuid4(), each, mine.downstream, expected_graph_revision=3
            ),
            beside,
            unknown,
        ),
        "list_edges from": (
            lambda each: engine.list_edges(flow, outgoing_from=each),
            beside,
            unknown,
        ),
        "list_edges to": (lambda each: engine.list_edges(flow, incoming_to=each), beside, unknown),
        "describe_edge": (
            lambda each: engine.describe_edge(flow, each),
            foreign.edge_id,
            uuid4(),
        ),
        "apply_dependency_to_child": (
            lambda each: engine.apply_dependency_to_child(flow, each),
            foreign.edge_id,
            uuid4(),
        ),
        "heartbeat_worker": (
            lambda each: engine.heartbeat_worker(each, namespace=space),
            foreign.instance,
            "unknown-instance-x",
        ),
        "mark_worker_dead": (
            lambda each: engine.mark_worker_dead(each, reason="x", namespace=space),
            foreign.instance,
            "unknown-instance-x",
        ),
        "list_worker_events": (
            lambda each: engine.list_worker_events(space, worker_instance_id=each),
            foreign.instance,
            "unknown-instance-x",
        ),
        "locate_execution_by_key": (
            lambda each: engine.locate_execution_by_key(space, each),
            key,
            "a key of nobody",
        ),
        **_of_keys(engine, space),
        **_of_limits(engine, mine, foreign),
        "idempotency key": (created, key, "a key that nobody used"),
        "client.submit with a key": (_submitted(engine, space), key, "another new key"),
        "client.start with a key": (_started(engine, foreign, space), key, "yet another"),
    }
    return {
        name: (await told(ask(theirs)), await told(ask(nobodys)))
        for name, (ask, theirs, nobodys) in asked.items()
    }


def _of_keys(engine: Engine, namespace: str) -> dict[str, tuple[Ask, Any, Any]]:
    """Keys that a live execution of the foreign namespace has."""

    async def alone(key: str) -> str:
        new = unique(namespace, key)
        return type(await engine.create_unique_execution(new, on_conflict="cancel_old")).__name__

    async def debounced(key: str) -> str:
        return type(await engine.debounce_execution(keyed(namespace, key), wait=60)).__name__

    return {
        "create_unique_execution": (alone, "unique", "unique to nobody"),
        "debounce_execution": (debounced, "debounced", "debounced by nobody"),
    }


def _of_limits(engine: Engine, mine: Place, foreign: Place) -> dict[str, tuple[Ask, Any, Any]]:
    """Limits by their ids."""
    space: dict[str, Any] = {"namespace": mine.namespace}
    ids = (foreign.quota_policy_id, uuid4())
    under: dict[str, Any] = space | {"limit_key": foreign.limit_key}
    return {
        "get_quota_policy": (lambda each: engine.get_quota_policy(each, **space), *ids),
        "read_quota_policy_limits": (
            lambda each: engine.read_quota_policy_limits(each, **space),
            *ids,
        ),
        "list_quota_keys": (lambda each: engine.list_quota_keys(each, **space), *ids),
        "list_busiest_keys": (lambda each: engine.list_busiest_keys(each, **space), *ids),
        "update_quota_policy": (
            lambda each: engine.update_quota_policy(each, QuotaLimits(), **space),
            *ids,
        ),
        "delete_quota_policy": (lambda each: engine.delete_quota_policy(each, **space), *ids),
        "check_admission": (
            lambda each: engine.check_admission(each, mine.waiting, **under),
            *ids,
        ),
    }


async def _without_its_id(engine: Engine, new: Any) -> str:
    [answer] = await engine.create_execution([new])
    return type(answer).__name__


def _submitted(engine: Engine, namespace: str) -> Ask:
    async def submit(key: str) -> bool:
        client = Client(engine, namespace=namespace)
        return (await client.submit(job.call(), idempotency_key=f"{key} again")).created

    return submit


def _started(engine: Engine, foreign: Place, namespace: str) -> Ask:
    """A start with a key that a foreign client used makes a flow of its own."""

    async def start(key: str) -> bool:
        for client in (
            Client(engine, namespace=foreign.namespace),
            Client(engine, namespace=namespace),
        ):
            flow = app.flow("one")
            flow.add(job.call())
            handle = await client.start(flow, idempotency_key=key)
        return handle.created

    return start


async def _start(engine: Engine, namespace: str, key: str) -> bool:
    flow = app.flow("one")
    flow.add(job.call())
    return (await Client(engine, namespace=namespace).start(flow, idempotency_key=key)).created


# What a namespace can do to another.


async def damage(engine: Engine, db: Connection, mine: Place, foreign: Place) -> list[str]:
    """Everything that is bound, done in `mine` to the full: what changed in `foreign`."""
    before = await _rows_of(db, foreign)
    claimant = Claimant(
        worker_id="w", worker_instance_id="thief", lanes=(LANE,), namespace=mine.namespace
    )
    await engine.claim_for_worker(
        lane_id=LANE, worker_id="w", worker_instance_id="thief", namespace=mine.namespace
    )
    while await engine.claim(claimant, ttl=3600, limit=1000):
        pass
    await engine.trim_retention(mine.trim, now=later())
    await engine.mark_worker_dead(foreign.instance, reason="x", namespace=mine.namespace)
    await engine.register_worker(
        worker_id="w",
        worker_instance_id=foreign.instance,
        lanes=("other",),
        liveness_ttl=1,
        namespace=mine.namespace,
    )
    space: dict[str, Any] = {"namespace": mine.namespace}
    theirs = foreign.quota_policy_id
    for limits in (None, QuotaLimits(max_concurrent=1)):
        await engine.check_admission(
            theirs, mine.waiting, limit_key=foreign.limit_key, limits=limits, **space
        )
    await engine.release_admission(theirs, foreign.waiting, **space)
    await told(engine.update_quota_policy(theirs, QuotaLimits(), **space))
    await told(engine.delete_quota_policy(theirs, **space))
    await engine.create_unique_execution(unique(mine.namespace, "unique"), on_conflict="cancel_old")
    after = await _rows_of(db, foreign)
    return sorted(before ^ after)


_ROWS: Final = """
SELECT 'execution ' || e::text FROM ff.execution e JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'body ' || b::text FROM ff.exec_body b
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'flow ' || f::text FROM ff.flow_core f WHERE f.namespace = $1
UNION ALL SELECT 'worker ' || w::text FROM ff.worker_registry w WHERE w.namespace = $1
UNION ALL SELECT 'grant ' || g::text FROM ff.claim_grant g
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'suspension ' || s::text FROM ff.suspension_current s
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'waitpoint ' || w::text FROM ff.waitpoint_pending w
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'signal ' || i::text FROM ff.signal_inbox i
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'frame ' || f::text FROM ff.stream_frame f
  JOIN ff.execution e USING (partition_key, execution_id) JOIN ff.route r USING (route_id)
 WHERE r.namespace = $1
UNION ALL SELECT 'limit ' || p::text FROM ff.quota_policy p WHERE p.namespace = $1
UNION ALL SELECT 'key of a limit ' || q::text FROM ff.quota_key q
  JOIN ff.quota_policy p USING (quota_policy_id) WHERE p.namespace = $1
UNION ALL SELECT 'admission ' || a::text FROM ff.quota_admitted a
  JOIN ff.quota_policy p USING (quota_policy_id) WHERE p.namespace = $1
"""


async def _rows_of(db: Connection, place: Place) -> set[str]:
    return {row[0] for row in await db.fetch(_ROWS, place.namespace)}


def without_predicate() -> set[str]:
    """Bound operations of whose module no statement has the namespace among its parameters."""
    bound = {name for name, stop in TOUR.items() if stop.bound == "namespace"}
    return {
        name
        for name in bound - FILTERED_BY_THE_READER
        if not re.search(r"%\((shape_)?namespace\)s", _sources(getattr(Engine, name).__wrapped__))
    }


def _sources(operation: Any) -> str:
    """The module of an operation, and those that it imports from its own package."""
    module = inspect.getmodule(operation)
    package = module.__name__.rpartition(".")[0] if module else ""
    near = {
        inspect.getmodule(value)
        for value in vars(module).values()
        if getattr(value, "__module__", "").startswith(package)
    }
    return "".join(inspect.getsource(each) for each in (near | {module}) if each is not None)


async def _prove(dsn: str) -> list[Figure]:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    try:
        await engine.seed_waitpoint_hmac_secret("k0", "ef" * 32)
        mine, foreign = await settle(engine, "shop"), await settle(engine, "bank")
        shown = await leaks(engine, mine, foreign)
        answers = await differences(engine, mine, foreign)
        async with engine.pool.connection() as db:
            changed = await damage(engine, db, mine, foreign)
    finally:
        await engine.close()
    leaking = {name: marks for name, marks in shown.items() if marks}
    differing = {name: pair for name, pair in answers.items() if pair[0] != pair[1]}
    return [
        Figure(
            promise="S3",
            what="operations of Engine that are not on the tour; bound without a predicate in SQL",
            reached=f"{len(unclassified())}; {len(without_predicate())} "
            f"{sorted(unclassified() | without_predicate()) or ''}",
            target="0; 0",
            held=not unclassified() and not without_predicate(),
        ),
        Figure(
            promise="S3",
            what=f"{len(shown)} lists, searches and subscriptions of a namespace: foreign in them",
            reached=f"{len(leaking)} leaks {leaking or ''}",
            target="0",
            held=not leaking,
        ),
        Figure(
            promise="S3",
            what="foreign ids, workers, keys and edges: answered as unknown ones",
            reached=f"{len(answers) - len(differing)} of {len(answers)} {differing or ''}",
            target="all",
            held=not differing,
        ),
        Figure(
            promise="S3",
            what="rows of a namespace changed by claims, trims, workers and limits of another",
            reached=f"{len(changed)} {changed[:3] or ''}",
            target="0",
            held=not changed,
        ),
    ]


def full(arena: Arena) -> Sequence[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_prove(dsn))


ISOLATION: Final = Proof("isolation", quick=full, full=full, claims=("S3",))
