"""The schedules of a client's namespace: create, change, pause, trigger, read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Unpack

from flowfabric.app.app import App
from flowfabric.app.check_call import check_call
from flowfabric.app.limit import store_limits
from flowfabric.app.schedule import ScheduleOptions, define_schedule, redefine_schedule
from flowfabric.app.task import Call
from flowfabric.errors import ScheduleChanged, invalid_input
from flowfabric.ids import new_uuid
from flowfabric.states import ScheduleState

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.schedules.backfill_schedule import Backfilled
    from flowfabric.engine.schedules.definition import ScheduleDefinition
    from flowfabric.engine.schedules.diff_schedules import ScheduleDiff
    from flowfabric.engine.schedules.explain_schedule import ScheduleExplanation
    from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
    from flowfabric.engine.schedules.list_schedules import SchedulePage
    from flowfabric.engine.schedules.schedule import Schedule
    from flowfabric.engine.schedules.trigger_schedule import Triggered

_TRIES: Final = 5


async def change_schedule(
    stored: Callable[[], Awaitable[Schedule]],
    redefined: Callable[[ScheduleDefinition], ScheduleDefinition],
    update: Callable[[ScheduleDefinition, int], Awaitable[Schedule]],
) -> Schedule:
    """What `update` makes of the stored schedule, given its new definition and its revision.

    It is read again if it has fired meanwhile. Raises `ScheduleChanged` if it does all the time.
    """
    for left in reversed(range(_TRIES)):
        seen = await stored()
        try:
            return await update(redefined(seen.definition), seen.revision)
        except ScheduleChanged:
            if not left:
                raise
    raise AssertionError("unreachable")


class Schedules:
    """The schedules of one client's namespace; each change is recorded with the client's actor."""

    def __init__(self, client: Client) -> None:
        self._client, self._engine = client, client.engine

    @property
    def _actor(self) -> str:
        return self._client.admin.actor

    async def create(
        self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Execute the call at every instant that the options give; as `app.schedule`.

        The same definition again changes nothing. Raises `ScheduleAlreadyExists` for another one
        of the same name, and `ValidationError`.
        """
        wanted = define_schedule(name, call, namespace=self._client.namespace, **options)
        await self._client.limits.store([call])
        return await self._engine.create_schedule(wanted, actor=self._actor)

    async def update(
        self, name: str, call: Call[Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Change the options that are given, and what is executed if a call is given.

        The next instant is the first after now. Raises `NotFound`, and `ValidationError`.
        """
        if call is not None:
            check_call(call)
            await self._client.limits.store([call])
        return await change_schedule(
            lambda: self.get(name),
            lambda stored: redefine_schedule(stored, call, **options),
            lambda wanted, revision: self._engine.update_schedule(
                wanted, revision=revision, actor=self._actor
            ),
        )

    async def pause(self, name: str, reason: str | None = None) -> Schedule:
        """Fire nothing until the schedule is resumed; raises `NotFound`, `ScheduleFinished`."""
        return await self._engine.pause_schedule(
            name, namespace=self._client.namespace, reason=reason, actor=self._actor
        )

    async def resume(
        self, name: str, *, catch_up: bool = False, reason: str | None = None
    ) -> Schedule:
        """Fire again, from the first instant after now.

        With `catch_up` the pause counts as an outage. Raises `NotFound`, `ScheduleFinished`.
        """
        return await self._engine.resume_schedule(
            name,
            namespace=self._client.namespace,
            catch_up=catch_up,
            reason=reason,
            actor=self._actor,
        )

    async def trigger(
        self, name: str, *, force: bool = False, reason: str | None = None
    ) -> Triggered:
        """Fire once, now. While an earlier execution runs `overlap` decides, unless `force`."""
        return await self._engine.trigger_schedule(
            name,
            namespace=self._client.namespace,
            force=force,
            trigger_id=new_uuid(),
            reason=reason,
            actor=self._actor,
        )

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, reason: str | None = None
    ) -> Backfilled:
        """Fire every instant from `start` until before `end` that was not fired, the oldest first.

        At most 10,000; `overlap` does not count. Raises `NotFound`, and `ValidationError`.
        """
        return await self._engine.backfill_schedule(
            name,
            start,
            end,
            namespace=self._client.namespace,
            reason=reason,
            actor=self._actor,
        )

    async def delete(self, name: str, reason: str | None = None) -> None:
        """Delete the schedule and its history; its executions stay. Raises `NotFound`."""
        await self._engine.delete_schedule(
            name, namespace=self._client.namespace, reason=reason, actor=self._actor
        )

    async def get(self, name: str) -> Schedule:
        """The schedule, its state and what it has done so far; raises `NotFound`."""
        return await self._engine.get_schedule(name, namespace=self._client.namespace)

    async def list(
        self,
        *,
        state: ScheduleState | str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SchedulePage:
        """Schedules in the order of their names; `next_cursor` is for the next page."""
        return await self._engine.list_schedules(
            namespace=self._client.namespace, state=state, cursor=cursor, limit=limit
        )

    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 100
    ) -> list[ScheduleFire]:
        """What became of its instants, the newest first."""
        return await self._engine.list_schedule_fires(
            name, namespace=self._client.namespace, before=before, limit=limit
        )

    async def preview(self, name: str, count: int = 5) -> list[datetime]:
        """Its next instants; raises `NotFound`."""
        return await self._engine.preview_schedule(name, count, namespace=self._client.namespace)

    async def explain(self, name: str) -> ScheduleExplanation:
        """Why it fires or does not, and what would change that; raises `NotFound`."""
        return await self._engine.explain_schedule(name, namespace=self._client.namespace)

    async def diff(self, app: App) -> ScheduleDiff:
        """How the schedules that an application defines differ from what is stored."""
        self._check(app)
        return await self._engine.diff_schedules(
            app.schedule_definitions(), namespace=app.namespace
        )

    async def sync(self, app: App, *, prune: bool = False) -> ScheduleDiff:
        """Store the schedules as the application defines them; the differences there were.

        With `prune` those that it does not define any more are deleted. Pauses stay.
        """
        self._check(app)
        await store_limits(self._engine, app.limits.values(), actor=self._actor)
        return await self._engine.sync_schedules(
            app.schedule_definitions(), namespace=app.namespace, prune=prune, actor=self._actor
        )

    def _check(self, app: App) -> None:
        if app.namespace != self._client.namespace:
            why = f"is not that of the client, {self._client.namespace!r}"
            raise invalid_input("namespace of the app", app.namespace, why)
