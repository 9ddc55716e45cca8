"""Approvals: cards that say what is asked, answers that count once, and links without a login."""

from __future__ import annotations

import re

import httpx
import msgspec

from flowfabric import Engine
from flowfabric.dashboard import mounting
from flowfabric.server.app import Application, app
from flowfabric.server.settings import Settings
from flowfabric.states import PublicState, Role
from flowfabric.tokens import WaitpointToken
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import TOKEN, Person, browser, send
from tests.worker.facts import eventually

NONCE = re.compile(r'name="nonce" value="([^"]+)"')


def path_of(busy: Busy, act: str) -> str:
    x = busy.approval
    return f"/approvals/{x.partition_key}.{x.uuid}/{busy.waitpoint}/{act}"


async def test_two_people_answer_and_a_double_click_counts_once(
    served: Application, busy: Busy, ff_engine: Engine, person: Person
) -> None:
    ann, bob = await person(Role.OPERATOR, label="ann"), await person(Role.OPERATOR, label="bob")
    page = (await ann.get("/approvals")).text
    assert "Ship 2.0?" in page
    assert '<span class="count" data-waiting>1</span>' in page
    region = await ann.get("/lanes?_region=lanes")
    assert region.headers["x-ff-inbox"] == "1"
    assert f'href="/ui{path_of(busy, "answer")}?signal=approved"' in page
    assert "Copy link" not in page  # nobody answers without a login here
    assert (await ann.get(path_of(busy, "link"))).status_code == 409
    assert "Ship 2.0?" not in (await ann.get("/approvals?q=nothing")).text
    for found in ("q=ship+2", "q=approval", "kind=ship_release", "q=SHIP&kind=ship_release"):
        assert 'class="card approval"' in (await ann.get(f"/approvals?{found}")).text, found
    assert 'class="card approval"' not in (await ann.get("/approvals?q=ship&kind=build")).text
    assert 'class="card approval"' not in (await ann.get("/approvals?cursor=20")).text

    dialog = (await ann.get(path_of(busy, "answer"))).text
    nonce, token = NONCE.findall(dialog)[0], TOKEN.findall(dialog)[0]
    given = {"signal": "approved", "nonce": nonce, "reason": "tested", "_csrf": token}
    for _ in range(2):
        answer = await ann.post(path_of(busy, "answer"), data=given)
        assert answer.status_code == 303, answer.text
    [waitpoint] = (await ff_engine.list_open_waitpoints(namespace="default")).waitpoints
    assert waitpoint.signal_count == 1
    page = (await ann.get("/approvals")).text
    assert "<b>ann</b> approved" in page
    own = (await ann.get(busy.path("approval"))).text
    assert "<b>ann</b> approved" in own
    assert "from different sources" in own.partition('id="waits"')[2], "the condition in words"
    assert "You have answered approved already" in (await ann.get(path_of(busy, "answer"))).text
    await send(ann, path_of(busy, "answer"), {"signal": "odd", "reason": "hmm"}, 422)

    assert 'name="answer.percent" value="100"' in dialog
    assert 'name="answer.region"' in dialog
    yes = {"signal": "approved", "reason": "me too"}
    for field, wrong in (("percent", "101"), ("percent", "1.5"), ("region", '"mars"')):
        text = await send(bob, path_of(busy, "answer"), {**yes, f"answer.{field}": wrong}, 422)
        assert f"{field.capitalize()} must be" in text
    form = {"answer.percent": "50", "answer.region": '"eu"', "answer.notify": "yes"}
    await send(bob, path_of(busy, "answer"), {**yes, **form})
    stored = (await ff_engine.read_waitpoints(busy.approval, [busy.waitpoint]))[busy.waitpoint]
    assert msgspec.json.decode(stored.signals[-1].payload or b"") == {
        "comment": "me too", "percent": 50, "region": "eu", "notify": True,
    }  # fmt: skip

    async def shipped() -> bool:
        return await ff_engine.read_execution_state(busy.approval) is PublicState.COMPLETED

    await eventually(shipped)
    decided = await ann.get(path_of(busy, "answer"))
    assert (decided.status_code, "bob answered approved" in decided.text) == (404, True)
    answered = (await ann.get("/approvals?state=answered")).text
    assert busy.path("approval") in answered
    assert "<b>bob</b> approved: <span" in answered
    assert "me too" in answered
    assert busy.path("approval") not in (await ann.get("/approvals?state=expired")).text
    story = (await ann.get(busy.path("approval"))).text
    assert "resume condition satisfied" in story
    reader = await person(Role.READER)
    assert "/answer" not in (await reader.get("/approvals")).text


async def test_whoever_has_the_link_answers_without_a_login(busy: Busy, ff_engine: Engine) -> None:
    settings = Settings(listen="127.0.0.1:9090", api_tokens=(), callbacks=True)
    application = app(ff_engine, settings, mounting=mounting)
    async with browser(application) as admin:
        shown = await send(admin, path_of(busy, "link"), {"reason": "mail it"}, 200)
        [link] = re.findall(r'data-copy="(http://localhost/ui/answer/[^"]+)"', shown)
    await ff_engine.create_token("somebody", role=Role.ADMIN)  # from now on others must log in
    path, _, secret = link.removeprefix("http://localhost/ui").partition("#")

    async with browser(application) as mail:
        page = await mail.get(path)
        assert page.status_code == 200
        assert "Ship" not in page.text  # a GET tells and changes nothing

        async def post(path: str = path, **body: str) -> httpx.Response:
            return await mail.post(path, json={"token": secret, **body})

        asked = (await post()).json()
        assert asked["question"].startswith("Ship 2.0?")
        assert (asked["open"], asked["signals"]) == (True, ["approved"])
        assert [each["label"] for each in asked["fields"]] == ["Percent", "Region", "Notify"]
        typed = {"token": secret, "signal": "approved", "fields": {"answer.percent": "0"}}
        wrong = await mail.post(path, json=typed)
        assert (wrong.status_code, wrong.json()) == (422, {"wrong": "Percent must be 1 to 100."})
        forged = await mail.post(path, json={"token": f"{secret[:-2]}00"})
        unknown = await post(path.replace(str(busy.waitpoint), str(busy.flow)))
        for refused in (forged, unknown, await mail.post(path, content=b"{")):
            assert (refused.status_code, refused.json()) == (
                403, {"told": "This link is not valid."},
            )  # fmt: skip
        foreign = await mail.post(
            path, json={"token": secret}, headers={"sec-fetch-site": "cross-site"}
        )
        assert foreign.status_code == 403

        assert (await post(signal="odd")).status_code == 422
        for name in ("ann", "bob", "cid"):  # one link is one source
            told = await post(signal="approved", name=name, comment="fine", nonce=name)
            assert told.json() == {"told": "Your answer is delivered."}
        assert {each["by"] for each in (await post()).json()["answers"]} == {
            f"link:{WaitpointToken(secret).fingerprint}"
        }
        await ff_engine.cancel_execution(busy.approval, reason="no", actor="ann")
        assert (await post()).json()["open"] is False
        late = await post(signal="approved", nonce="late")
        assert (late.status_code, "decided already" in late.text) == (409, True)
    await application.close()
