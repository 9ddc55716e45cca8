"""`RemoteEngine`: the operations that client and worker stand on, each one request to a server.

Its methods have the parameters, answers and errors of those of `Engine`. What they lack is what
needs the database itself: `conn=`, transactions of handlers, sweeps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, Literal, Self
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.executions.list_expired_leases import (
    ExpiredLease,
    ExpiredLeaseCursor,
    ExpiredLeasePage,
)
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import (
    KeyRotated,
    KeyUnchanged,
    PartitionRotation,
)
from flowfabric.engine.lanes import (
    count_by_lane,
    register_lanes,
    set_lane_retention,
    set_lane_state,
)
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.streams import read_state
from flowfabric.engine.streams.frame import Frame
from flowfabric.engine.suspensions import (
    close_waitpoint,
    deliver_approval_signal,
    deliver_signal,
    list_open_waitpoints,
    read_waitpoint_token,
)
from flowfabric.engine.suspensions.send_signal import NewSignal, SignalAnswer
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.workers import list_workers
from flowfabric.engine.workers.find_unserved import Unserved
from flowfabric.errors import EngineError, NeedsDatabase
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms, instant
from flowfabric.remote.address import ServerAddress
from flowfabric.remote.definition_operations import DefinitionOperations
from flowfabric.remote.execution_operations import ExecutionOperations
from flowfabric.remote.long_poll import LongPoll
from flowfabric.remote.row import remote
from flowfabric.remote.streams import follow_frames, subscribe
from flowfabric.remote.transport import Request, Transport
from flowfabric.remote.work_operations import WorkOperations
from flowfabric.states import FrameVisibility

_X: Final = "/v1/executions/{execution_id}"
_READ: Final = Wanted("out", packed=True, read=True)
_SIGNALS: Final = form(list[SignalAccepted | SignalDuplicate | EngineError], _READ)
_NEW_SIGNAL: Final = form(NewSignal, Wanted("in", packed=True))
_ROTATED: Final = form(KeyRotated | KeyUnchanged, _READ)


class _SignalAnswers(msgspec.Struct, frozen=True):
    results: _SIGNALS.wire  # type: ignore[valid-type]


class _Info(msgspec.Struct, frozen=True):
    partitions: int


class _Rotated(msgspec.Struct, frozen=True):
    rotation: _ROTATED.wire  # type: ignore[valid-type]


class _Unserved(msgspec.Struct, frozen=True):
    items: list[Unserved]


class _Leases(msgspec.Struct, frozen=True):
    items: form(list[ExpiredLease], _READ).wire  # type: ignore[valid-type]
    next_cursor: str | None


class _Trimmed(msgspec.Struct, frozen=True):
    executions: int


class RemoteEngine(ExecutionOperations, WorkOperations, DefinitionOperations):
    """An engine behind a server. Many callers of one event loop may share it."""

    is_remote: Literal[True] = True

    def __init__(self, transport: Transport, *, partitions: int) -> None:
        self.transport, self.partitions = transport, partitions

    @classmethod
    async def connect(cls, address: ServerAddress) -> Self:
        """Check that the server answers and knows the token.

        Raises `TransportError`, `ConfigError`, and `ApiError` for a token that it does not know.
        """
        transport = Transport(address)
        try:
            _, data = await transport.call(Request(method="GET", path="/v1/info", reads=True))
        except BaseException:
            await transport.close()
            raise
        return cls(transport, partitions=msgspec.msgpack.decode(data, type=_Info).partitions)

    async def close(self) -> None:
        """Every connection is closed."""
        await self.transport.close()

    def outcome_waiter(self, pending: Callable[[], Sequence[Any]]) -> LongPoll:
        """Waits at the server until one of the executions, or flows, that are pending has ended."""

        async def read(keys: Sequence[Any], wait: float) -> bool:
            if isinstance(keys[0], UUID):
                flows = await self.read_flow_outcomes(keys, wait=wait)
                return any(flows.get(each, "gone") is not None for each in keys)
            return bool(await self.read_outcomes(keys, wait=wait))

        return LongPoll(read, pending)

    # Signals and waitpoints.

    async def send_signals(self, signals: Sequence[NewSignal]) -> list[SignalAnswer | EngineError]:
        """As `Engine.send_signals`."""
        body = {"signals": [_NEW_SIGNAL.dumped(each) for each in signals]}
        _, data = await self.transport.call(Request(method="POST", path="/v1/signals", body=body))
        answer: Any = msgspec.msgpack.decode(data, type=_SignalAnswers)
        return _SIGNALS.loaded(answer.results)

    async def send_signal(self, signal: NewSignal) -> SignalAnswer:
        """As `Engine.send_signal`."""
        [answer] = await self.send_signals([signal])
        if isinstance(answer, EngineError):
            raise answer
        return answer

    deliver_signal = remote(
        deliver_signal.deliver_signal,
        f"POST {_X}/waitpoints/" + "{waitpoint_id}/signals",
        names={
            "token": "waitpoint_token",
            "payload": "payload_base64",
            "dedup_ttl": "",
            "resume_delay": "",
            "max_signals_per_execution": "",
            "signal_maxlen": "",
        },
    )
    deliver_approval_signal = remote(
        deliver_approval_signal.deliver_approval_signal,
        f"POST {_X}/waitpoints/" + "{waitpoint_id}/answer",
        dropped=frozenset({"lane_id", "operator_identity"}),
        names={"dedup_ttl": "", "max_signals_per_execution": "", "signal_maxlen": ""},
    )
    close_waitpoint = remote(
        close_waitpoint.close_waitpoint, f"POST {_X}/waitpoints/" + "{waitpoint_id}/close"
    )
    list_open_waitpoints = remote(
        list_open_waitpoints.list_open_waitpoints,
        "GET /v1/waitpoints",
        page="waitpoints",
        names={"lane_id": "lane"},
    )
    read_waitpoint_token = remote(
        read_waitpoint_token.read_waitpoint_token,
        f"GET {_X}/waitpoints/" + "{waitpoint_id}/token",
        answer="waitpoint_token",
        optional=True,
    )

    # Streams and events.

    async def follow_stream(
        self,
        execution_id: ExecutionId,
        *,
        attempt: int | None = None,
        after: str | None = None,
        visibility: FrameVisibility = FrameVisibility.ALL,
        follow: bool = True,
    ) -> AsyncGenerator[Frame]:
        """As `Engine.follow_stream`."""
        path = _X.replace("{execution_id}", quote(str(execution_id), safe="")) + "/frames/live"
        query = [("visibility", str(visibility)), ("follow", "true" if follow else "false")]
        if attempt is not None:
            query.append(("attempt", str(attempt)))
        return follow_frames(self.transport, path, query, after)

    read_state = remote(read_state.read_state, f"GET {_X}/summary", optional=True)

    async def subscribe_completions(
        self,
        cursor: bytes = b"",
        filter: EventFilter | None = None,  # noqa: A002  the word of the specification
    ) -> Subscription[CompletionEvent]:
        """As `Engine.subscribe_completions`."""
        return await subscribe(
            self.transport, "completion", CompletionEvent, cursor, filter, resumes=True
        )

    async def subscribe_lease_history(
        self,
        cursor: bytes = b"",
        filter: EventFilter | None = None,  # noqa: A002  the word of the specification
    ) -> Subscription[LeaseEvent]:
        """As `Engine.subscribe_lease_history`."""
        return await subscribe(self.transport, "lease", LeaseEvent, cursor, filter)

    async def subscribe_operator_events(
        self,
        cursor: bytes = b"",
        filter: EventFilter | None = None,  # noqa: A002  the word of the specification
    ) -> Subscription[OperatorEvent]:
        """As `Engine.subscribe_operator_events`."""
        return await subscribe(self.transport, "operator", OperatorEvent, cursor, filter)

    async def subscribe_signal_delivery(
        self,
        cursor: bytes = b"",
        filter: EventFilter | None = None,  # noqa: A002  the word of the specification
    ) -> Subscription[SignalEvent]:
        """As `Engine.subscribe_signal_delivery`."""
        return await subscribe(self.transport, "signal", SignalEvent, cursor, filter)

    # Lanes, workers, retention, keys.

    count_by_lane = remote(count_by_lane.count_by_lane, "GET /v1/lanes", answer="items")
    register_lanes = remote(register_lanes.register_lanes, "POST /v1/lanes")
    set_lane_state = remote(set_lane_state.set_lane_state, "PUT /v1/lanes/{lane_id}/state")
    set_lane_retention = remote(
        set_lane_retention.set_lane_retention,
        "PUT /v1/lanes/{lane_id}/retention",
        nulls=frozenset({"retention"}),
    )
    list_workers = remote(
        list_workers.list_workers, "GET /v1/workers", page="workers", names={"after": "cursor"}
    )

    async def trim_retention(
        self, trim: Trim, *, batch_size: int = 500, actor: str = "operator"
    ) -> int:
        """As `Engine.trim_retention`, without partition and tag."""
        if trim.partition is not None or trim.tag is not None:
            raise NeedsDatabase("trim_retention", "partition and tag cannot be given over HTTP")
        kept = trim.retention
        body = {
            "retention": kept if isinstance(kept, int | float) else kept.total_seconds(),
            "namespace": trim.namespace,
            "batch_size": batch_size,
        }
        path = f"/v1/lanes/{quote(trim.lane_id, safe='')}/trim"
        _, data = await self.transport.call(Request(method="POST", path=path, body=body))
        return msgspec.msgpack.decode(data, type=_Trimmed).executions

    async def find_unserved(
        self, namespace: str, kinds: Sequence[tuple[str, str]]
    ) -> list[Unserved]:
        """As `Engine.find_unserved`."""
        body = {"namespace": namespace, "kinds": [list(pair) for pair in kinds]}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/unserved", body=body, reads=True)
        )
        return msgspec.msgpack.decode(data, type=_Unserved).items

    async def list_expired_leases(
        self,
        *,
        after: ExpiredLeaseCursor | None = None,
        limit: int = 1000,
        namespace: str | None = None,
    ) -> ExpiredLeasePage:
        """As `Engine.list_expired_leases`."""
        query = [("limit", str(limit))]
        if namespace is not None:
            query.append(("namespace", namespace))
        if after is not None:
            query.append(("cursor", f"{epoch_ms(after.expires_at)}~{after.execution_id}"))
        _, data = await self.transport.call(
            Request(method="GET", path="/v1/leases/expired", query=query, reads=True)
        )
        answer: Any = msgspec.msgpack.decode(data, type=_Leases)
        found = form(list[ExpiredLease], _READ).loaded(answer.items)
        cursor = None
        if answer.next_cursor is not None:
            at, _, text = answer.next_cursor.partition("~")
            execution_id = ExecutionId.parse(text, partitions=self.partitions)
            cursor = ExpiredLeaseCursor(expires_at=instant(int(at)), execution_id=execution_id)
        return ExpiredLeasePage(leases=found, next_cursor=cursor)

    async def rotate_waitpoint_hmac_secret_all(
        self,
        new_kid: str,
        new_secret_hex: str,
        grace: Any,
        *,
        actor: str = "operator",
    ) -> list[PartitionRotation]:
        """As `Engine.rotate_waitpoint_hmac_secret_all`."""
        seconds = grace if isinstance(grace, int | float) else grace.total_seconds()
        body = {"new_kid": new_kid, "new_secret_hex": new_secret_hex, "grace": seconds}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/keys/rotate", body=body)
        )
        answer: Any = msgspec.msgpack.decode(data, type=_Rotated)
        return [PartitionRotation(partition=0, result=_ROTATED.loaded(answer.rotation))]
