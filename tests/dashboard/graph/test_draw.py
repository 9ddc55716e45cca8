"""The drawing: links, states, stacks and badges; whatever a name is, it stays text."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree import ElementTree

from flowfabric.dashboard.graph import (
    Collapsed,
    DrawOptions,
    Graph,
    GraphDirection,
    GraphLink,
    LinkState,
    PartialJoin,
    collapse,
    critical_path,
    draw,
    lay_out,
)
from flowfabric.dashboard.graph.words import cut
from flowfabric.states import PublicState
from tests.dashboard.graph.graphs import HOSTILE, graph, member


def drawn(given: Graph, *, shown: Collapsed | None = None, **look: Any) -> ElementTree.Element:
    """The drawing of a graph, parsed as XML."""
    shown = shown or collapse(given)
    direction = look.get("direction", GraphDirection.LR)
    layout = lay_out(
        len(shown.nodes),
        [(arrow.upstream, arrow.downstream) for arrow in shown.arrows],
        places=[node.place for node in shown.nodes],
        direction=direction,
    )
    text = draw(
        given,
        shown,
        layout,
        DrawOptions(
            **{
                "member_href": lambda key: f"/ui/executions/{key}",
                "stack_href": lambda key: f"?open={key}&x=1",
                **look,
            }
        ),
    )
    return ElementTree.fromstring(text)  # noqa: S314 our own


def nodes(svg: ElementTree.Element) -> list[ElementTree.Element]:
    return svg.findall(".//a")


def shape(svg: ElementTree.Element) -> Counter[tuple[str, tuple[str, ...]]]:
    """The elements and the names of their attributes."""
    return Counter((each.tag, tuple(sorted(each.attrib))) for each in svg.iter())


def test_a_node_is_a_link_with_name_state_and_attempts() -> None:
    whole = Graph(
        members=[member(0, name="charge", attempts=3, state=PublicState.ACTIVE)], links=[]
    )

    [node] = nodes(drawn(whole))

    assert node.attrib["href"] == f"/ui/executions/{whole.members[0].key}"
    assert (node.attrib["data-n"], node.attrib["data-state"]) == ("0", "active")
    assert [each.text for each in node.findall("text")] == ["charge", "active", "3 tries"]
    assert node.findtext("title") == "charge, active, kind step, 3 tries"


def test_hostile_names_add_no_element_and_no_attribute() -> None:
    plain = Graph(members=[member(0, name="a", kind="b")], links=[])
    stack = graph(6, name=None, kind="b")
    for hostile in HOSTILE:
        named = Graph(members=[member(0, name=hostile, kind=hostile)], links=[])
        assert shape(drawn(named, label=hostile)) == shape(drawn(plain))
        stacked = graph(6, name=None, kind=hostile)
        assert shape(drawn(stacked)) == shape(drawn(stack))


def test_no_element_has_a_style_or_a_handler() -> None:
    whole = graph(9, [(0, 1), (0, 2)])

    for each in drawn(whole).iter():
        assert not [name for name in each.attrib if name == "style" or name.startswith("on")]


def test_a_stack_has_a_bar_of_its_states_and_says_which_members_it_has() -> None:
    states = [PublicState.COMPLETED] * 5 + [PublicState.FAILED] * 3
    whole = Graph(
        members=[member(9, name="other")]
        + [member(number, kind="resize", state=state) for number, state in enumerate(states)],
        links=[],
    )

    [stack] = [node for node in nodes(drawn(whole)) if "data-of" in node.attrib]

    assert stack.findtext("title") == "resize \u00d7 8: 5 completed, 3 failed"
    assert stack.attrib["data-of"] == "1-8"
    assert stack.attrib["data-has"] == "5h3i"
    widths = {
        each.attrib["data-state"]: float(each.attrib["width"])
        for each in stack.findall("g/rect")
        if float(each.attrib["width"])
    }
    assert widths == {"completed": 117.5, "failed": 70.5}


def test_joins_of_some_have_a_badge_filled_by_what_succeeded_and_struck_when_impossible() -> None:
    for join, words, filled, struck in (
        (PartialJoin(required=2, total=3, succeeded=1), "2 of 3", 0.5, False),
        (PartialJoin(required=1, total=5, succeeded=4), "1 of 5", 1.0, False),
        (PartialJoin(required=2, total=3, succeeded=0, is_impossible=True), "2 of 3", 0.0, True),
    ):
        for direction in GraphDirection:
            svg = drawn(Graph(members=[member(0, join=join)], links=[]), direction=direction)
            badge = svg.find(".//a/g")
            assert badge is not None
            pill, fill = badge.findall("rect")
            assert badge.findtext("text") == words
            assert float(fill.attrib["width"]) == filled * float(pill.attrib["width"])
            assert (badge.find("path") is not None) is struck


def test_arrows_say_their_state_and_have_a_dot_where_data_passes() -> None:
    whole = Graph(
        members=[member(number) for number in range(4)],
        links=[
            GraphLink(upstream=0, downstream=1, state=LinkState.SATISFIED, passes_data=True),
            GraphLink(upstream=0, downstream=2, state=LinkState.IMPOSSIBLE),
            GraphLink(upstream=0, downstream=3, is_child=True),
        ],
    )

    svg = drawn(whole)

    assert sorted(path.attrib["class"] for path in svg.findall("./g/path")) == [
        "child",
        "impossible",
        "satisfied",
    ]
    assert len(svg.findall("./g/circle")) == 1
    assert {path.attrib["data-e"] for path in svg.findall("./g/path")} == {"0 1", "0 2", "0 3"}


def test_edges_of_one_node_that_look_alike_are_one_path_and_nothing_of_a_card_is_moved() -> None:
    whole = Graph(
        members=[member(number) for number in range(4)],
        links=[
            GraphLink(upstream=0, downstream=1),
            GraphLink(upstream=0, downstream=2),
            GraphLink(upstream=0, downstream=3, state=LinkState.IMPOSSIBLE),
        ],
    )

    svg = drawn(whole)

    paths = {path.attrib["class"]: path.attrib for path in svg.findall("./g/path")}
    assert {look: each["data-e"] for look, each in paths.items()} == {
        "open": "0 1 2",
        "impossible": "0 3",
    }
    assert [each["d"].count("M") for each in paths.values()] == [2, 1]
    assert not [each for each in svg.iter() if "transform" in each.attrib]
    for node in nodes(svg):
        box = node.find("rect")
        assert box is not None
        assert node.attrib["data-at"] == f"{box.attrib['x']} {box.attrib['y']}"


def test_the_losers_of_a_race_are_not_needed() -> None:
    lost = member(0, state=PublicState.CANCELLED, not_needed=True)

    [node] = nodes(drawn(Graph(members=[lost], links=[])))

    assert "unneeded" in node.attrib["class"]
    assert [each.text for each in node.findall("text")] == ["step", "not needed"]


def test_the_critical_path_is_marked() -> None:
    whole = Graph(
        members=[member(number, took=float(number)) for number in range(4)],
        links=[GraphLink(upstream=0, downstream=number) for number in (1, 2, 3)],
    )

    svg = drawn(whole, path=critical_path(whole))

    marked = [node.attrib["data-n"] for node in nodes(svg) if "path" in node.attrib["class"]]
    assert marked == ["0", "3"]
    assert len([path for path in svg.findall("./g/path") if "path" in path.attrib["class"]]) == 1


def test_members_that_do_not_match_are_dimmed_and_the_chosen_one_is_current() -> None:
    whole = graph(3)

    svg = drawn(whole, matching=frozenset({1}), chosen=whole.members[1].key)

    assert [("dim" in node.attrib["class"]) for node in nodes(svg)] == [True, False, True]
    assert [node.attrib.get("aria-current") for node in nodes(svg)] == [None, "true", None]


def test_names_are_cut_by_their_width() -> None:
    assert cut("a" * 22, 22) == "a" * 22
    assert cut("a" * 23, 22) == "a" * 21 + "…"
    assert cut("漢" * 11, 22) == "漢" * 11
    assert cut("漢" * 12, 22) == "漢" * 10 + "…"
    assert cut("  many \n spaces ", 22) == "many spaces"
