"""`ff lanes`: what waits where, the states of a lane, and for how long it keeps what has ended."""

import pytest

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from tests import given
from tests.cli.conftest import Inside, one_line, usage_error
from tests.engine.controls import Action, actions

STATES = {"pause": "paused", "drain": "draining", "disable": "disabled"}


async def kept(ff: Inside) -> str:
    """The last column of the only lane."""
    _, line = (await ff("lanes")).out.splitlines()
    return line.rstrip().rpartition("  ")[2]


async def test_a_lane_is_shown_with_its_state_and_what_is_open_on_it(
    ff: Inside, db: Connection
) -> None:
    await given.claimed(db)
    await given.created(db)
    await given.created(db, delay=60)
    await ff("lanes", "pause", "default", "--reason", "deploy [1]")

    heading, line = (await ff("lanes")).out.splitlines()

    assert heading.split()[0] == "lane_id"
    assert line.split()[:5] == ["default", "paused", "by", f"{user_at_host()}:", "deploy"]
    assert line.split()[5:9] == ["[1]", "1", "1", "1"]
    assert line.rstrip().endswith("1d (default)")


async def test_the_same_for_programs(ff: Inside, db: Connection) -> None:
    await given.created(db)
    await ff("lanes", "pause", "default", "--reason", "deploy")

    [lane] = (await ff("lanes", "--json")).json["lanes"]

    assert (lane["lane_id"], lane["lane_state"], lane["state_reason"]) == (
        "default",
        "paused",
        "deploy",
    )
    assert lane["state_changed_by"] == user_at_host()
    assert (lane["waiting"], lane["retention"]) == (1, None)


async def test_a_draining_lane_is_shown_with_how_many_are_left(ff: Inside, db: Connection) -> None:
    waiting = await given.created(db)
    await given.created(db, delay=60)

    said = await ff("lanes", "drain", "default")
    shown = await ff("lanes", "show", "default")
    left = (await ff("lanes", "show", "default", "--json")).json["left"]
    await db.execute("DELETE FROM ff.exec_core WHERE execution_id <> $1", waiting.uuid)
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])

    left_to_run = "takes no new executions; 2 left to run until it is empty"
    assert said.out.splitlines() == ["lane default is draining", left_to_run]
    assert shown.out.splitlines() == [
        f"default: draining by {user_at_host()}",
        f"  {left_to_run}",
        "  2 not ended: 1 waiting, 1 delayed",
        "  ended executions are kept: 1d (default)",
    ]
    assert left == 2
    assert "is empty: safe to take away" in (await ff("lanes", "show", "default")).out


@pytest.mark.parametrize("command", ["pause", "disable"])
async def test_nothing_starts_on_a_lane_that_is_paused_or_disabled(
    ff: Inside, db: Connection, command: str
) -> None:
    state = STATES[command]
    await given.created(db)

    said = await ff("lanes", command, "default", "--reason", "deploy")
    again = await ff("lanes", command, "default")
    while_ = await claim(db, given.WORKER, ttl=30)
    resumed = await ff("lanes", "resume", "default", "--json")
    after = await claim(db, given.WORKER, ttl=30)

    assert (said.code, said.out) == (0, f"lane default is {state}\n")
    assert (again.code, again.out) == (0, f"lane default is already {state}\n")
    assert resumed.json == {"lane_id": "default", "lane_state": "active", "old_state": state}
    assert (len(while_), len(after)) == (0, 1)
    details = {"lane_id": "default", "old_state": "active", "new_state": state}
    first, second = await actions(db)
    assert first == Action("lane_state_changed", user_at_host(), "deploy", details)
    assert second.details["new_state"] == "active"


@pytest.mark.parametrize(("command", "takes"), [("pause", True), ("drain", False)])
async def test_a_paused_lane_takes_new_work_and_a_draining_one_does_not(
    ff: Inside, db: Connection, command: str, takes: bool
) -> None:
    await given.created(db)
    await ff("lanes", command, "default")

    answer = await ff("submit", "job", "--json")

    assert answer.code == (0 if takes else 1)
    assert ("lane 'default' is draining" in answer.err) is not takes
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == (2 if takes else 1)


async def test_what_runs_on_a_draining_lane_may_end(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)

    await ff("lanes", "drain", "default")
    ended = await ff("executions", "cancel", str(lease.execution_id))

    assert ended.code == 0


async def test_a_lane_that_is_unknown_or_cannot_be_is_named(ff: Inside) -> None:
    for command in (*STATES, "resume", "show"):
        unknown = one_line(await ff("lanes", command, "nowhere"))
        empty = one_line(await ff("lanes", command, ""), 2)
        long = one_line(await ff("lanes", command, "x" * 65), 2)

        assert unknown == "ff: lane nowhere does not exist"
        assert "LANE: '' must not be empty" in empty
        assert "must be at most 64 bytes" in long
        assert "Missing argument" in usage_error(await ff("lanes", command))


# Keep.


async def test_a_lane_keeps_what_has_ended_for_as_long_as_is_said(
    ff: Inside, db: Connection
) -> None:
    await given.created(db)

    for written, stored, said in (
        ("7d", 604800, "7d"),
        ("90m", 5400, "90m"),
        ("ever", 0, "for ever"),
        ("default", None, "1d (default)"),
    ):
        answer = await ff("lanes", "keep", "default", written)
        told = await ff("lanes", "keep", "default", written, "--json")
        [lane] = (await ff("lanes", "--json")).json["lanes"]

        assert (answer.code, answer.out) == (0, f"lane default keeps ended executions: {said}\n")
        assert told.json == {"lane_id": "default", "retention": stored}
        assert lane["retention"] == stored
        assert await kept(ff) == said


async def test_who_changed_for_how_long_is_kept(ff: Inside, db: Connection) -> None:
    await given.created(db)

    await ff("lanes", "keep", "default", "ever")

    [action] = await actions(db)
    assert (action.event_type, action.actor) == ("lane_retention_changed", user_at_host())
    assert action.details == {
        "lane_id": "default",
        "old_retention_ms": None,
        "new_retention_ms": 0,
    }


async def test_what_cannot_be_kept_is_named(ff: Inside, db: Connection) -> None:
    await given.created(db)

    for lane, length, why in (
        ("default", "x", "DURATION: 'x' must look like 90s, 15m, 12h or 7d"),
        ("default", "forever", "DURATION: 'forever' must look like"),
        ("default", "1 d", "DURATION: '1 d' must look like"),
        ("default", "0.1ms", "must be 0, or at least a millisecond"),
        ("nowhere", "7d", "lane nowhere does not exist"),
        ("grö", "7d", "LANE: 'grö' must be printable ASCII"),
    ):
        code = 1 if "exist" in why else 2
        assert why in one_line(await ff("lanes", "keep", lane, length), code)
    assert await actions(db) == []


async def test_what_is_no_command_line_shows_how_it_is_used(ff_alone: Inside) -> None:
    negative = usage_error(await ff_alone("lanes", "keep", "default", "-1d"))
    unknown = usage_error(await ff_alone("lanes", "stop", "default"))

    assert "No such option: -1" in negative
    assert "No such command 'stop'" in unknown


# What is not as it should be.


async def test_what_is_blocked_is_shown_as_held_back(ff: Inside, db: Connection) -> None:
    await ff("executions", "block", str(await given.created(db)))

    _, line = (await ff("lanes")).out.splitlines()

    assert line.split()[2:6] == ["0", "0", "0", "1"]


async def test_json_in_front_of_the_command_counts(ff: Inside, db: Connection) -> None:
    await given.created(db)

    answer = await ff("lanes", "--json", "pause", "default")

    assert answer.code == 2 or answer.json["lane_state"] == "paused"


async def test_a_refused_submit_does_not_say_that_it_waits(ff: Inside, db: Connection) -> None:
    await given.created(db)
    await ff("lanes", "drain", "default")

    assert "draining" in one_line(await ff("submit", "job"))
