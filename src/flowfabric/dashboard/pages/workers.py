"""Workers: the processes of the registry, what each holds, and what happened to it."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import not_found
from flowfabric.dashboard.table import ActDone, Dialog, act, screen
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.search import Search
from flowfabric.engine.executions.search_executions import FoundExecution
from flowfabric.engine.operators.revoke_lease import LeaseRevoked
from flowfabric.engine.workers.list_worker_events import WorkerEvent
from flowfabric.engine.workers.list_workers import WorkerEntry
from flowfabric.states import PublicState, Scope, WorkerEventKind

_STATES: Final = ("live", "silent", "gone")
_HELD: Final = 1000
_EVENTS: Final = 50
_GONE: Final = 200


class ShownWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process, the namespace in which it is registered, and how much it holds."""

    entry: WorkerEntry
    namespace: str
    held: int

    @property
    def stuck(self) -> int:
        """Threads whose handlers do not end although they were told to."""
        return sum(self.entry.stuck_threads.values())


async def _read(visit: Visit) -> list[ShownWorker]:
    shown: list[ShownWorker] = []
    for namespace in (await visit.namespaces())[:50]:
        entries = (await visit.engine.list_workers(namespace)).workers
        if not entries:
            continue
        search = Search(namespace=namespace, public_states=(PublicState.ACTIVE,))
        active = (await visit.engine.search_executions(search, limit=_HELD)).executions
        held: dict[str, int] = {}
        for each in active:
            if each.worker_instance_id is not None:
                held[each.worker_instance_id] = held.get(each.worker_instance_id, 0) + 1
        shown += [
            ShownWorker(entry=each, namespace=namespace, held=held.get(each.worker_instance_id, 0))
            for each in entries
        ]
    return shown


async def workers(visit: Visit) -> PageAnswer:
    """The processes that are live, silent or gone, grouped by worker."""
    found = await _read(visit)
    state, lane, kind = visit.chosen("state", _STATES), visit.query("lane"), visit.query("kind")
    version = visit.query("version")
    kept = [
        each
        for each in found
        if each.entry.alive == (state == "live")
        and (not lane or lane in each.entry.lanes)
        and (not kind or kind in each.entry.kinds)
        and (not version or version == each.entry.version)
    ]
    kept.sort(key=lambda each: (each.entry.worker_id, each.entry.worker_instance_id))
    alive = [each for each in found if each.entry.alive]
    versions = sorted({each.entry.version for each in found if each.entry.version})
    values = {
        "workers": [] if state == "gone" else kept,
        "gone": await _gone(visit, found) if state == "gone" else [],
        "version": version,
        "versions": versions,
        "state": state,
        "states": _STATES,
        "lane": lane,
        "kind": kind,
        "live": len(alive),
        "silent": len(found) - len(alive),
        "slots": sum(each.entry.concurrency for each in alive),
        "held": sum(each.held for each in found),
        "shows_namespace": len({each.namespace for each in found}) > 1,
    }
    return PageAnswer(template="workers.html", title="Workers", section="workers", values=values)


async def _gone(visit: Visit, found: list[ShownWorker]) -> list[tuple[WorkerEvent, str]]:
    """The processes that were removed from the registry, with their namespace, newest first."""
    registered = {each.entry.worker_instance_id for each in found}
    gone: dict[str, tuple[WorkerEvent, str]] = {}
    for namespace in (await visit.namespaces())[:50]:
        for each in await visit.engine.list_worker_events(namespace, limit=_GONE):
            is_end = each.event_kind in (WorkerEventKind.MARKED_DEAD, WorkerEventKind.TTL_SWEPT)
            if is_end and each.worker_instance_id not in registered:
                gone.setdefault(each.worker_instance_id, (each, namespace))
    return sorted(gone.values(), key=lambda each: each[0].at, reverse=True)


async def _worker(visit: Visit) -> tuple[WorkerEntry | None, str]:
    """The process and its namespace; None for one that is not registered any more."""
    wanted = visit.params["instance"]
    for namespace in (await visit.namespaces())[:50]:
        for each in (await visit.engine.list_workers(namespace)).workers:
            if each.worker_instance_id == wanted:
                return each, namespace
    for namespace in (await visit.namespaces())[:50]:
        events = await visit.engine.list_worker_events(
            namespace, worker_instance_id=wanted, limit=1
        )
        if events:
            return None, namespace
    raise not_found(f"No worker {wanted!r} is known.")


async def _held_by(visit: Visit, namespace: str, instance: str) -> list[FoundExecution]:
    search = Search(namespace=namespace, worker=instance, public_states=(PublicState.ACTIVE,))
    return (await visit.engine.search_executions(search, limit=200)).executions


async def worker(visit: Visit) -> PageAnswer:
    """One process: what it holds, how its leases ended, and its events."""
    entry, namespace = await _worker(visit)
    instance, engine = visit.params["instance"], visit.engine
    held = await _held_by(visit, namespace, instance)
    values = {
        "entry": entry,
        "instance": instance,
        "namespace": namespace,
        "held": held,
        "expiries": await engine.read_lease_expiries([each.execution_id for each in held]),
        "ended": await engine.list_ended_leases(instance, namespace=namespace, limit=_EVENTS),
        "lost": await engine.list_ended_leases(
            instance, namespace=namespace, lost=True, limit=_EVENTS
        ),
        "events": await engine.list_worker_events(
            namespace, worker_instance_id=instance, limit=_EVENTS
        ),
    }
    return PageAnswer(template="worker.html", title=instance, section="workers", values=values)


async def ask_dead(visit: Visit) -> Dialog:
    instance = visit.params["instance"]
    await _worker(visit)
    return Dialog(
        question=f"Mark {instance} as dead?",
        effect="It is not registered any more. Its leases are not touched: they run out by"
        " themselves, and then its executions are claimable again.",
        button="Mark as dead",
        back=f"/workers/{instance}",
        danger=True,
    )


async def do_dead(visit: Visit, form: SentForm) -> ActDone:
    _, namespace = await _worker(visit)
    instance = visit.params["instance"]
    await visit.engine.mark_worker_dead(
        instance, reason=form.reason(), namespace=namespace, actor=visit.actor
    )
    return ActDone(message=f"{instance} is not registered any more.")


async def ask_revoke_all(visit: Visit) -> Dialog:
    _, namespace = await _worker(visit)
    instance = visit.params["instance"]
    held = await _held_by(visit, namespace, instance)
    return Dialog(
        question=f"Revoke everything that {instance} holds?",
        effect=f"{len(held)} executions are claimable again at once, and what the worker still"
        " writes about them is refused.",
        button="Revoke leases",
        back=f"/workers/{instance}",
        danger=True,
        listed=[f"{each.execution_kind} …{str(each.execution_id)[-8:]}" for each in held[:5]],
    )


async def do_revoke_all(visit: Visit, form: SentForm) -> ActDone:
    _, namespace = await _worker(visit)
    instance = visit.params["instance"]
    held = await _held_by(visit, namespace, instance)
    answers = await visit.engine.revoke_leases(
        [each.execution_id for each in held],
        reason=form.reason(),
        actor=visit.actor,
        worker_instance_id=instance,
    )
    revoked = sum(isinstance(each, LeaseRevoked) for each in answers)
    return ActDone(message=f"{revoked} of {len(held)} leases were revoked.")


ROUTES: Final = (
    screen("/workers", workers),
    screen("/workers/{instance}", worker),
    act("/workers/{instance}/dead", ask_dead, do_dead, Scope.OPERATE),
    act("/workers/{instance}/revoke-all", ask_revoke_all, do_revoke_all, Scope.OPERATE),
)
