"""What an operator does to one execution: every control, and what is said when it cannot be."""

import re

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from tests import given
from tests.cli.conftest import Inside, one_line, usage_error
from tests.engine.controls import Action, actions, execution

CONTROLS = {
    "cancel": (),
    "replay": (),
    "priority": ("7",),
    "revoke": (),
    "complete": ("--yes",),
    "fail": ("--yes",),
    "delay": ("5m", "--yes"),
    "block": (),
    "unblock": (),
    "tag": ("shop.tenant=acme",),
    "history": (),
    "show": (),
    "explain": (),
    "resume": (),
    "wake": (),
    "steps": (),
}


async def test_ids_that_are_malformed_or_unknown_are_one_line(ff: Inside) -> None:
    unknown = str(ExecutionId.mint())

    for command, more in CONTROLS.items():
        malformed = usage_error(await ff("executions", command, "{fp:900}:x", *more))
        missing = one_line(await ff("executions", command, unknown, *more))
        assert "ID: '{fp:900}:x'" in malformed
        assert missing == f"ff: execution {unknown} does not exist"


async def test_a_control_without_an_id_shows_how_it_is_used(ff_alone: Inside) -> None:
    for command in CONTROLS.keys() - {
        "cancel",
        "replay",
        "resume",
        "wake",
    }:  # those may have a search
        assert "Missing argument 'ID'" in usage_error(await ff_alone("executions", command))


# Cancel.


async def test_cancel_ends_an_execution_and_keeps_who_did_it_and_why(
    ff: Inside, db: Connection
) -> None:
    cancelled = await given.created(db)

    answer = await ff("executions", "cancel", str(cancelled), "--reason", "not wanted")
    again = await ff("executions", "cancel", str(cancelled), "--json")

    assert (answer.code, answer.out) == (0, f"cancelled {cancelled}\n")
    assert again.json == {
        "execution_id": str(cancelled),
        "public_state": "cancelled",
        "repeated": True,
    }
    [action] = await actions(db, cancelled)
    assert (action.event_type, action.actor, action.reason) == (
        "cancelled",
        user_at_host(),
        "not wanted",
    )


async def test_what_ended_otherwise_cannot_be_cancelled(ff: Inside, db: Connection) -> None:
    completed = await execution(db, "completed")

    line = one_line(await ff("executions", "cancel", str(completed)))

    assert f"{completed} already terminal in state completed" in line
    assert await actions(db) == []


# Replay.


async def test_replay_runs_an_execution_again(ff: Inside, db: Connection) -> None:
    failed, cancelled = await execution(db, "failed"), await execution(db, "cancelled")

    said = await ff("executions", "replay", str(failed), "--reason", "the bank is back")
    told = await ff("executions", "replay", str(cancelled), "--json")

    assert (said.code, said.out) == (0, f"replayed {failed}\n")
    assert told.json == {"execution_id": str(cancelled), "public_state": "waiting"}
    assert await given.public_state(db, failed) == "waiting"
    [action] = await actions(db, failed)
    assert (action.event_type, action.actor, action.reason) == (
        "replayed",
        user_at_host(),
        "the bank is back",
    )


async def test_what_has_not_ended_cannot_be_replayed(ff: Inside, db: Connection) -> None:
    waiting = await given.created(db)

    line = one_line(await ff("executions", "replay", str(waiting)))

    assert line == f"ff: execution {waiting} is waiting; it has not ended"


async def test_what_was_replayed_as_often_as_its_policy_allows_stays_as_it_is(
    ff: Inside, db: Connection
) -> None:
    failed = await execution(db, "failed", policy=ExecutionPolicy(max_replay_count=1))

    first = await ff("executions", "replay", str(failed))
    await ff("executions", "cancel", str(failed))
    line = one_line(await ff("executions", "replay", str(failed)))

    assert first.code == 0
    assert line == f"ff: execution {failed} was replayed 1 times already"


# Priority.


async def test_priority_changes_the_place_and_keeps_what_it_was(ff: Inside, db: Connection) -> None:
    later, sooner = await given.created(db, priority=1), await given.created(db)

    said = await ff("executions", "priority", str(sooner), "2", "--reason", "urgent")
    told = await ff("executions", "priority", str(later), "99999", "--json")

    assert (said.code, said.out) == (0, f"priority 2: {sooner}\n")
    assert told.json == {"execution_id": str(later), "priority": 9000}
    assert (await given.row(db, sooner))["priority"] == 2
    details = {"old_priority": 0, "new_priority": 2}
    assert await actions(db, sooner) == [
        Action("priority_changed", user_at_host(), "urgent", details)
    ]


async def test_a_priority_is_a_whole_number(ff_alone: Inside) -> None:
    priority = ("executions", "priority", str(ExecutionId.mint()))

    assert "PRIORITY" in usage_error(await ff_alone(*priority, "high"))
    assert "PRIORITY" in usage_error(await ff_alone(*priority))


async def test_only_what_waits_has_a_place_to_change(ff: Inside, db: Connection) -> None:
    for state in ("active", "completed", "delayed"):
        execution_id = await execution(db, state)

        line = one_line(await ff("executions", "priority", str(execution_id), "5"))

        assert line == f"ff: execution {execution_id} is {state}, not waiting for a worker"


# Revoke.


async def test_revoke_takes_an_execution_away_from_its_holder(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)

    answer = await ff("executions", "revoke", str(lease.execution_id), "--reason", "it hangs")

    assert (answer.code, answer.out) == (0, f"revoked from w-1: {lease.execution_id}\n")
    [again] = await claim(db, given.OTHER, ttl=30)
    assert again.lease.execution_id == lease.execution_id
    [action] = await actions(db, lease.execution_id)
    assert (action.event_type, action.actor, action.reason) == (
        "lease_revoked",
        user_at_host(),
        "it hangs",
    )


async def test_revoke_takes_only_the_lease_that_is_meant(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)
    revoke = ("executions", "revoke", str(lease.execution_id))
    another = "550e8400-e29b-41d4-a716-446655440000"

    of_other = await ff(*revoke, "--worker", "w-2")
    of_lease = await ff(*revoke, "--lease", another, "--json")
    of_this = await ff(*revoke, "--worker", "w-1", "--lease", str(lease.lease_id), "--json")
    of_none = await ff(*revoke)

    nothing = "nothing to revoke"
    assert of_other.out == f"{nothing} (different_worker_instance_id): {lease.execution_id}\n"
    assert of_lease.json["reason"] == "lease_id_mismatch"
    assert of_this.json["lease_epoch"] == lease.lease_epoch + 1
    assert of_none.out == f"{nothing} (no_active_lease): {lease.execution_id}\n"
    assert [each.code for each in (of_other, of_lease, of_this, of_none)] == [0, 0, 0, 0]


async def test_a_lease_id_that_cannot_be_is_named(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)

    line = one_line(await ff("executions", "revoke", str(lease.execution_id), "--lease", "mine"), 2)

    assert "--lease: 'mine' must be a uuid" in line
    assert await given.public_state(db, lease.execution_id) == "active"


# Block and unblock.


async def test_a_blocked_execution_is_not_claimed_until_it_is_unblocked(
    ff: Inside, db: Connection
) -> None:
    held = await given.created(db)

    blocked = await ff("executions", "block", str(held), "--reason", "look first")
    assert await claim(db, given.WORKER, ttl=30) == []
    unblocked = await ff("executions", "unblock", str(held))
    [claimed] = await claim(db, given.WORKER, ttl=30)

    assert (blocked.code, blocked.out) == (0, f"blocked {held}\n")
    assert (unblocked.code, unblocked.out) == (0, f"unblocked {held}\n")
    assert claimed.lease.execution_id == held
    assert [action.event_type for action in await actions(db, held)] == ["blocked", "unblocked"]


async def test_block_and_unblock_for_programs(ff: Inside, db: Connection) -> None:
    held = await given.created(db)

    blocked = await ff("executions", "block", str(held), "--json")
    unblocked = await ff("executions", "unblock", str(held), "--json")

    state = "blocked_by_operator"
    assert blocked.json == {"execution_id": str(held), "eligibility_state": state}
    assert unblocked.json == {"execution_id": str(held), "eligibility_state": "eligible_now"}


async def test_what_cannot_be_held_back_or_let_go_is_named(ff: Inside, db: Connection) -> None:
    for command, state, wanted in (
        ("block", "active", "waiting for a worker"),
        ("unblock", "delayed", "held back so"),
    ):
        execution_id = await execution(db, state)

        line = one_line(await ff("executions", command, str(execution_id)))

        assert line == f"ff: execution {execution_id} is {state}, not {wanted}"


async def test_what_has_ended_cannot_be_blocked(ff: Inside, db: Connection) -> None:
    completed = await execution(db, "completed")

    line = one_line(await ff("executions", "block", str(completed)))

    rule = "only a waiting execution can be blocked"
    assert line == f"ff: execution {completed} has completed; {rule}"


async def test_what_is_refused_for_a_block_says_so(ff: Inside, db: Connection) -> None:
    free, held = str(await given.created(db)), str(await given.created(db))
    await ff("executions", "block", held)

    for command, execution_id in (("unblock", free), ("block", held), ("priority", held)):
        line = one_line(await ff("executions", command, execution_id, *CONTROLS[command]))
        assert "is waiting, not waiting" not in line


# Tag.


async def test_a_tag_is_set_changed_and_found(ff: Inside, db: Connection) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "acme"})

    said = await ff("executions", "tag", str(execution_id), "shop.tenant=globex")
    told = await ff("executions", "tag", str(execution_id), "ops.note=a = b", "--json")
    found = await ff("executions", "list", "--tag", "shop.tenant=globex", "--json")

    assert (said.code, said.out) == (0, f"tagged {execution_id}\n")
    assert told.json == {"execution_id": str(execution_id), "tags": {"ops.note": "a = b"}}
    assert [one["execution_id"] for one in found.json["executions"]] == [str(execution_id)]


async def test_a_tag_that_cannot_be_is_named(ff: Inside, db: Connection) -> None:
    execution_id = await given.created(db)

    for tag, why in (
        ("acme", "TAG: 'acme' must look like area.name=value"),
        ("tenant=acme", "TAG: 'tenant' must look like area.name in lower case"),
        ("Shop.Tenant=acme", "TAG: 'Shop.Tenant' must look like area.name in lower case"),
        ("=acme", "TAG: '' must look like area.name in lower case"),
        (f"shop.tenant={'x' * 1025}", "must be at most 1024 bytes"),
    ):
        assert why in one_line(await ff("executions", "tag", str(execution_id), tag), 2)
    assert (await given.row(db, execution_id))["tags"] == "{}"


# History.


async def test_history_tells_everything_in_order(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)
    execution_id = str(lease.execution_id)
    await ff("executions", "revoke", execution_id, "--reason", "it [b]hangs[/b]")
    await ff("executions", "cancel", execution_id)

    said = await ff("executions", "history", execution_id)
    told = (await ff("executions", "history", execution_id, "--json")).json["events"]

    story = [f"{each['outbox']} {each['what']}" for each in told]
    assert story == [
        "execution submitted",
        "lease acquired",
        "lease revoked",
        "operator lease_revoked",
        "completion cancelled",
        "operator cancelled",
    ]
    assert told[1]["by"] == "w-1"
    assert told[3]["reason"] == "it [b]hangs[/b]"
    assert re.findall(r"(?:execution|lease|operator|completion) \w+", said.out) == story
    assert "it [b]hangs[/b]" in said.out


# Overrides.


async def test_complete_ends_a_running_execution_with_the_result_of_the_operator(
    ff: Inside, db: Connection
) -> None:
    lease = await given.claimed(db, payload_encoding="json")
    complete = ("executions", "complete", str(lease.execution_id), "--yes")

    answer = await ff(*complete, "--result", '{"paid": true}', "--reason", "it hangs")
    again = await ff(*complete, "--json")
    shown = await ff("executions", "show", str(lease.execution_id), "--json")

    assert (answer.code, answer.out) == (0, f"completed {lease.execution_id}\n")
    assert again.json == {"execution_id": str(lease.execution_id), "repeated": True}
    assert shown.json["result"] == {"paid": True}
    [action] = await actions(db, lease.execution_id)
    assert (action.event_type, action.actor, action.reason) == (
        "completed",
        user_at_host(),
        "it hangs",
    )


async def test_fail_and_delay_take_an_execution_from_its_worker(ff: Inside, db: Connection) -> None:
    failed, delayed = await given.claimed(db), await given.claimed(db)

    one = await ff("executions", "fail", str(failed.execution_id), "--yes", "--reason", "it hangs")
    two = await ff("executions", "delay", str(delayed.execution_id), "15m", "--yes")

    assert (one.code, one.out) == (0, f"failed {failed.execution_id}\n")
    assert (two.code, two.out) == (0, f"delayed {delayed.execution_id}\n")
    assert (await given.row(db, failed.execution_id))["failure_reason"] == "it hangs"
    assert (await given.row(db, delayed.execution_id))["public_state"] == "delayed"


async def test_an_override_without_a_terminal_needs_a_yes(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)

    answer = await ff("executions", "fail", str(lease.execution_id))

    assert answer.code == 1
    assert "--yes" in answer.err
    assert (await given.row(db, lease.execution_id))["public_state"] == "active"


async def test_what_no_worker_holds_is_not_overridden(ff: Inside, db: Connection) -> None:
    waiting = await given.created(db)

    answer = one_line(await ff("executions", "complete", str(waiting), "--yes"))

    assert f"execution {waiting} is runnable, not active" in answer


async def test_a_result_that_is_not_json_is_one_line(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)

    answer = await ff(
        "executions", "complete", str(lease.execution_id), "--yes", "--result", "{paid"
    )

    assert "--result: '{paid' is not JSON" in one_line(answer, 2)
