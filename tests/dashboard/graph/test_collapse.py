"""Equal members are a stack; of a large graph the part that matters is drawn."""

from __future__ import annotations

from flowfabric.dashboard.graph import (
    AT_MOST,
    AT_ONCE,
    Graph,
    GraphLink,
    LinkState,
    choose,
    collapse,
)
from flowfabric.states import PublicState
from tests.dashboard.graph.graphs import graph, member, random_edges


def fan(count: int, **fields: object) -> Graph:
    """One member, `count` equal ones after it, and one after them."""
    return graph(
        count + 2,
        [
            *((0, number) for number in range(1, count + 1)),
            *((number, count + 1) for number in range(1, count + 1)),
        ],
        **fields,
    )


def test_six_equal_members_are_a_stack_and_five_are_not() -> None:
    [first, stack, last] = collapse(fan(6)).nodes

    assert (first.numbers, stack.numbers, last.numbers) == ((0,), (1, 2, 3, 4, 5, 6), (7,))
    assert stack.is_stack
    assert stack.key == fan(6).members[1].key
    assert len(collapse(fan(5)).nodes) == 7


def test_members_of_another_kind_or_with_other_neighbours_stay_outside() -> None:
    whole = fan(12)
    members = [*whole.members[:7], *(member(n, kind="other") for n in range(7, 14))]
    links = [*whole.links, GraphLink(upstream=1, downstream=13)][1:]

    nodes = collapse(Graph(members=members, links=links)).nodes

    assert sorted(len(node.numbers) for node in nodes) == [1] * 8 + [6]


def test_an_opened_stack_is_drawn_member_by_member_and_can_be_closed() -> None:
    key = fan(8).members[1].key

    shown = collapse(fan(8), opened=[key])

    assert len(shown.nodes) == 10
    assert [(stack.key, len(stack.numbers)) for stack in shown.opened] == [(key, 8)]
    assert len(collapse(fan(8), grouped=False).nodes) == 10


def test_links_of_a_stack_are_one_arrow_with_the_state_of_all() -> None:
    whole = fan(6)
    states = [LinkState.SATISFIED] * 5 + [LinkState.IMPOSSIBLE]

    def arrow(changed: list[LinkState]) -> LinkState:
        links = [
            GraphLink(upstream=number + 1, downstream=7, state=state)
            for number, state in enumerate(changed)
        ]
        drawn = collapse(Graph(members=whole.members, links=[*whole.links[:6], *links]))
        [_, into] = drawn.arrows
        return into.state

    assert arrow(states) is LinkState.SATISFIED
    assert arrow([*states[1:], LinkState.OPEN]) is LinkState.OPEN
    assert arrow([LinkState.IMPOSSIBLE] * 6) is LinkState.IMPOSSIBLE


def test_up_to_300_nodes_all_are_drawn() -> None:
    small = graph(AT_ONCE, random_edges(1, AT_ONCE, 400))

    assert choose(small, collapse(small, grouped=False)).drawn == collapse(small, grouped=False)


def test_of_a_large_graph_the_neighbourhood_of_failures_is_drawn() -> None:
    edges = [(number, number + 1) for number in range(999)]
    chain = graph(1_000, edges)
    broken = Graph(
        members=[
            member(
                n, name=f"step-{n}", state=PublicState.FAILED if n == 500 else PublicState.WAITING
            )
            for n in range(1_000)
        ],
        links=chain.links,
    )

    chosen = choose(broken, collapse(broken))

    assert chosen.total == 1_000
    assert chosen.may_draw_all
    assert [node.numbers[0] for node in chosen.drawn.nodes] == [498, 499, 500, 501, 502]
    assert [node.hidden for node in chosen.drawn.nodes] == [1, 0, 0, 0, 1]
    assert [(arrow.upstream, arrow.downstream) for arrow in chosen.drawn.arrows] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]


def test_a_focus_and_its_depth_choose_the_neighbourhood() -> None:
    chain = graph(1_000, [(number, number + 1) for number in range(999)])

    chosen = choose(chain, collapse(chain), focus=[chain.members[10].key], depth=1)

    assert [node.numbers[0] for node in chosen.drawn.nodes] == [9, 10, 11]


def test_a_neighbourhood_has_at_most_300_nodes_unless_all_are_asked_for() -> None:
    busy = graph(2_000, random_edges(2, 2_000, 4_000), state=PublicState.ACTIVE)
    whole = collapse(busy, grouped=False)

    assert len(choose(busy, whole, depth=5).drawn.nodes) == AT_ONCE
    assert len(choose(busy, whole, draw_all=True).drawn.nodes) == 2_000


def test_above_5000_nodes_only_stacks_are_drawn() -> None:
    chain = [(number, number + 1) for number in range(AT_MOST)]
    fanned = [(AT_MOST, AT_MOST + 1 + number) for number in range(20)]
    huge = graph(AT_MOST + 21, [*chain, *fanned])

    chosen = choose(huge, collapse(huge), draw_all=True)

    assert [len(node.numbers) for node in chosen.drawn.nodes] == [20]
    assert not chosen.may_draw_all
    assert chosen.total == AT_MOST + 2
