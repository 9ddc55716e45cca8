"""`ff workers`: who lives, who came and went, and marking one dead."""

from typing import Any

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.workers.expire_workers import expire_workers
from flowfabric.engine.workers.mark_worker_dead import STOPPED
from flowfabric.testing import Clock
from tests.cli.conftest import Inside, one_line, usage_error


async def register(engine: Engine, instance: str, **fields: Any) -> None:
    offered: dict[str, Any] = {"lanes": ["default"], "kinds": ["job"], "liveness_ttl": 30}
    await engine.register_worker(
        worker_id="pool", worker_instance_id=instance, **(offered | fields)
    )


async def story(ff: Inside, *arguments: str) -> list[tuple[str, str, str | None]]:
    """(instance, what, why) as `ff workers history` tells it, the newest first."""
    told = (await ff("workers", "history", *arguments, "--json")).json["events"]
    return [(each["worker_instance_id"], each["event_kind"], each["reason"]) for each in told]


async def test_workers_are_shown_with_what_they_offer(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1", lanes=["a", "b"], capabilities=["cpu", "gpu"], concurrency=8)

    heading, line = (await ff("workers")).out.splitlines()

    assert heading.split() == [
        "worker_instance_id",
        "alive",
        "lanes",
        "concurrency",
        "capabilities",
        "last_heartbeat_at",
        "registered_at",
        "worker_id",
    ]
    assert line.split()[:7] == ["w-1", "yes", "a,", "b", "8", "cpu,", "gpu"]
    assert "silent" not in line


async def test_stuck_threads_are_shown_by_task(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1")
    await ff_engine.heartbeat_worker(
        "w-1", stuck_threads={"resize": 3, "other": 1}, unclaimed_kinds=["resize"]
    )

    shown = (await ff("workers")).out
    [worker] = (await ff("workers", "--json")).json["workers"]

    assert "1 stuck in 'other', 3 stuck in 'resize' (not claimed)" in " ".join(shown.split())
    assert worker["stuck_threads"] == {"resize": 3, "other": 1}
    await ff_engine.heartbeat_worker("w-1")
    assert "stuck" not in (await ff("workers")).out


async def test_the_same_for_programs(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1", capabilities=["gpu"], concurrency=8)

    page = (await ff("workers", "--json")).json

    [worker] = page["workers"]
    assert (worker["worker_instance_id"], worker["worker_id"]) == ("w-1", "pool")
    assert (worker["capabilities"], worker["kinds"]) == (["gpu"], ["job"])
    assert (worker["concurrency"], worker["alive"], page["next_cursor"]) == (8, True, None)


async def test_a_worker_without_heartbeats_is_silent(
    ff: Inside, db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    await register(ff_engine, "w-1")
    await clock.advance(31)

    silent = (await ff("workers")).out
    await expire_workers(db, limit=10)

    assert "no: silent" in silent
    assert (await ff("workers")).out == "No workers in namespace 'default'.\n"
    assert [what for _, what, _ in await story(ff)] == ["ttl_swept", "registered"]


async def test_pages_follow_one_another(ff: Inside, ff_engine: Engine) -> None:
    for number in range(3):
        await register(ff_engine, f"w-{number}")

    first = await ff("workers", "--limit", "2")
    after = first.out.splitlines()[-1].removeprefix("More: --cursor ")
    second = await ff("workers", "--limit", "2", "--cursor", after)

    seen = [
        line.split()[0]
        for page in (first, second)
        for line in page.out.splitlines()
        if line.startswith("w-")
    ]
    assert seen == ["w-0", "w-1", "w-2"]
    assert "More:" not in second.out


async def test_namespaces_do_not_mix(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1", namespace="acme")

    assert (await ff("workers")).out == "No workers in namespace 'default'.\n"
    assert "w-1" in (await ff("workers", "--namespace", "acme")).out
    assert await story(ff) == []
    assert await story(ff, "--namespace", "acme") == [("w-1", "registered", None)]


# History.


async def test_history_tells_who_came_was_heard_and_went(
    ff: Inside, ff_engine: Engine, clock: Clock
) -> None:
    await register(ff_engine, "w-1")
    await clock.advance(10)
    await ff_engine.heartbeat_worker("w-1")
    await clock.advance(1)
    await register(ff_engine, "w-2")
    await clock.advance(1)
    await ff_engine.mark_worker_dead("w-1", reason="[red]gone[/red]")
    await clock.advance(1)
    await ff_engine.mark_worker_dead("w-2", reason=STOPPED)

    heading, *lines = (await ff("workers", "history")).out.splitlines()

    assert heading.split() == ["at", "(UTC)", "worker_instance_id", "event_kind", "reason"]
    assert [tuple(line.split()[2:]) for line in lines] == [
        ("w-2", "stopped"),
        ("w-1", "marked_dead", "[red]gone[/red]"),
        ("w-2", "registered"),
        ("w-1", "heartbeat"),
        ("w-1", "registered"),
    ]
    assert await story(ff, "w-2") == [
        ("w-2", "marked_dead", "stopped"),
        ("w-2", "registered", None),
    ]
    assert len(await story(ff, "--limit", "2")) == 2


async def test_no_history_is_no_error(ff: Inside) -> None:
    answer = await ff("workers", "history")

    assert answer.code == 0
    assert answer.out == "No worker events in namespace 'default'.\n"
    assert (await ff("workers", "history", "--json")).json == {"events": []}


# Dead.


async def test_a_worker_that_is_known_to_be_gone_is_taken_off_the_list(
    ff: Inside, ff_engine: Engine
) -> None:
    await register(ff_engine, "w-1")
    await register(ff_engine, "w-2")

    said = await ff("workers", "dead", "w-1", "--reason", "its machine burnt")
    told = await ff("workers", "dead", "w-2", "--json")

    assert (said.code, said.out) == (0, "marked dead: w-1\n")
    assert told.json == {"worker_instance_id": "w-2", "marked": True}
    assert (await ff("workers", "--json")).json["workers"] == []
    assert ("w-1", "marked_dead", "its machine burnt") in await story(ff)
    assert ("w-2", "marked_dead", f"marked dead by {user_at_host()}") in await story(ff)


async def test_a_worker_that_nobody_knows_is_one_line(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1", namespace="acme")

    assert one_line(await ff("workers", "dead", "w-1")) == "ff: worker w-1 does not exist"
    assert (await ff("workers", "dead", "w-1", "--namespace", "acme")).code == 0
    assert "Missing argument" in usage_error(await ff("workers", "dead"))


async def test_a_reason_that_cannot_be_kept_is_named(ff: Inside, ff_engine: Engine) -> None:
    await register(ff_engine, "w-1")

    long = one_line(await ff("workers", "dead", "w-1", "--reason", "x" * 257), 2)
    lines = one_line(await ff("workers", "dead", "w-1", "--reason", "a\nb"), 2)

    assert "must be at most 256 bytes" in long
    assert "must not hold control characters" in lines
    assert len((await ff("workers", "--json")).json["workers"]) == 1


async def test_a_limit_that_cannot_be_shows_how_it_is_used(ff_alone: Inside) -> None:
    for command in (("workers",), ("workers", "history")):
        for limit in ("0", "1001", "many"):
            assert "--limit" in usage_error(await ff_alone(*command, "--limit", limit))


async def test_no_namespace_is_none(ff_alone: Inside) -> None:
    for command in (("workers",), ("workers", "list"), ("workers", "history")):
        said = usage_error(await ff_alone(*command, "--namespace", ""))
        assert "--namespace: must not be empty" in said
