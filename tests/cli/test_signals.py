"""`ff signals` and `ff waitpoints`: what waits for people, and how they answer."""

from __future__ import annotations

from flowfabric.conditions import AnyCondition, CountOf
from flowfabric.db.rows import Connection
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendRequest, UsePending
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.ids import ExecutionId
from tests import given
from tests.cli.conftest import Inside, one_line, usage_error
from tests.engine.controls import actions
from tests.engine.executions.suspended import waiting_for_signal, waitpoint


async def inbox(db: Connection) -> list[tuple[str, bytes | None, str | None]]:
    rows = await db.fetch("SELECT * FROM ff.signal_inbox ORDER BY signal_seq")
    return [(row["signal_name"], row["payload"], row["encoding"]) for row in rows]


async def deploys(db: Connection, votes: int = 2) -> tuple[ExecutionId, Waitpoint]:
    """A handler that waits for so many people to approve."""
    lease, point = await waitpoint(db, "approve-deploy#0")
    request = SuspendRequest(
        lease=lease,
        bindings=(UsePending(waitpoint_id=point.waitpoint_id),),
        condition=AnyCondition((CountOf(votes, (point.waitpoint_key,), "sources", "approve"),)),
        keeps_waitpoints=True,
        detail="waits for signals on 'approve-deploy'",
    )
    async with db.transaction():
        await suspend(db, [request])
    return lease.execution_id, point


# Signals.


async def test_a_signal_lets_the_execution_go_on(ff: Inside, db: Connection) -> None:
    waiting = await waiting_for_signal(db)
    other = await given.created(db)

    goes_on = await ff("signals", "send", str(waiting), "approved", '{"by": "ann"}')
    kept = await ff("signals", "send", str(other), "note", "--text", "{hello")
    again = await ff("signals", "send", str(other), "note", "--key", "k", "--json")
    duplicate = await ff("signals", "send", str(other), "note", "--key", "k")

    assert goes_on.out == f"sent approved to {waiting}, which goes on\n"
    assert kept.out == f"sent note to {other}, which gets it when it waits for it\n"
    assert (again.json["resumed"], again.json["effect"]) == (False, "buffered_in_inbox")
    assert duplicate.out == f"k has sent a signal before, nothing was sent: {other}\n"
    assert [each.code for each in (goes_on, kept, again, duplicate)] == [0] * 4
    assert await inbox(db) == [
        ("approved", b'{"by":"ann"}', "json"),
        ("note", b'"{hello"', "json"),
        ("note", None, None),
    ]


async def test_a_name_that_nothing_waits_for_is_pointed_out(ff: Inside, db: Connection) -> None:
    waiting = await waiting_for_signal(db)

    answer = await ff("signals", "send", str(waiting), "aproved")

    assert answer.code == 0
    assert answer.err == "ff: warning: the execution waits for 'approved', not for 'aproved'\n"


async def test_what_cannot_be_sent_is_one_line(ff: Inside, db: Connection) -> None:
    ended = await given.created(db)
    await ff("executions", "cancel", str(ended))

    malformed = one_line(await ff("signals", "send", str(ended), "x", "{by"), 2)
    both = one_line(await ff("signals", "send", str(ended), "x", "1", "--text", "2"), 2)
    unnamed = one_line(await ff("signals", "send", str(await given.created(db)), ""), 2)
    late = one_line(await ff("signals", "send", str(ended), "x"))
    missing = one_line(await ff("signals", "send", str(ExecutionId.mint()), "x"))

    assert "PAYLOAD: '{by' is not JSON" in malformed
    assert "--text: '2' cannot be given together with PAYLOAD" in both
    assert unnamed.startswith("ff: NAME: ")
    assert late.endswith("is cancelled and takes no signals")
    assert missing.endswith("does not exist")
    assert "Missing argument 'ID'" in usage_error(await ff("signals", "send"))
    assert await inbox(db) == []


async def test_signals_are_listed_newest_first(ff: Inside, db: Connection) -> None:
    waiting = await waiting_for_signal(db)
    for name in ("early", "approved"):
        await ff("signals", "send", str(waiting), name)

    heading, *lines = (await ff("signals", "list")).out.splitlines()
    first = (await ff("signals", "list", "--limit", "1", "--json")).json

    assert heading.split()[:3] == ["signal_name", "execution_id", "effect"]
    assert [line.split()[:3:2] for line in lines] == [
        ["approved", "resumed"],
        ["early", "buffered"],
    ]
    assert first["signals"][0]["effect"] == "resume_condition_satisfied"
    assert first["next_cursor"]
    assert (await ff("signals", "list", "--namespace", "other")).out == "No signals.\n"


# Waitpoints.


async def test_waitpoints_are_listed_without_their_tokens(ff: Inside, db: Connection) -> None:
    execution_id, point = await deploys(db)

    shown = await ff("waitpoints", "list")
    told = await ff("waitpoints", "list", "--lane", "default", "--json")

    [row] = told.json["waitpoints"]
    assert str(execution_id.uuid) in shown.out
    assert "approve-deploy#0" in shown.out
    assert (row["waitpoint_id"], row["state"]) == (str(point.waitpoint_id), "active")
    assert row["required_signal_names"] == ["approve"]
    secret = point.token.reveal()
    assert secret.partition(":")[2] not in shown.out + told.out
    assert (await ff("waitpoints", "list", "--lane", "x")).out == "No open waitpoints.\n"


async def test_a_token_is_printed_on_purpose(ff: Inside, db: Connection) -> None:
    execution_id, point = await deploys(db)
    secret = point.token.reveal()

    by_key = await ff("waitpoints", "token", str(execution_id), "approve-deploy")
    by_id = await ff("waitpoints", "token", str(execution_id), str(point.waitpoint_id), "--json")
    unknown = one_line(await ff("waitpoints", "token", str(execution_id), "x"))
    elsewhere = one_line(await ff("waitpoints", "token", str(ExecutionId.mint()), "x"))

    assert (by_key.out, by_key.err) == (f"{secret}\n", "")
    assert by_id.json == {"waitpoint_id": str(point.waitpoint_id), "token": secret}
    assert unknown == "ff: waitpoint x does not exist"
    assert elsewhere.startswith("ff: execution ")


async def test_two_people_approve(ff: Inside, db: Connection) -> None:
    execution_id, _ = await deploys(db)
    target = (str(execution_id), "approve-deploy")

    answers = [
        await ff("waitpoints", "approve", *target, "--as", by) for by in ("ann", "ann", "bob")
    ]

    of = f"approve-deploy#0 of {execution_id}"
    assert [each.out for each in answers] == [
        f"approve by ann: {of}, which waits for more\n",
        f"approve by ann: {of}, as before; nothing changed\n",
        f"approve by bob: {of}, which goes on\n",
    ]
    assert await given.public_state(db, execution_id) == "resumable"


async def test_a_decision_that_does_not_count_is_pointed_out(ff: Inside, db: Connection) -> None:
    execution_id, _ = await deploys(db, votes=1)
    target = (str(execution_id), "approve-deploy")

    denied = await ff("waitpoints", "deny", *target)
    named = await ff("waitpoints", "deny", *target, "--signal", "approve", "--json")

    assert denied.out.startswith("rejected by ")
    assert denied.out.endswith("which does not wait for it\n")
    assert "waits for 'approve', not for 'rejected': give --signal" in denied.err
    assert (named.json["signal_name"], named.json["resumed"]) == ("approve", True)


async def test_a_waitpoint_is_closed_and_the_handler_that_waits_for_it_goes_on(
    ff: Inside, db: Connection
) -> None:
    execution_id, point = await deploys(db)
    lease, unused = await waitpoint(db)
    target = (str(execution_id), "approve-deploy")

    closed = await ff("waitpoints", "close", *target, "--as", "ann", "--reason", "nobody answers")
    gone = one_line(await ff("waitpoints", "close", *target))
    other = await ff("waitpoints", "close", str(lease.execution_id), "approve", "--json")

    of = f"approve-deploy#0 of {execution_id}"
    assert closed.out == f"closed by ann: {of}, which goes on\n"
    assert await given.public_state(db, execution_id) == "resumable"
    [action] = await actions(db, execution_id)
    assert (action.event_type, action.actor, action.reason, action.details["waitpoint_id"]) == (
        "waitpoint_closed",
        "ann",
        "nobody answers",
        str(point.waitpoint_id),
    )
    assert gone == "ff: waitpoint approve-deploy does not exist"
    assert other.json == {
        "execution_id": str(lease.execution_id),
        "waitpoint_id": str(unused.waitpoint_id),
        "close_reason": "proactive_close",
        "repeated": False,
        "resumed": False,
    }


async def test_a_waitpoint_that_nothing_waits_for_yet_keeps_the_decision(
    ff: Inside, db: Connection
) -> None:
    lease, point = await waitpoint(db)

    kept = await ff("waitpoints", "approve", str(lease.execution_id), str(point.waitpoint_id))
    unnamed = one_line(
        await ff("waitpoints", "approve", str(lease.execution_id), "approve", "--as", ""), 2
    )

    assert kept.out.startswith("approved by ")
    assert kept.out.endswith("which gets it when it waits for it\n")
    assert "--as" in unnamed
