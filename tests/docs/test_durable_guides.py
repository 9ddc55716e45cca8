"""Every example of the guides on durable handlers runs and does what its page says."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

import flowfabric
from flowfabric import App, Client, Ctx, Handle, PublicState
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock
from flowfabric.worker.durable.diverged import unless_given
from tests.docs.conftest import Reader
from tests.docs.pages import prose, quoted, rows, sections
from tests.worker.facts import eventually

EVERYTHING = {name: getattr(flowfabric, name) for name in flowfabric.__all__}


def opened(reader: Reader, page: str, module: str) -> ModuleType:
    """The module that the page shows, imported from the reader's directory."""
    reader.opens(page)
    return importlib.import_module(module)


async def is_in(handle: Handle[Any], state: PublicState) -> None:
    """The execution gets into that state."""

    async def is_there() -> bool:
        return await handle.state() is state

    await eventually(is_there)


# Steps.

STEPS = "docs/guides/steps.md"


async def test_a_recorded_step_is_not_run_again(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    baking = opened(reader, STEPS, "baking")

    async with baking.app.worker():
        await reader.python("steps", client=client, bread=baking.bread, ran=baking.ran)
        handle = await client.submit(baking.shopping.call(["milk", "salt", "egg"]))
        assert await handle.result(timeout=10) == 11
    said = await reader.shell("steps-look", ID=str(handle.execution_id))

    assert capsys.readouterr().out == "500 g of bread\n['mix', 'bake', 'bake']\n"
    assert baking.ran[3:] == ["weigh milk", "weigh salt", "weigh egg"]
    assert said.count("weigh#2") == 2


async def test_a_step_is_tried_again_and_its_errors_keep_their_class(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fetching = opened(reader, STEPS, "fetching")

    async with fetching.app.worker():
        await reader.python("step-errors", client=client, robust=fetching.robust)
        handle = await client.submit(fetching.translate_all.call(["/a", "/b"]))
        assert await handle.result(timeout=10) == ["PAGE OF /A", "PAGE OF /B"]

    assert capsys.readouterr().out == "page of /flaky\nno page /missing\n"
    assert fetching.tries.count("/flaky") == 3


async def test_the_effect_key_goes_to_the_bank(reader: Reader, client: Client) -> None:
    paying = opened(reader, STEPS, "paying")

    async with paying.app.worker():
        handle = await client.submit(paying.pay_once.call(42))
        assert await handle.result(timeout=10) == "receipt for 42"

    assert list(paying.charged.values()) == [42]


async def test_rows_and_step_are_one_transaction(
    reader: Reader, client: Client, db: Connection
) -> None:
    saving = opened(reader, STEPS, "saving")
    await db.execute("CREATE TABLE public.bills (bill serial, customer_order text, cents integer)")

    async with saving.app.worker():
        handle = await client.submit(saving.bill.call("o-1", 42))
        assert await handle.result(timeout=10) == 1
        handle = await client.submit(saving.bill_with_psycopg.call("o-2", 43))
        assert await handle.result(timeout=10) == "saved o-2"

    assert await db.fetchval("SELECT array_agg(customer_order) FROM public.bills") == ["o-1", "o-2"]
    assert await db.fetchval("SELECT array_agg(name) FROM ff.journal") == ["save", "save"]


async def test_a_plain_handler_has_steps(reader: Reader, client: Client) -> None:
    rendering = opened(reader, STEPS, "rendering")

    async with rendering.app.worker():
        handle = await client.submit(rendering.web_page.call("Bread"))
        assert (await handle.result(timeout=10)).startswith("<h1>Bread</h1> of 20")


# Sleeping and waiting.

WAITING = "docs/guides/sleeping-and-waiting.md"


async def test_a_sleeper_is_tested_with_the_clock(
    reader: Reader, ff_dsn: str, ff_clock: Clock, ff_sweep: Callable[[], Awaitable[None]]
) -> None:
    shown = opened(reader, WAITING, "test_trial")

    await shown.test_a_reminder_is_sent_after_two_weeks(ff_dsn, ff_clock, ff_sweep)


async def test_signals_decide_or_nobody_does(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    refunds = opened(reader, WAITING, "refunds")

    async with refunds.app.worker():
        await reader.python("signals", client=client, **vars(refunds))
        await reader.python("select", client=client, cart=refunds.cart)
        by_shell = await client.submit(refunds.refund.call("o-10", 7.0))
        assert "decision" in await reader.shell("signals-send", ID=str(by_shell.execution_id))
        assert await by_shell.result(timeout=10) == "cleo granted o-10"
        late = await client.submit(refunds.cart.call(0.0))
        assert await late.result(timeout=10) == "forgotten"
        emptied = await client.submit(refunds.cart.call(30.0))
        await is_in(emptied, PublicState.SUSPENDED)
        assert (await emptied.signal("emptied")).resumed
        assert await emptied.result(timeout=10) == "emptied"

    assert capsys.readouterr().out.splitlines() == [
        "ann granted o-7",
        "bob refused o-8",
        "nobody decided on o-9",
        "paid 4200",
    ]


# Approvals.

APPROVALS = "docs/guides/approvals.md"


async def test_one_who_has_the_token_approves(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    releasing = opened(reader, APPROVALS, "releasing")
    await reader.shell("seed-key")

    async with releasing.app.worker():
        handle = await client.submit(releasing.release_one.call("1.2"))
        await is_in(handle, PublicState.SUSPENDED)
        await reader.python("signal-waitpoint", client=client, mails=releasing.mails)

    assert capsys.readouterr().out == "True\n1.2 is approved by ann\n"


async def test_operators_approve_or_one_rejects(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    releasing = opened(reader, APPROVALS, "releasing")
    await reader.shell("seed-key")

    async with releasing.app.worker():
        handle = await client.submit(releasing.release_two.call("1.3"))
        await is_in(handle, PublicState.SUSPENDED)
        await reader.python("operators-approve", client=client)
        handle = await client.submit(releasing.release_two.call("1.4"))
        await is_in(handle, PublicState.SUSPENDED)
        await reader.shell("operators-deny", ID=str(handle.execution_id))
        assert await handle.result(timeout=10) == "1.4 is rejected"

    assert capsys.readouterr().out == "1.3 is approved by ann, bob\n"


@pytest.mark.parametrize(
    ("on_timeout", "state"),
    [
        ("fail", PublicState.FAILED),
        ("cancel", PublicState.CANCELLED),
        ("expire", PublicState.EXPIRED),
        ("escalate", PublicState.SUSPENDED),
    ],
)
async def test_a_timeout_does_what_is_written(
    reader: Reader,
    client: Client,
    ff_clock: Clock,
    ff_sweep: Callable[[], Awaitable[None]],
    on_timeout: str,
    state: PublicState,
) -> None:
    reader.opens(APPROVALS)
    await reader.shell("seed-key")
    app = App()

    @app.task("waits")
    async def waits(ctx: Ctx) -> None:
        door = await ctx.waitpoint("door", expires=60)
        await ctx.wait(door.any(), timeout=60, on_timeout=on_timeout)  # type: ignore[arg-type]  each word of the table

    handle = await client.submit(waits.call())
    await app.worker().run_until_idle()
    assert await handle.state() is PublicState.SUSPENDED
    await ff_clock.advance(90)
    await ff_sweep()

    assert await handle.state() is state
    listed = [quoted(cells[0])[0] for cells in rows(sections(APPROVALS, 2)[TIMEOUTS])]
    assert f'"{on_timeout}"' in listed


TIMEOUTS = "When the answer does not come"


# Sagas.

SAGAS = "docs/guides/sagas.md"


async def test_what_was_done_is_undone_the_last_first(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    travel = opened(reader, SAGAS, "travel")

    async with travel.app.worker():
        names = await reader.python("saga", client=client, **EVERYTHING, travel=travel.travel)
        undoing = await eventually(names["handle"].compensation)
        await undoing.result(timeout=10)

    assert "no car left" in capsys.readouterr().out
    done = ["book flight", "book hotel", "cancel car", "cancel hotel", "cancel flight"]
    assert travel.log == done
    assert " ".join(done) in " ".join(quoted(prose(SAGAS)))


async def test_what_is_disarmed_is_not_undone(
    reader: Reader, client: Client, ff_sweep: Callable[[], Awaitable[None]]
) -> None:
    shipping = opened(reader, SAGAS, "shipping")

    handle = await client.submit(shipping.ship_item.call("book"))
    await shipping.app.worker().run_until_idle()
    await ff_sweep()
    await shipping.app.worker().run_until_idle()

    assert await handle.state() is PublicState.FAILED
    assert await handle.compensation() is None
    assert shipping.shipped == ["ship book"]


# Changing code that runs.

CHANGING = "docs/guides/changing-code-that-runs.md"


async def test_a_renamed_step_stops_the_execution_until_it_is_resumed(
    reader: Reader, client: Client
) -> None:
    quotes = opened(reader, CHANGING, "quotes")
    renamed = importlib.import_module("quotes_renamed")
    handle = await client.submit(quotes.quote.call("lamp"))
    await quotes.app.worker().run_until_idle()
    await handle.signal("accepted")

    with unless_given("suspend"):  # as outside of tests
        await renamed.app.worker().run_until_idle()
    assert await handle.state() is PublicState.SUSPENDED
    said = str(await handle.explain())
    await reader.shell("resume-divergent")
    await quotes.app.worker().run_until_idle()

    assert await handle.result(timeout=5) == "lamp for 4"
    for sequence in ("recorded: compute#0, accepted#0", "asked: compute price#0"):
        assert sequence in said
        assert sequence in " ".join(quoted(" ".join(prose(CHANGING).split())))


async def test_older_executions_keep_the_old_way(reader: Reader, client: Client) -> None:
    quotes = opened(reader, CHANGING, "quotes")
    patched = importlib.import_module("quotes_patched")
    old = await client.submit(quotes.quote.call("lamp"))
    await quotes.app.worker().run_until_idle()
    new = await client.submit(quotes.quote.call("desk"))

    await patched.app.worker().run_until_idle()
    said = await reader.shell("patch-missing")
    for handle in (old, new):
        await handle.signal("accepted")
    await patched.app.worker().run_until_idle()

    assert await old.result(timeout=5) == "lamp for 4 (version 0)"
    assert await new.result(timeout=5) == "desk for 4 (version 2)"
    assert str(old.execution_id) in said
    assert str(new.execution_id) not in said
    recorded = [step.name for step in (await new.steps()).steps]
    assert "check stock" in recorded
    assert "check stock" not in [step.name for step in (await old.steps()).steps]


async def test_an_execution_is_replayed_from_a_step(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    quotes = opened(reader, CHANGING, "quotes")

    async with quotes.app.worker():
        handle = await client.submit(quotes.quote.call("lamp"))
        await handle.signal("accepted")
        await handle.result(timeout=10)
        await reader.python("replay-from-step", handle=handle)

    assert capsys.readouterr().out == "lamp for 4\n"


async def test_an_endless_handler_restarts_and_loses_no_signal(
    reader: Reader, client: Client
) -> None:
    meters = opened(reader, CHANGING, "meters")

    async with meters.app.worker():
        handle = await client.submit(meters.meter.call(0))
        for reading in (4, 7, 5, -1):
            await handle.signal("reading", reading)
        assert await handle.result(timeout=10) == 16

    assert len(await handle.attempts()) > 1
