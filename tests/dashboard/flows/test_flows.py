"""The pages of flows: what they show, what they change, and what they keep to themselves."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from itertools import pairwise
from uuid import UUID, uuid4
from xml.etree import ElementTree

import html5lib
import httpx
import pytest

from bench.flow_graphs import Hand, busy_flow, submit
from flowfabric import Engine
from flowfabric.dashboard.flows.watching import difference
from flowfabric.engine.flows.read_flow_states import FlowStates
from flowfabric.server.app import Application
from flowfabric.states import PublicState, Role
from tests.dashboard.conftest import Person, browser
from tests.dashboard.graph.graphs import HOSTILE
from tests.worker.facts import eventually


@pytest.fixture
async def pages(served: Application) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser without script at the dashboard; without tokens, everybody is an admin."""
    async with browser(served) as opened:
        yield opened


def said(page: httpx.Response) -> str:
    """The texts of a page, one after the other."""
    assert page.status_code == 200, page.text[:400]
    tree = html5lib.parse(page.text, namespaceHTMLElements=False)
    return " ".join(" ".join(tree.itertext()).split())


async def act(pages: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Ask, then do, as a form does."""
    dialog = await pages.get(path)
    assert dialog.status_code == 200, dialog.text[:400]
    found = {
        name: re.search(rf'name="{name}" value="([^"]*)"', dialog.text)
        for name in ("_csrf", "seen")
    }
    hidden = {name: match[1] for name, match in found.items() if match}
    return await pages.post(path, data={**hidden, **fields})


async def test_the_list_shows_flows_with_the_states_of_their_members(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    assert "There is no flow yet." in said(await pages.get("/flows"))
    flow_id = await busy_flow(ff_engine, images=10)
    await ff_engine.project_flow_summary(flow_id)

    page = await pages.get("/flows")

    assert f'data-id="{flow_id}"' in page.text
    assert "order" in said(page)
    assert re.search(r'aria-label="\d+ completed, [^"]*1 failed"', page.text)
    assert "No flow matches." in said(await pages.get("/flows?status=completed"))
    assert str(flow_id) in (await pages.get("/flows?status=active&kind=order&since=1h")).text
    assert (await pages.get("/flows?tag=nonsense")).status_code == 422
    assert (await pages.get("/flows?cursor=nonsense")).status_code == 422


async def test_a_flow_is_said_in_a_sentence_drawn_and_listed(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id = await busy_flow(ff_engine, images=10)

    page = await pages.get(f"/flows/{flow_id}")
    text = said(page)

    assert "1 failed" in text
    assert "next: ship." in text
    assert (page.text.count("data-n="), page.text.count("data-of=")) == (11, 1)
    assert "resize_image" in text
    assert "1 of 3" in text
    assert text.count("not needed") >= 2
    members = said(await pages.get(f"/flows/{flow_id}?view=members&state=failed"))
    assert "audit" in members
    assert "the ledger refused row 8812" in members
    assert "resize-3" not in members
    assert "As table" in said(await pages.get(f"/flows/{flow_id}?view=timeline"))


async def test_a_member_shows_how_far_it_is_and_what_it_comes_after(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    edges = [("build", "deploy"), ("test", "deploy"), ("lint", "deploy"), ("deploy", "tell")]
    flow_id, ids = await submit(ff_engine, "release", edges, lane="l")
    hand = Hand(ff_engine, "l")
    await hand.hold([ids["build"], ids["test"]])
    await ff_engine.progress(hand.held[ids["build"]].lease, percent=50)

    page = await pages.get(f"/flows/{flow_id}")
    again = await pages.get(f"/flows/{flow_id}")
    table = said(await pages.get(f"/flows/{flow_id}?view=members"))

    assert page.text.count('class="done"') == 1
    assert re.search(r'<rect class="done" x="\d+" y="\d+" width="94"', page.text)
    assert again.text.count('class="done"') == 1
    assert "build, lint and 1 more" in table
    await hand.complete([ids["build"]])
    await eventually(lambda: _ended(pages, flow_id))


async def _ended(pages: httpx.AsyncClient, flow_id: UUID) -> bool:
    """Is the picture of a flow drawn anew once a member has ended?"""
    text = (await pages.get(f"/flows/{flow_id}")).text
    return 'class="done"' not in text and 'data-state="completed"' in text


async def test_parameters_open_stacks_turn_the_graph_and_mark_the_longest_chain(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id = await busy_flow(ff_engine, images=10)
    page = await pages.get(f"/flows/{flow_id}")
    [stack] = re.findall(r'data-has="[^"]*" data-id="([^"]+)"', page.text)

    opened = await pages.get(f"/flows/{flow_id}?open={stack}&dir=tb&path=critical&q=resize")

    assert opened.text.count("data-n=") == page.text.count("data-n=") + 10
    assert "Close the stack resize_image" in opened.text
    assert 'class="graph tb"' in opened.text
    assert "The longest chain takes" in said(opened)
    chosen = f"/flows/{flow_id}?path=critical&member={stack}"
    for panel in (chosen, f"{chosen}&_region=panel"):  # a script asks for the panel alone
        assert "<dt>Slack</dt>" in (await pages.get(panel)).text
    assert "10 match" in said(opened)
    whole = await pages.get(f"/flows/{flow_id}?group=none")
    assert whole.text.count("data-n=") == opened.text.count("data-n=")


async def test_a_region_is_answered_alone_and_says_when_nothing_changed(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id, ids = await submit(ff_engine, "short", [("a", "b")], lane="l")
    for region in ("head", "graph", "panel"):
        answer = await pages.get(f"/flows/{flow_id}?_region={region}")
        assert answer.text.strip().startswith(f'<section id="{region}"')
        again = {"if-none-match": answer.headers["etag"]}
        unchanged = await pages.get(f"/flows/{flow_id}?_region={region}", headers=again)
        assert unchanged.status_code == 304
    one = ids["a"]
    panel = await pages.get(f"/flows/{flow_id}?_region=panel&member={one.partition_key}.{one.uuid}")
    assert "Open execution" in panel.text
    assert ">b</a>" in panel.text


async def test_a_flow_is_cancelled_with_a_reason(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id, _ = await submit(ff_engine, "short", [("a", "b")], lane="l")
    path = f"/flows/{flow_id}/cancel"

    refused = await act(pages, path, policy="cancel_all", reason="no")
    done = await act(pages, path, policy="cancel_all", reason="not wanted any more")

    assert refused.status_code == 422
    assert done.status_code == 303
    flow = await ff_engine.describe_flow(flow_id)
    assert flow is not None
    assert (flow.derived_state, flow.cancel_reason) == ("cancelled", "not wanted any more")
    assert (await act(pages, path, policy="nonsense", reason="because")).status_code == 422


async def test_what_failed_is_replayed_after_a_preview(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id, ids = await submit(ff_engine, "short", [("a", "b")], lane="l")
    hand = Hand(ff_engine, "l")
    await hand.claim()
    await hand.fail(ids["a"], "broken")
    path = f"/flows/{flow_id}/replay"

    dialog = said(await pages.get(path))
    done = await act(pages, path, reason="mended")

    assert "1 member runs again at once, 1 again after them." in dialog
    assert "a: failed" in dialog
    assert done.status_code == 303
    found = await ff_engine.read_flow_states(flow_id)
    assert found is not None
    assert sorted(found.states) == ["waiting", "waiting_children"]


async def test_a_tag_is_set_and_found(ff_engine: Engine, pages: httpx.AsyncClient) -> None:
    flow_id, _ = await submit(ff_engine, "short", [("a", "b")], lane="l")

    done = await act(pages, f"/flows/{flow_id}/tag", key="shop.tenant", value="acme")

    assert done.status_code == 303
    assert str(flow_id) in (await pages.get("/flows?tag=shop.tenant=acme")).text
    assert str(flow_id) not in (await pages.get("/flows?tag=shop.tenant=other")).text


async def test_a_flow_of_another_namespace_looks_like_an_unknown_one(
    ff_engine: Engine, person: Person
) -> None:
    flow_id, _ = await submit(ff_engine, "secret", [("a", "b")], lane="l", namespace="theirs")
    pages = await person(Role.READER, namespaces=("mine",))

    foreign, unknown = await pages.get(f"/flows/{flow_id}"), await pages.get(f"/flows/{uuid4()}")

    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert "secret" not in foreign.text
    assert str(flow_id) not in (await pages.get("/flows")).text
    assert (await pages.get(f"/flows/{flow_id}?format=json")).status_code == 404
    assert (await pages.get(f"/flows/{flow_id}/cancel")).status_code in (403, 404)


async def test_whatever_a_member_is_called_it_stays_text(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    names = [name for name in HOSTILE if name.isprintable() and len(name) < 200]
    edges = list(pairwise(names))
    flow_id, _ = await submit(
        ff_engine, "<b onclick=x>kind", edges, lane="l", kinds=dict.fromkeys(names, "k")
    )
    plain, _ = await submit(
        ff_engine, "kind", [(f"m{i}", f"m{i + 1}") for i in range(len(edges))], lane="l",
        kinds={f"m{i}": "k" for i in range(len(names))},
    )  # fmt: skip

    async def elements(flow: UUID, query: str) -> list[str]:
        page = await pages.get(f"/flows/{flow}{query}")
        tree = html5lib.parse(page.text, namespaceHTMLElements=False)
        found = list(tree.iter())
        assert not [e for e in found if any(str(a).startswith("on") for a in e.attrib)]
        return [str(each.tag) for each in found]

    for query in ("", "?view=members", "?view=timeline"):
        assert await elements(flow_id, query) == await elements(plain, query)


async def test_a_flow_is_exported_as_a_picture_as_mermaid_and_as_json(
    ff_engine: Engine, pages: httpx.AsyncClient
) -> None:
    flow_id = await busy_flow(ff_engine, images=10)

    svg = await pages.get(f"/flows/{flow_id}?format=svg")
    mermaid = await pages.get(f"/flows/{flow_id}?format=mermaid")
    found = (await pages.get(f"/flows/{flow_id}?format=json")).json()

    assert "attachment" in svg.headers["content-disposition"]
    assert ElementTree.fromstring(svg.text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
    assert 'href="/' not in svg.text
    assert mermaid.text.startswith("graph LR")
    assert len(found["members"]) == 21
    assert found["flow_id"] == str(flow_id)


def test_a_viewer_is_told_what_has_changed_and_all_after_a_change_of_the_graph() -> None:
    waiting, active = PublicState.WAITING, PublicState.ACTIVE
    before = FlowStates(graph_revision=3, states=[waiting, waiting])
    after = FlowStates(graph_revision=3, states=[waiting, active])
    grown = FlowStates(graph_revision=4, states=[waiting, active, waiting])

    assert difference(None, before) == {"rev": 3, "s": [[0, "waiting"], [1, "waiting"]]}
    assert difference(before, after) == {"rev": 3, "s": [[1, "active"]]}
    assert [number for number, _ in difference(after, grown)["s"]] == [0, 1, 2]
