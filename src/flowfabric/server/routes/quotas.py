"""The limits (quotas) of a namespace."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine import (
    Admission,
    QuotaKey,
    QuotaLimits,
    QuotaPolicy,
    QuotaPolicyCreated,
)
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespaceQuery, check_limit
from flowfabric.server.problems import invalid
from flowfabric.server.table import CONTROL, NOTHING, Route, route
from flowfabric.states import Scope

Q: Final = "/v1/quotas/{limit}"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that wants to start, and the key that it is counted under."""

    execution_id: ExecutionId
    limit_key: str = ""


class ReleaseAdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that has ended."""

    execution_id: ExecutionId


class QuotaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A limit by its name, or by its id."""

    name: str | None = None
    quota_policy_id: UUID | None = None
    limits: QuotaLimits
    namespace: str | None = None
    reason: str | None = None


class QuotaChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The limits from now on, and why."""

    limits: QuotaLimits
    reason: str | None = None


class QuotaDeleteQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | None = None


class QuotaList(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a namespace."""

    items: list[QuotaPolicy]


class QuotaKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a limit: what holds their slots, and what waits."""

    items: list[QuotaKey]


class QuotaKeysQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys."""

    limit_key: str | None = None
    after: int | None = None
    limit: int = 50


async def create_quota_policy(call: ApiCall, body: QuotaRequest) -> Reply:
    """Create a limit; 200 if it was there before."""
    wanted = body.name if body.quota_policy_id is None else body.quota_policy_id
    if wanted is None:
        raise invalid("name", "must be given, unless quota_policy_id is")
    made = await call.engine.create_quota_policy(
        wanted, body.limits, namespace=call.namespace(body.namespace), actor=call.actor
    )
    return Reply(value=made, status=201 if made.created else 200)


async def list_quota_policies(call: ApiCall, query: NamespaceQuery) -> QuotaList:
    """The limits of a namespace."""
    found = await call.engine.list_quota_policies(namespace=call.namespace(query.namespace))
    return QuotaList(items=found)


async def get_quota_policy(call: ApiCall, query: NamespaceQuery) -> QuotaPolicy:
    """One limit."""
    name = _limit(call)
    found = await call.engine.get_quota_policy(name, namespace=call.namespace(query.namespace))
    if found is None:
        raise NotFound("limit", name)
    return found


async def update_quota_policy(
    call: ApiCall, query: NamespaceQuery, body: QuotaChanges
) -> QuotaPolicy:
    """Change a limit."""
    return await call.engine.update_quota_policy(
        _limit(call),
        body.limits,
        namespace=call.namespace(query.namespace),
        reason=body.reason,
        actor=call.actor,
    )


async def list_quota_keys(call: ApiCall, query: QuotaKeysQuery) -> QuotaKeys:
    """The keys of a limit: what holds their slots, and what waits."""
    found = await call.engine.list_quota_keys(
        _limit(call),
        namespace=call.namespace(query.namespace),
        limit_key=query.limit_key,
        after=query.after,
        count=check_limit(query.limit),
    )
    return QuotaKeys(items=found)


def _limit(call: ApiCall) -> str | UUID:
    """The limit of the path: by its id if that is one, else by its name."""
    text = call.text("limit")
    try:
        return UUID(text)
    except ValueError:
        return text


async def delete_quota_policy(call: ApiCall, query: QuotaDeleteQuery) -> None:
    """Delete a limit; what it held back goes on."""
    await call.engine.delete_quota_policy(
        _limit(call),
        namespace=call.namespace(query.namespace),
        reason=query.reason,
        actor=call.actor,
    )


async def check_admission(
    call: ApiCall, query: NamespaceQuery, body: AdmissionRequest
) -> Admission:
    """Count a start of the execution, if the limit allows one now."""
    await call.check_executions([body.execution_id])
    return await call.engine.check_admission(
        _limit(call),
        body.execution_id,
        limit_key=body.limit_key,
        namespace=call.namespace(query.namespace),
    )


async def release_admission(
    call: ApiCall, query: NamespaceQuery, body: ReleaseAdmissionRequest
) -> None:
    """The execution does not hold a slot of the limit any more."""
    await call.check_executions([body.execution_id])
    await call.engine.release_admission(
        _limit(call), body.execution_id, namespace=call.namespace(query.namespace)
    )


def _change(method: str, path: str, handler: Any, body: Any, answers: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"scope": Scope.OPERATE, "limit": CONTROL, **more}
    return route(method, path, handler, body=body, answers=answers, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _change(
        "POST",
        "/v1/quotas",
        create_quota_policy,
        QuotaRequest,
        {201: QuotaPolicyCreated, 200: QuotaPolicyCreated},
        scope=Scope.WRITE,  # the limits of tasks are created by submits; those that exist stay
    ),
    route(
        "GET",
        "/v1/quotas",
        list_quota_policies,
        scope=Scope.READ,
        query=NamespaceQuery,
        answers={200: QuotaList},
    ),
    route(
        "GET",
        Q,
        get_quota_policy,
        scope=Scope.READ,
        query=NamespaceQuery,
        answers={200: QuotaPolicy},
    ),
    _change(
        "PATCH",
        Q,
        update_quota_policy,
        QuotaChanges,
        {200: QuotaPolicy},
        scope=Scope.OPERATE,
        query=NamespaceQuery,
    ),
    route(
        "DELETE",
        Q,
        delete_quota_policy,
        scope=Scope.OPERATE,
        query=QuotaDeleteQuery,
        answers={204: NOTHING},
    ),
    _change(
        "POST",
        Q + "/admit",
        check_admission,
        AdmissionRequest,
        {200: Admission},
        scope=Scope.WORK,
        query=NamespaceQuery,
    ),
    _change(
        "POST",
        Q + "/release",
        release_admission,
        ReleaseAdmissionRequest,
        {204: NOTHING},
        scope=Scope.WORK,
        query=NamespaceQuery,
    ),
    route(
        "GET",
        Q + "/keys",
        list_quota_keys,
        scope=Scope.READ,
        query=QuotaKeysQuery,
        answers={200: QuotaKeys},
    ),
)
