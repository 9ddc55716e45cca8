"""What a worker asks of a server: claims, outcomes, and what durable handlers do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.engine.executions import count_claimable, count_expiring_leases, look_at_waits
from flowfabric.engine.executions import read_exec_core_fields as core_fields
from flowfabric.engine.joins import read_join, read_window, spawn_apart, spawn_children
from flowfabric.engine.journal import (
    arm_compensation,
    disarm_compensations,
    read_journal,
    record_entries,
    restart_execution,
    wait_for_entries,
)
from flowfabric.engine.lifecycle import (
    cancel,
    delay,
    fail,
    find_lost_leases,
    progress,
    read_claimed,
    release,
    release_after_trouble,
    renew,
    wait_children,
)
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.streams.append_frame import Append, Appended
from flowfabric.engine.suspensions import (
    close_waitpoint,
    create_waitpoint,
    observe_signals,
    read_inbox,
    read_waitpoints,
    suspend,
)
from flowfabric.engine.workers import heartbeat_worker, register_worker
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.engine.workers.mark_worker_dead import STOPPED, WorkerMarkedDead
from flowfabric.errors import EngineError, Refusal
from flowfabric.remote.row import remote
from flowfabric.remote.transport import Request, Transport

_W: Final = "POST /v1/work"
_READ: Final = Wanted("out", packed=True, read=True)
_GIVEN: Final = Wanted("in", packed=True)
_COMPLETIONS: Final = form(list[Completion], _GIVEN)
_COMPLETED: Final = form(list[Completed | Refusal], _READ)
_CLAIMED: Final = form(list[Claimed], _READ)
_APPENDS: Final = form(list[Append], _GIVEN)


class _ClaimAnswer(msgspec.Struct, frozen=True):
    executions: _CLAIMED.wire  # type: ignore[valid-type]
    waited: float = 0.0


class _CompletedAnswer(msgspec.Struct, frozen=True):
    results: _COMPLETED.wire  # type: ignore[valid-type]
    all_completed: bool = False


class _Signalled(msgspec.Struct, frozen=True):
    signalled: bool


class _More(msgspec.Struct, frozen=True):
    more: bool


_CLAIMS: Final = msgspec.msgpack.Decoder(_ClaimAnswer)
_COMPLETED_ANSWER: Final = msgspec.msgpack.Decoder(_CompletedAnswer)
_APPENDED: Final = form(list[Appended], _READ)
_REFUSED: Final = form(EngineError, _READ)


def _appended(results: list[dict[str, Any]]) -> list[list[Appended] | EngineError]:
    """The frames of each attempt, or why they were refused."""
    return [
        _REFUSED.loaded(each)
        if each["result"] == "refused"
        else _APPENDED.loaded(msgspec.convert(each["frames"], _APPENDED.wire))
        for each in results
    ]


class ClaimedWithin(msgspec.Struct, frozen=True, kw_only=True):
    """What was claimed, and for how many seconds the server waited before."""

    claimed: list[Claimed]
    waited: float


class WorkOperations:
    """The operations of workers."""

    transport: Transport

    async def claim(
        self,
        claimant: Claimant,
        *,
        ttl: float | timedelta,
        limit: int = 1,
        lease_id: UUID | None = None,
    ) -> list[Claimed]:
        """As `Engine.claim`; a claim whose answer was lost is not repeated."""
        answer = await self.claim_within(claimant, ttl=ttl, limit=limit, lease_id=lease_id, wait=0)
        return answer.claimed

    async def claim_within(
        self,
        claimant: Claimant,
        *,
        ttl: float | timedelta,
        limit: int,
        lease_id: UUID | None,
        wait: float,
    ) -> ClaimedWithin:
        """Claim as soon as there is something, within `wait` seconds."""
        body = form(Claimant, _GIVEN).dumped(claimant)
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        body |= {"ttl": seconds, "limit": limit, "lease_id": lease_id, "wait": wait}
        status, data = await self.transport.call(
            Request(method="POST", path="/v1/work/claim", body=body, wait=wait)
        )
        if status == 204:
            return ClaimedWithin(claimed=[], waited=wait)
        answer: Any = _CLAIMS.decode(data)
        return ClaimedWithin(claimed=_CLAIMED.loaded(answer.executions), waited=answer.waited)

    read_claimed = remote(
        read_claimed.read_claimed, f"{_W}/claimed", answer="executions", reads=True
    )
    renew = remote(renew.renew, f"{_W}/renew", answer="results", names={"leases": "handles"})
    find_lost_leases = remote(
        find_lost_leases.find_lost_leases,
        f"{_W}/lost-leases",
        answer="results",
        names={"leases": "handles"},
        reads=True,
    )

    async def complete(self, completions: Sequence[Completion]) -> list[Completed | Refusal]:
        """As `Engine.complete`."""
        body = {"completions": _COMPLETIONS.dumped(completions), "brief": True}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/work/complete", body=body)
        )
        answer: Any = _COMPLETED_ANSWER.decode(data)
        if answer.all_completed:
            return [Completed(execution_id=each.lease.execution_id) for each in completions]
        return _COMPLETED.loaded(answer.results)

    fail = remote(fail.fail, f"{_W}/fail", answer="results", cleans=True)
    delay = remote(delay.delay, f"{_W}/delay", answer="results")
    cancel = remote(cancel.cancel, f"{_W}/cancel", answer="results", cleans=True)
    release = remote(
        release.release, f"{_W}/release", answer="results", names={"leases": "handles"}
    )
    release_after_trouble = remote(
        release_after_trouble.release_after_trouble,
        f"{_W}/release-after-trouble",
        answer="results",
        cleans=True,
    )
    wait_children = remote(wait_children.wait_children, f"{_W}/wait-children", answer="results")
    progress = remote(
        progress.progress, f"{_W}/progress", names={"lease": "handle"}, raised=True, cleans=True
    )
    spawn_children = remote(
        spawn_children.spawn_children,
        f"{_W}/spawn-children",
        answer="join",
        names={"lease": "handle"},
    )
    spawn_apart = remote(spawn_apart.spawn_apart, f"{_W}/spawn-apart", names={"lease": "handle"})
    read_window = remote(read_window.read_window, f"{_W}/read-window", names={"lease": "handle"})
    read_join = remote(read_join.read_join, f"{_W}/read-join", reads=True)
    count_claimable = remote(
        count_claimable.count_claimable,
        f"{_W}/count",
        answer="claimable",
        flat="claimant",
        reads=True,
    )
    count_expiring_leases = remote(
        count_expiring_leases.count_expiring_leases,
        f"{_W}/count",
        answer="expiring",
        flat="claimant",
        reads=True,
    )
    read_exec_core_fields = remote(
        core_fields.read_exec_core_fields,
        f"{_W}/fields",
        answer="fields",
        dropped=frozenset({"partition"}),
        reads=True,
    )

    # The journal, and what handlers wait for.

    record_entries = remote(
        record_entries.record_entries,
        f"{_W}/journal",
        answer="refused",
        keyed=("handle", "refusal"),
        names={"writes": "entries", "in_snapshot": ""},
    )
    read_journal = remote(
        read_journal.read_journal,
        f"{_W}/read-journal",
        answer="items",
        keyed=("execution_id", "journal"),
        names={"executions": "execution_ids"},
        reads=True,
    )
    wait_for_entries = remote(
        wait_for_entries.wait_for_entries,
        f"{_W}/wait-for-entries",
        answer="handle",
        names={"lease": "handle"},
        raised=True,
    )
    restart_execution = remote(
        restart_execution.restart_execution,
        f"{_W}/restart",
        names={
            "lease": "handle",
            "payload": "input_base64",
            "payload_encoding": "encoding",
        },
        raised=True,
    )
    arm_compensation = remote(
        arm_compensation.arm_compensation,
        f"{_W}/arm-compensation",
        names={"write": "entry"},
        raised=True,
    )
    disarm_compensations = remote(
        disarm_compensations.disarm_compensations,
        f"{_W}/disarm-compensations",
        names={"write": "entry"},
        raised=True,
    )
    suspend = remote(suspend.suspend, f"{_W}/suspend", answer="results")
    create_waitpoint = remote(
        create_waitpoint.create_waitpoint, f"{_W}/waitpoints", names={"lease": "handle"}
    )
    close_waitpoints = remote(
        close_waitpoint.close_waitpoints, f"{_W}/close-waitpoints", answer="results"
    )
    observe_signals = remote(
        observe_signals.observe_signals,
        f"{_W}/signals",
        answer="signals",
        names={"lease": "handle"},
        reads=True,
    )
    read_waitpoints = remote(
        read_waitpoints.read_waitpoints,
        f"{_W}/read-waitpoints",
        answer="waitpoints",
        by="waitpoint_id",
        reads=True,
    )
    read_inbox = remote(
        read_inbox.read_inbox,
        f"{_W}/read-inbox",
        answer="items",
        keyed=("execution_id", "inbox"),
        names={"executions": "execution_ids"},
        reads=True,
    )
    look_at_waits = remote(
        look_at_waits.look_at_waits,
        f"{_W}/read-wait",
        answer="items",
        keyed=("execution_id", "waits"),
        names={"executions": "execution_ids"},
        reads=True,
    )

    async def append_frames(self, appends: Sequence[Append]) -> list[list[Appended] | EngineError]:
        """As `Engine.append_frames`."""
        body = {"appends": _APPENDS.dumped(appends)}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/work/frames", body=body)
        )
        return _appended(msgspec.msgpack.decode(data)["results"])

    # The registry of workers.

    register_worker = remote(register_worker.register_worker, "POST /v1/workers")
    heartbeat_worker = remote(
        heartbeat_worker.heartbeat_worker, "POST /v1/workers/{worker_instance_id}/heartbeat"
    )

    async def mark_worker_dead(
        self, worker_instance_id: str, *, reason: str, namespace: str = "default"
    ) -> WorkerMarkedDead | WorkerNotRegistered:
        """As `Engine.mark_worker_dead`; that it has stopped may the worker itself say."""
        path = f"/v1/workers/{quote(worker_instance_id, safe='')}"
        body: dict[str, Any] = {"namespace": namespace}
        if reason == STOPPED:
            path += "/stopped"
        else:
            path += "/dead"
            body["reason"] = reason
        _, data = await self.transport.call(Request(method="POST", path=path, body=body))
        return _MARKED.loaded(msgspec.msgpack.decode(data, type=_MARKED.wire))

    # What the server does by itself.

    async def dispatch(self) -> int:
        """The server dispatches completions with the outcomes that it records."""
        return 0

    async def unblock_keys(self, quota_key_ids: Collection[int], *, wait: bool = True) -> int:
        """The server lets executions of limits go with the outcomes that it records."""
        return 0

    # Waiting.

    async def watch_leases(self, worker_instance_id: str, wait: float) -> bool:
        """Wait until leases of the worker process may have been lost; False after `wait` s."""
        body = {"worker_instance_id": worker_instance_id, "wait": wait}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/work/watch", body=body, wait=wait, reads=True)
        )
        return msgspec.msgpack.decode(data, type=_Signalled).signalled

    async def make_due(self, *, timeouts: bool = False) -> bool:
        """Let the server do now what its sweeps would do soon; True if more is due."""
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/work/due", body={"timeouts": timeouts}, reads=True)
        )
        return msgspec.msgpack.decode(data, type=_More).more


_MARKED: Final = form(WorkerMarkedDead | WorkerNotRegistered, _READ)
