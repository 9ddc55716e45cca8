"""What to look for among executions, checked and as the parameters of a statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from flowfabric.engine.executions.exceptional_states import EXCEPTIONAL_STATES
from flowfabric.engine.executions.search_cursor import read_search_cursor
from flowfabric.engine.journal.entry import PATCH_PREFIX
from flowfabric.errors import invalid_input
from flowfabric.ids import (
    check_lane,
    check_name,
    check_tag_key,
    check_text,
    key_partition,
    storable_text,
    uuid_partition,
)
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds
from flowfabric.states import DIVERGENCE, PublicState

MAX_TAGS: Final = 3
MAX_KINDS: Final = 100
ENDED_OTHERWISE: Final = (
    PublicState.FAILED,
    PublicState.CANCELLED,
    PublicState.EXPIRED,
    PublicState.SKIPPED,
)
"""States of executions that ended without success."""
_END_OF_TIME: Final = 2**62
_LAST: Final = UUID(int=2**128 - 1)
_FIRST: Final = UUID(int=0)


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for; a field that is None or empty is not compared."""

    namespace: str | None = None
    lane_id: str | None = None
    execution_kind: str | None = None
    execution_kinds: tuple[str, ...] = ()
    """Any of these kinds."""
    public_state: PublicState | None = None
    public_states: tuple[PublicState, ...] = ()
    """Any of these states."""
    tag: tuple[str, str] | None = None
    tags: tuple[tuple[str, str], ...] = ()
    """Any of these tags, at most three."""
    flow_id: UUID | None = None
    worker: str | None = None
    """Held by this process, or by a process of this pool."""
    idempotency_key: str | None = None
    """The last that was submitted with this key; with a namespace."""
    reason: str | None = None
    """Ended without success, with this text in the reason; or in one of the states asked for."""
    min_attempts: int = 0
    created_since: datetime | None = None
    created_within: float | timedelta | None = None
    """Created at most so long ago, by the clock of the database."""
    created_before: datetime | None = None
    divergent: bool = False
    """Only those that are suspended because their handlers made other calls than before."""
    patch_missing: str | None = None
    """Only those of the kind that have begun, have not ended, and may not have this patch."""
    unserved: bool = False
    """Only those that no live worker of their namespace can run."""
    sort: Literal["new", "old", "long"] = "new"
    """Created last or first; or, of those that a worker holds, the longest running first."""


SearchPlace: TypeAlias = Literal[
    "by_time",
    "completed",
    "exceptional",
    "unsuccessful",
    "active",
    "waiting",
    "resumable",
    "retried",
    "by_tag",
    "by_flow",
    "by_key",
    "divergent",
    "patch_missing",
]
"""Where executions are found; each has its statement."""


def plan(search: Search) -> list[tuple[SearchPlace, dict[str, object]]]:
    """Where to look: in one place, or in one for each kind of state; with more parameters."""
    if search.patch_missing is not None:
        return [("patch_missing", {})]
    if search.divergent:
        return [("divergent", {})]
    if search.idempotency_key is not None:
        return [("by_key", {})]
    if search.worker is not None or search.sort == "long":
        return [("active", {})]
    if search.flow_id is not None:
        return [("by_flow", {})]
    if search.tag is not None or search.tags:
        return [("by_tag", {})]
    if search.min_attempts > 1:
        return _retried(states_of(search))
    if _asks_all_routes_why(search):
        words = [word for state in states_of(search) for word in EXCEPTIONAL_STATES[state]]
        return [("unsuccessful", {"exceptional": words})]
    return _by_state(states_of(search))


def _asks_all_routes_why(search: Search) -> bool:
    """Is it a text in the reason alone? With a namespace, lane or kind there are fewer routes."""
    is_of_some = search.namespace or search.lane_id or search.execution_kind
    return (
        search.reason is not None
        and not (is_of_some or search.execution_kinds)
        and set(states_of(search)) <= set(ENDED_OTHERWISE)
    )


def _retried(states: Sequence[PublicState]) -> list[tuple[SearchPlace, dict[str, object]]]:
    """Executions that had several attempts are few; those that run are found by their leases."""
    others = [state.value for state in states if state is not PublicState.ACTIVE]
    places: list[tuple[SearchPlace, dict[str, object]]] = []
    if not states or others:
        places.append(("retried", {"public_states": others or None}))
    if PublicState.ACTIVE in states:
        places.append(("active", {}))
    return places


def _by_state(states: Sequence[PublicState]) -> list[tuple[SearchPlace, dict[str, object]]]:
    if not states:
        return [("by_time", {})]
    places: list[tuple[SearchPlace, dict[str, object]]] = []
    words: list[str] = []
    for state in states:
        if state is PublicState.COMPLETED:
            places.append(("completed", {}))
        elif state is PublicState.ACTIVE:
            places.append(("active", {}))
        elif state is PublicState.RESUMABLE:
            places.append(("resumable", {}))
        elif state is PublicState.WAITING:
            places.append(("waiting", {"exceptional": list(EXCEPTIONAL_STATES[state])}))
        else:
            words += EXCEPTIONAL_STATES[state]
    if words:
        places.append(("exceptional", {"exceptional": words}))
    return places


def states_of(search: Search) -> tuple[PublicState, ...]:
    """The states that are asked for; none: all."""
    alone = () if search.public_state is None else (search.public_state,)
    asked = tuple(dict.fromkeys(alone or search.public_states))
    if search.worker is not None or search.sort == "long":
        return (PublicState.ACTIVE,)
    return ENDED_OTHERWISE if not asked and search.reason is not None else asked


def parameters_of(
    search: Search, cursor: str | None, limit: int, partitions: int
) -> dict[str, object]:
    """The search as parameters of its statements; raises `ValidationError(invalid_input)`."""
    _check(search)
    tags, kinds = _tags(search), _kinds(search)
    before_ms, before_id, after_ms, after_id = _start(search, cursor)
    states = [state.value for state in states_of(search)]
    return {
        "namespace": search.namespace,
        "lane_id": search.lane_id,
        "execution_kinds": kinds or None,
        "public_states": states or None,
        "before_ms": before_ms,
        "before_id": before_id,
        "after_ms": after_ms,
        "after_id": after_id,
        "since_ms": 0
        if search.created_since is None
        else epoch_ms(check_instant(search.created_since, field="created_since")),
        "within_ms": _END_OF_TIME
        if search.created_within is None
        else milliseconds(search.created_within, field="created_within"),
        "tag_keys": [key for key, _ in tags],
        "tag_values": [value for _, value in tags],
        "tags": [msgspec.json.encode({key: value}).decode() for key, value in tags] or None,
        "flow_id": search.flow_id,
        "worker": search.worker,
        "idempotency_key": search.idempotency_key,
        "partition_key": _partition(search, partitions),
        "reason": search.reason,
        "min_attempts": search.min_attempts,
        "patch": None if search.patch_missing is None else PATCH_PREFIX + search.patch_missing,
        "divergence": DIVERGENCE,
        "limit": limit,
        "route_ids": None,
    }


def _check(search: Search) -> None:
    if search.lane_id is not None:
        check_lane(search.lane_id)
    for field in ("namespace", "reason", "patch_missing"):
        text = getattr(search, field)
        if text is not None:
            storable_text(text, field=field)
    if search.worker is not None:
        check_name(search.worker, field="worker")
    if not 0 <= search.min_attempts < 2**31:
        raise invalid_input("min_attempts", search.min_attempts, "must not be negative")
    asked = (*search.public_states, *([search.public_state] if search.public_state else []))
    if search.public_state is not None and search.public_states:
        raise invalid_input("public_states", list(asked), "cannot be given with public_state")
    if search.idempotency_key is not None:
        check_text(search.idempotency_key, field="idempotency_key", at_most=1024)
        if search.namespace is None:
            raise invalid_input("idempotency_key", search.idempotency_key, "needs a namespace")
    if set(asked) - {PublicState.ACTIVE}:
        if search.worker is not None:
            raise invalid_input("worker", search.worker, "is that of active executions only")
        if search.sort == "long":
            raise invalid_input("sort", search.sort, "is for active executions only")
    if search.divergent or search.patch_missing is not None:
        _check_handlers(search, asked)


def _check_handlers(search: Search, asked: Sequence[PublicState]) -> None:
    """Filters by what handlers have recorded go together with few others."""
    patch = search.patch_missing
    for field in ("tag", "worker", "flow_id", "idempotency_key"):
        if getattr(search, field) is not None:
            given = str(getattr(search, field))
            raise invalid_input(field, given, "cannot be given with divergent or patch_missing")
    if search.tags:
        raise invalid_input("tags", len(search.tags), "cannot be given with divergent")
    if search.sort != "new":
        raise invalid_input("sort", search.sort, "cannot be given with divergent or patch_missing")
    if patch is None:
        if set(asked) - {PublicState.SUSPENDED}:
            raise invalid_input("public_state", asked[0].value, "is not that of what is divergent")
    elif search.divergent:
        raise invalid_input("patch_missing", patch, "cannot be given with divergent")
    elif not _kinds(search):
        raise invalid_input("patch_missing", patch, "must be given with a kind")


def _kinds(search: Search) -> list[str]:
    if search.execution_kind is not None and search.execution_kinds:
        raise invalid_input("execution_kinds", None, "cannot be given with execution_kind")
    alone = () if search.execution_kind is None else (search.execution_kind,)
    kinds = alone or search.execution_kinds
    if len(kinds) > MAX_KINDS:
        raise invalid_input("execution_kinds", len(kinds), f"must be at most {MAX_KINDS}")
    return [storable_text(kind, field="execution_kind") for kind in kinds]


def _tags(search: Search) -> list[tuple[str, str]]:
    if search.tag is not None and search.tags:
        raise invalid_input("tags", len(search.tags), "cannot be given with tag")
    tags = search.tags if search.tag is None else (search.tag,)
    if len(tags) > MAX_TAGS:
        raise invalid_input("tags", len(tags), f"must be at most {MAX_TAGS}")
    return [
        (check_tag_key(key), storable_text(value, field=f"tag {key}"))
        for key, value in dict.fromkeys(tags)
    ]


def _partition(search: Search, partitions: int) -> int | None:
    if search.idempotency_key is not None and search.namespace is not None:
        return key_partition(search.namespace, search.idempotency_key, partitions)
    return None if search.flow_id is None else uuid_partition(search.flow_id, partitions)


def _start(search: Search, cursor: str | None) -> tuple[int, UUID, int, UUID]:
    """Where the page begins: before an execution, and after one."""
    before_ms, before_id, after_ms, after_id = _END_OF_TIME, _LAST, -1, _FIRST
    if search.created_before is not None:
        before_ms = epoch_ms(check_instant(search.created_before, field="created_before"))
        before_id = _FIRST
    if cursor is not None and search.sort == "new":
        before_ms, before_id = read_search_cursor(search, cursor)
    elif cursor is not None:
        after_ms, after_id = read_search_cursor(search, cursor)
    return before_ms, before_id, after_ms, after_id
