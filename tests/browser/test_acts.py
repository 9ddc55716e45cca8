"""What a person does with mouse and keys: acts, selection, search, preferences."""

from __future__ import annotations

from playwright.async_api import Browser, Page, expect

from flowfabric import Engine
from flowfabric.states import PublicState, Role
from tests import given
from tests.browser.conftest import Heard, Served, context_of, listening

PRESS = """(keys) => { for (const key of keys)
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); }"""


async def test_an_execution_is_cancelled_in_a_dialog_without_leaving_the_page(
    page: Page, served: Served, heard: Heard
) -> None:
    await page.goto(served.url + served.busy.path("waiting"))
    await page.get_by_role("link", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("textbox", name="Reason")).to_be_focused()

    await dialog.get_by_role("textbox", name="Reason").fill("x  ")
    await dialog.get_by_role("button", name="Cancel execution").click()
    await expect(dialog).to_contain_text("must have 3 to 1,000 characters")
    await page.keyboard.press("Escape")
    await expect(dialog).not_to_be_visible()

    await page.get_by_role("link", name="Cancel", exact=True).click()
    await dialog.get_by_role("textbox", name="Reason").fill("nobody serves it")
    await dialog.get_by_role("button", name="Cancel execution").click()
    await expect(page.get_by_role("status")).to_contain_text("The execution was cancelled")
    await expect(page.locator("h1 ~ .badge, .top .badge").first).to_have_attribute(
        "data-state", "cancelled"
    )
    await expect(page.locator(".story")).to_contain_text("nobody serves it")
    state = await served.engine.read_execution_state(served.busy.waiting)
    assert state is PublicState.CANCELLED

    # Another view of it is too old: the dialog says so and keeps what was typed.
    await page.goto(served.url + served.busy.path("delayed") + "/cancel")
    await served.engine.cancel_execution(served.busy.delayed, reason="faster", actor="bob")
    await page.get_by_role("textbox", name="Reason").fill("too late")
    await page.get_by_role("button", name="Cancel execution").click()
    await expect(page.get_by_role("alert")).to_contain_text("It changed while you looked")
    await expect(page.get_by_role("textbox", name="Reason")).to_have_value("too late")
    heard.complaints[:] = [
        each for each in heard.complaints if "412" not in each and "422" not in each
    ]


async def test_rows_are_moved_through_and_selected_by_keys_and_changed_together(
    page: Page, served: Served
) -> None:
    await page.goto(served.url + "/executions?kind=build")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    bar = page.locator("[data-picked]")
    await expect(bar).to_contain_text("2 selected")
    await bar.get_by_role("link", name="Tag").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Tag 2 executions?")
    await dialog.get_by_label("Key").fill("shop.tier")
    await dialog.get_by_label("Value").fill("gold")
    await dialog.get_by_role("button", name="Set tags").click()
    await expect(page.get_by_role("status")).to_contain_text("2 of 2 executions changed")
    await expect(bar).to_be_hidden()
    await expect(page.locator("tr .tag", has_text="shop.tier=gold")).to_have_count(2)

    await page.keyboard.press("/")
    await page.keyboard.type("order-1")
    await page.keyboard.press("Enter")
    await listening(page, "charge_card")
    await page.evaluate(PRESS, ["g", "l"])  # at once: the second key has a second to come
    await listening(page, "Lanes")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("next and previous row")


async def test_all_that_matches_is_selected_and_changed_and_the_filter_is_saved(
    page: Page, served: Served
) -> None:
    await served.engine.create_execution(
        [given.new(execution_kind="many", lane_id="idle lane") for _ in range(30)]
    )
    await page.goto(served.url + "/executions?kind=many&limit=25")
    await page.get_by_role("checkbox", name="Select all rows").check()
    bar = page.locator("[data-picked]")
    await expect(bar.locator(".count")).to_have_text("25 selected")
    await bar.get_by_role("button", name="Select all 30 matching").click()
    await expect(bar.locator(".count")).to_have_text("all 30 matching")
    await bar.get_by_role("link", name="Priority").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("30 executions?")
    await dialog.get_by_label("Priority").fill("7")
    await dialog.get_by_role("textbox", name="Reason").fill("the boss asks")
    await dialog.locator("button.primary, button.danger").click()
    await expect(page.locator("#bulk")).to_contain_text("30 of 30 done")

    await page.goto(served.url + "/executions?kind=many&limit=25")
    await page.get_by_role("link", name="Save this filter").click()
    await dialog.locator("[name=name]").fill("many of them")
    await dialog.get_by_role("button", name="Save filter").click()
    await expect(page.get_by_role("status")).to_contain_text("saved as many of them")
    await expect(page.locator(".chip.saved")).to_contain_text("many of them")


async def test_a_link_is_made_and_answers_without_a_login_and_a_form_shows_what_it_would_do(
    page: Page, served: Served
) -> None:
    await page.goto(served.url + "/approvals")
    await page.get_by_role("link", name="Copy link").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Reason").fill("mail it to bob")
    await dialog.get_by_role("button", name="Make link").click()
    link = await dialog.locator("[data-secret] span").inner_text()
    await page.goto(link)
    await expect(page.locator("h1")).to_contain_text("Ship 2.0?")
    await page.get_by_label("Your name").fill("bob")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("status")).to_have_text("Your answer is delivered.")
    assert await page.locator("img, script:not([src])").count() == 0

    await page.goto(served.url + "/schedules")
    await page.get_by_role("link", name="New schedule").click()
    await expect(dialog.locator("[data-preview]")).to_contain_text("At 02:00 every day")
    await dialog.locator("[name=cron]").fill("*/15 * * * *")
    await expect(dialog.locator("[data-preview]")).to_contain_text("Every 15th minute")
    await dialog.locator("[name=name]").fill("quarterly")
    await dialog.locator("[name=kind]").fill("build")
    await dialog.get_by_role("button", name="Make schedule").click()
    await expect(page.locator("main h1")).to_have_text("quarterly")

    await page.goto(served.url + "/events")
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    await page.get_by_role("button", name="Hold").click()
    await served.engine.cancel_execution(served.busy.delayed, actor="ann", reason="later")
    await expect(page.get_by_role("button", name="1 new, show")).to_be_visible()
    await page.get_by_role("button", name="Hold").click()
    await expect(page.locator("#events tbody tr").first).to_contain_text("later")


async def test_preferences_hold_from_page_to_page(page: Page, served: Served) -> None:
    await page.goto(served.url + "/settings")
    await page.get_by_label("Theme", exact=True).select_option("dark")
    await page.get_by_label("Times in").select_option("utc")
    await page.goto(served.url + served.busy.path("completed"))
    html = page.locator("html")
    await expect(html).to_have_attribute("data-theme", "dark")
    await expect(page.locator("dd time[data-form=full]").first).to_contain_text("UTC")
    background = await page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(15, 17, 21)"
    await page.get_by_role("button", name="Change the theme").click()
    await expect(html).to_have_attribute("data-theme", "light")


async def test_a_person_logs_in_and_out_and_all_of_it_works_without_script(
    chromium: Browser, served: Served, heard: Heard
) -> None:
    token = (await served.engine.create_token("ann", role=Role.OPERATOR)).token
    served.application.services.authenticator._open = None  # its ten seconds are over
    context = await context_of(chromium, heard, java_script_enabled=False)
    page = await context.new_page()
    await page.goto(served.url + "/lanes/orders")
    await page.get_by_label("API token").fill(token)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.locator("h1")).to_have_text("orders")
    await page.get_by_role("link", name="Pause").click()
    await page.get_by_role("textbox", name="Reason").fill("stocktaking")
    await page.get_by_role("button", name="Pause lane").click()
    await expect(page.get_by_role("status")).to_contain_text("The lane orders is paused")
    await expect(page.locator("main")).to_contain_text("Set by ann")
    await page.get_by_role("link", name="Settings of ann").click()
    await page.get_by_label("Theme", exact=True).select_option("dark")
    await page.get_by_role("button", name="Keep preferences").click()
    await expect(page.get_by_role("status")).to_contain_text("Your preferences are kept")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.get_by_role("link", name="Log out").click()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.locator("h1")).to_have_text("Log in")
    await context.close()
    assert heard.complaints == []


async def test_on_a_phone_the_filter_is_a_sheet_that_a_button_opens(
    bare_page: Page, address: str, ff_engine: Engine
) -> None:
    await ff_engine.create_execution([given.new(execution_kind="a")])
    page = bare_page
    await page.goto(f"{address}/executions")
    await expect(page.get_by_role("button", name="Filters")).not_to_be_visible()
    await expect(page.get_by_label("Reason contains")).to_be_visible()

    await page.set_viewport_size({"width": 360, "height": 740})
    await expect(page.get_by_label("Reason contains")).not_to_be_visible()
    await page.get_by_role("button", name="Filters").click()
    await page.get_by_label("Kind").fill("b")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
