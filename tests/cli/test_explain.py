"""`ff explain`: why an execution does not run, in words and for programs."""

import shlex
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.ids import ExecutionId
from tests import given
from tests.cli.conftest import Inside, one_line, usage_error
from tests.engine.controls import execution


async def register(engine: Engine, **fields: Any) -> None:
    """A worker that could run everything of the tests, unless the fields say otherwise."""
    offered: dict[str, Any] = {
        "lanes": ["default"],
        "kinds": ["job"],
        "capabilities": [],
        "concurrency": 1,
    }
    await engine.register_worker(
        worker_id="w", worker_instance_id="w-1", liveness_ttl=30, **(offered | fields)
    )


def remedies(said: str) -> list[list[str]]:
    """The commands that are advised, as a shell reads them."""
    lines = [line.strip().removeprefix("→ ") for line in said.splitlines() if "→" in line]
    return [shlex.split(line[line.index(" ff ") :]) for line in lines if " ff " in line]


async def test_it_says_what_is_in_the_way_and_what_would_change_that(
    ff: Inside, db: Connection
) -> None:
    execution_id = str(await given.created(db))

    answer = await ff("explain", execution_id)

    where, why, remedy = answer.out.splitlines()
    assert answer.code == 0
    assert where.startswith("waiting since 20")
    assert where.endswith("ago): job on lane default")
    assert why == "  no live worker on lane 'default' in namespace 'default'"
    assert remedy == "    → start one: ff worker MODULE:APP --lane default"

    of_acme = str(await given.created(db, namespace="acme"))
    remedy = (await ff("explain", of_acme)).out.splitlines()[-1]
    assert remedy.startswith("    → start one whose app is App(namespace='acme'): ff worker")


async def test_the_same_for_programs_under_either_name(ff: Inside, db: Connection) -> None:
    execution_id = str(await given.created(db, delay=60, required_capabilities=("gpu",)))

    told = (await ff("explain", execution_id, "--json")).json
    same = (await ff("executions", "explain", execution_id, "--json")).json

    assert told["execution_id"] == execution_id
    assert (told["public_state"], told["lane_id"], told["execution_kind"]) == (
        "delayed",
        "default",
        "job",
    )
    assert told["required_capabilities"] == ["gpu"]
    assert (told["live_workers"], told["able_workers"]) == (0, 0)
    assert [reason["why"] for reason in told["reasons"]] == ["not_due", "no_worker"]
    first, second = told["reasons"]
    assert first["clears_at"].startswith("20")
    assert second["clears_at"] is None
    assert {**same, "reasons": None} == {**told, "reasons": None}


async def test_every_obstacle_is_named_the_first_one_first(
    ff: Inside, db: Connection, ff_engine: Engine
) -> None:
    execution_id = str(await given.created(db, required_capabilities=("gpu",)))
    await register(ff_engine)
    await ff("executions", "block", execution_id, "--reason", "look first")
    await ff("lanes", "pause", "default", "--reason", "deploy")

    told = (await ff("explain", execution_id, "--json")).json

    assert [reason["why"] for reason in told["reasons"]] == [
        "blocked",
        "lane_not_active",
        "no_capable_worker",
    ]
    assert "look first" in told["reasons"][0]["message"]
    assert "deploy" in told["reasons"][1]["message"]
    assert "'gpu'" in told["reasons"][2]["message"]


async def test_the_commands_that_are_advised_clear_the_way(
    ff: Inside, db: Connection, ff_engine: Engine
) -> None:
    execution_id = str(await given.created(db, lane_id="it's here"))
    await register(ff_engine, lanes=["it's here"])
    await ff("executions", "block", execution_id)

    [unblock] = remedies((await ff("explain", execution_id)).out)
    unblocked = await ff(*unblock[1:])
    after = (await ff("explain", execution_id, "--json")).json

    assert unblock[:3] == ["ff", "executions", "unblock"]
    assert unblocked.code == 0
    assert [reason["why"] for reason in after["reasons"]] == ["about_to_start"]


async def test_the_command_that_resumes_a_lane_can_be_pasted(ff: Inside, db: Connection) -> None:
    execution_id = str(await given.created(db, lane_id="high prio"))
    await ff("lanes", "pause", "high prio")

    resume, _ = remedies((await ff("explain", execution_id)).out)

    assert resume == ["ff", "lanes", "resume", "high prio"]
    assert (await ff(*resume[1:])).out == "lane high prio is active\n"


async def test_the_advice_can_be_pasted_whatever_the_lane_is_called(
    ff: Inside, db: Connection
) -> None:
    execution_id = str(await given.created(db, lane_id="it's here"))
    await ff("lanes", "pause", "it's here")

    resume, _ = remedies((await ff("explain", execution_id)).out)

    assert resume == ["ff", "lanes", "resume", "it's here"]


async def test_what_has_ended_says_how_and_can_be_replayed_as_advised(
    ff: Inside, db: Connection
) -> None:
    failed = await execution(db, "failed")

    said = (await ff("explain", str(failed))).out
    replay, show = remedies(said)
    replayed = await ff(*replay[1:])

    assert said.startswith("failed since")
    assert "boom" in said
    assert (replayed.code, replayed.out) == (0, f"replayed {failed}\n")
    assert show == ["ff", "executions", "show", str(failed)]
    assert await given.public_state(db, failed) == "waiting"


async def test_a_running_one_says_who_holds_it(
    ff: Inside, db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)

    silent = (await ff("explain", str(lease.execution_id), "--json")).json["reasons"]
    await register(ff_engine)
    alive = (await ff("explain", str(lease.execution_id))).out

    assert [reason["why"] for reason in silent] == ["holder_silent"]
    assert alive.startswith("active since")
    assert "runs on worker 'w-1' until" in alive


async def test_names_that_look_like_markup_are_shown_as_they_are(
    ff: Inside, db: Connection
) -> None:
    execution_id = str(await given.created(db, execution_kind="[red]x[/red]", lane_id="[/b]"))

    said = (await ff("explain", execution_id)).out

    assert "[red]x[/red] on lane [/b]" in said
    assert "no live worker on lane '[/b]'" in said


async def test_an_id_that_is_malformed_unknown_or_missing_is_told(ff: Inside) -> None:
    unknown = str(ExecutionId.mint())

    assert "ID: 'x' must be a uuid" in usage_error(await ff("explain", "x"))
    assert one_line(await ff("explain", unknown)) == f"ff: execution {unknown} does not exist"
    assert "Missing argument 'ID'" in usage_error(await ff("explain"))
