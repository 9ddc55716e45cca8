"""The limits of a client's namespace: set, read, list, and admission by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.client.identity import user_at_host
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.limits import QuotaLimits, Rate, quota_limits

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.quotas.check_admission import Admission
    from flowfabric.engine.quotas.create_quota_policy import QuotaPolicyCreated
    from flowfabric.engine.quotas.list_quota_keys import QuotaKey
    from flowfabric.engine.quotas.quota_policy import QuotaPolicy


class Limits:
    """The limits of one client's namespace, by name."""

    def __init__(self, client: Client) -> None:
        self._client, self._engine = client, client.engine
        self._stored: set[str] = set()

    async def set(
        self, name: str, *, concurrency: int | None = None, rate: Rate | None = None
    ) -> QuotaPolicy:
        """The limit exists and has these numbers; what they leave room for runs soon.

        A number that is left out is no limit. What runs already goes on. Raises `ValidationError`.
        """
        limits = quota_limits(concurrency=concurrency, rate=rate)
        namespace = self._client.namespace
        await self._engine.create_quota_policy(
            name, limits, namespace=namespace, actor=user_at_host()
        )
        return await self._engine.update_quota_policy(
            name, limits, namespace=namespace, actor=user_at_host()
        )

    async def get(self, name: str) -> QuotaPolicy:
        """The limit; raises `NotFound`."""
        found = await self._engine.get_quota_policy(name, namespace=self._client.namespace)
        if found is None:
            raise NotFound("limit", name)
        return found

    async def list(self) -> list[QuotaPolicy]:
        """The limits, by name."""
        return await self._engine.list_quota_policies(namespace=self._client.namespace)

    async def keys(
        self, name: str, *, limit_key: str | None = None, after: int | None = None, count: int = 100
    ) -> Sequence[QuotaKey]:
        """The keys of the limit that are in use: what runs, what is held back, what has started.

        Only `limit_key` if it is given; the next page begins `after` the last `quota_key_id`.
        """
        return await self._engine.list_quota_keys(
            name,
            namespace=self._client.namespace,
            limit_key=limit_key,
            after=after,
            count=count,
        )

    async def delete(self, name: str) -> None:
        """The limit is gone; what it held back runs soon. Raises `NotFound`."""
        await self._engine.delete_quota_policy(
            name, namespace=self._client.namespace, actor=user_at_host()
        )
        self._stored.discard(name)

    async def store(self, calls: Sequence[Call[Any]]) -> None:
        """The limits of these calls exist; those that exist keep their numbers.

        Raises `ValidationError` for what is no call; then none was created.
        """
        for each in calls:
            check_call(each)
        for task in {call.task for call in calls}:
            if task.limit is None or task.limit.limit.name in self._stored:
                continue
            limit = task.limit.limit
            await self._engine.create_quota_policy(
                limit.name,
                limit.limits,
                namespace=self._client.namespace,
                actor=user_at_host(),
            )
            self._stored.add(limit.name)


class Quotas:
    """Limits by id, and admission by hand: for work that no worker of FlowFabric runs."""

    def __init__(self, client: Client) -> None:
        self._client, self._engine = client, client.engine

    async def create(
        self,
        quota_policy_id: UUID,
        *,
        window_seconds: float | timedelta = 0,
        max_requests_per_window: int = 0,
        max_concurrent: int = 0,
        jitter: float | timedelta = 0,
    ) -> QuotaPolicyCreated:
        """The limit exists; one that existed before keeps its numbers. Raises `ValidationError`."""
        limits = QuotaLimits(
            window_seconds=window_seconds,
            max_requests_per_window=max_requests_per_window,
            max_concurrent=max_concurrent,
            jitter=jitter,
        )
        return await self._engine.create_quota_policy(
            quota_policy_id, limits, namespace=self._client.namespace, actor=user_at_host()
        )

    async def limits(self, quota_policy_id: UUID) -> QuotaLimits | None:
        """The numbers of the limit; None if there is none."""
        return await self._engine.read_quota_policy_limits(
            quota_policy_id, namespace=self._client.namespace
        )

    async def admit(
        self, limit: str | UUID, execution_id: ExecutionId | str, *, limit_key: str = ""
    ) -> Admission:
        """Count a start of the execution, if the limit allows one now; as `check_admission`."""
        return await self._engine.check_admission(
            limit,
            self._client.parse(execution_id),
            limit_key=limit_key,
            namespace=self._client.namespace,
        )

    async def release(self, limit: str | UUID, execution_id: ExecutionId | str) -> None:
        """The execution holds no slot by `admit` any more."""
        await self._engine.release_admission(
            limit, self._client.parse(execution_id), namespace=self._client.namespace
        )
