"""The drawing of a graph: SVG with a link for every node, coloured by classes and attributes.

A browser takes as long for each element and each transformation as for what they show. So the
edges of a node are one path, and everything has the coordinates of the whole drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from flowfabric.dashboard.graph.collapse import Collapsed, GraphNode, join_of
from flowfabric.dashboard.graph.critical_path import CriticalPath
from flowfabric.dashboard.graph.icons import ICON_PATHS
from flowfabric.dashboard.graph.layout import HEIGHT, WIDTH, GraphDirection, Layout
from flowfabric.dashboard.graph.model import Graph, GraphMember, LinkState, PartialJoin
from flowfabric.dashboard.graph.words import counted, cut, text
from flowfabric.dashboard.view.sentences import STATES
from flowfabric.states import PublicState

TIMES: Final = "\u00d7"
BAR: Final = WIDTH - 24
"""The length of the bar of a stack."""
_ROOM: Final = 20
"""Letters of a name that a card has room for."""
BAR_ORDER: Final = (
    PublicState.COMPLETED,
    PublicState.ACTIVE,
    PublicState.SUSPENDED,
    PublicState.RESUMABLE,
    PublicState.WAITING_CHILDREN,
    PublicState.RATE_LIMITED,
    PublicState.DELAYED,
    PublicState.WAITING,
    PublicState.SKIPPED,
    PublicState.CANCELLED,
    PublicState.EXPIRED,
    PublicState.FAILED,
)
"""The states in the order in which a bar shows them."""
_WORDS: Final = {state: state.value.replace("_", " ") for state in PublicState}
_LOOKS: Final = {state: (state.value, ICON_PATHS[STATES[state].icon]) for state in PublicState}
"""The attribute and the icon of each state: asking an enum a thousand times takes milliseconds."""
_LINKS: Final = {state: state.value for state in LinkState}
_LETTER: Final = {state: chr(ord("a") + number) for number, state in enumerate(PublicState)}


class DrawOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a drawing is made."""

    member_href: Callable[[str], str]
    """The address of a member, by its key."""
    stack_href: Callable[[str], str]
    """The address that opens a stack, by its key."""
    label: str = "Graph"
    direction: GraphDirection = GraphDirection.LR
    path: CriticalPath | None = None
    matching: frozenset[int] | None = None
    """The members that are not dimmed; None dims none."""
    chosen: str | None = None
    """The key of the member that the panel shows."""


def draw(graph: Graph, drawn: Collapsed, layout: Layout, look: DrawOptions) -> str:
    """The SVG element. Every text of a user is escaped, and none becomes a name or an address."""
    order = sorted(
        range(len(drawn.nodes)), key=lambda index: (layout.ranks[index], layout.y[index], index)
    )
    index = [0] * len(order)
    for place, node in enumerate(order):
        index[node] = place
    on_path = _on_path(drawn, look.path)
    parts = [
        f'<svg class="graph {look.direction.value}" width="{layout.width}"'
        f' height="{layout.height}" viewBox="0 0 {layout.width} {layout.height}" role="group"'
        f' aria-label="{text(look.label)}" data-graph=""><g class="arrows">'
    ]
    parts += _arrows(drawn, layout, index, on_path)
    parts.append('</g><g class="nodes">')
    for each in order:
        node, x, y = drawn.nodes[each], layout.x[each], layout.y[each]
        classes = ["node"]
        if look.matching is not None and look.matching.isdisjoint(node.numbers):
            classes.append("dim")
        if each in on_path:
            classes.append("path")
        if node.is_stack:
            parts.append(_stack(graph, drawn, node, x, y, classes, look))
        else:
            parts.append(_card(graph, node, x, y, classes, look))
    parts.append("</g></svg>")
    return "".join(parts)


def _on_path(drawn: Collapsed, path: CriticalPath | None) -> dict[int, int]:
    """The nodes of the critical path, each with the one that follows it."""
    if path is None:
        return {}
    node_of = {number: index for index, node in enumerate(drawn.nodes) for number in node.numbers}
    nodes = [node_of.get(number, -1) for number in path.numbers]
    after = dict(zip(nodes, [*nodes[1:], -1], strict=True))
    after.pop(-1, None)
    return after


def _arrows(
    drawn: Collapsed, layout: Layout, index: Sequence[int], on_path: Mapping[int, int]
) -> list[str]:
    """The edges that begin at one node and look alike as one path, then the dots of data."""
    ends: dict[tuple[int, str], list[str]] = {}
    lines: dict[tuple[int, str], list[str]] = {}
    for arrow, line in zip(drawn.arrows, layout.lines, strict=True):
        look = "child" if arrow.is_child else _LINKS[arrow.state]
        if on_path.get(arrow.upstream) == arrow.downstream:
            look += " path"
        same = index[arrow.upstream], look
        ends.setdefault(same, []).append(str(index[arrow.downstream]))
        lines.setdefault(same, []).append(line)
    paths = [
        f'<path class="{look}" data-e="{upstream} {" ".join(ends[upstream, look])}"'
        f' d="{"".join(found)}"/>'
        for (upstream, look), found in lines.items()
    ]
    dots = [
        f'<circle cx="{x}" cy="{y}" r="2.5"/>'
        for arrow, (x, y) in zip(drawn.arrows, layout.middles, strict=True)
        if arrow.passes_data
    ]
    return paths + dots


def _card(
    graph: Graph, node: GraphNode, x: int, y: int, classes: list[str], look: DrawOptions
) -> str:
    """One member: its icon, its name, its state, and what is special about it."""
    [number] = node.numbers
    member = graph.members[number]
    if member.not_needed:
        classes.append("unneeded")
    current = ' aria-current="true"' if member.key == look.chosen else ""
    state, icon = _LOOKS[member.state]
    parts = [
        f'<a class="{" ".join(classes)}" data-n="{number}" data-id="{text(member.key)}"'
        f' data-state="{state}"{current} href="{text(look.member_href(member.key))}"'
        f' data-at="{x} {y}">'
        f"<title>{text(_spoken(member))}</title>"
        f'<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="9"/>'
        f'<path class="icon" d="M{x + 12} {y + 16}{icon}"/>'
        f'<text class="title" x="{x + 38}" y="{y + 21}">{text(cut(member.title, _ROOM))}</text>'
        f'<text class="word" x="{x + 38}" y="{y + 37}">{_word(member)}</text>'
    ]
    if member.attempts > 1:
        parts.append(
            f'<text class="tries" x="{x + WIDTH - 12}" y="{y + 37}">'
            f"{counted(member.attempts)} tries</text>"
        )
    if member.progress is not None:
        done = round(max(0.0, min(member.progress, 1.0)) * (WIDTH - 24))
        parts.append(
            f'<rect class="done" x="{x + 12}" y="{y + HEIGHT - 3}" width="{done}" height="2"'
            ' rx="1"/>'
        )
    if (join := join_of(graph, node)) is not None:
        parts.append(_badge(join, x, y, look.direction))
    return "".join([*parts, _more(node, x, y), "</a>"])


def _stack(
    graph: Graph,
    drawn: Collapsed,
    node: GraphNode,
    x: int,
    y: int,
    classes: list[str],
    look: DrawOptions,
) -> str:
    """Equal members: their name, how many, and a bar of their states."""
    states = drawn.states(graph, node)
    first, count = graph.members[node.numbers[0]], len(node.numbers)
    times = f" {TIMES} {counted(count)}"
    spoken = ", ".join(
        f"{counted(states[each])} {words(each)}" for each in BAR_ORDER if states[each]
    )
    bar, at = list[str](), x + 12.0
    for state in BAR_ORDER:
        length = states[state] * BAR / count
        bar.append(
            f'<rect data-state="{state.value}" x="{at:.6g}" y="{y + 33}" width="{length:.4g}"'
            ' height="5"/>'
        )
        at += length
    return (
        f'<a class="{" ".join(classes)} pile" data-of="{_ranges(node.numbers)}"'
        f' data-has="{_runs(graph, node.numbers)}" data-id="{text(node.key)}"'
        f' href="{text(look.stack_href(node.key))}" data-at="{x} {y}">'
        f"<title>{text(first.kind)}{times}: {spoken}</title>"
        f'<rect class="under" x="{x + 6}" y="{y + 6}" width="{WIDTH - 4}"'
        f' height="{HEIGHT}" rx="9"/>'
        f'<rect class="under" x="{x + 3}" y="{y + 3}" width="{WIDTH - 2}"'
        f' height="{HEIGHT}" rx="9"/>'
        f'<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="9"/>'
        f'<text class="title" x="{x + 12}" y="{y + 22}">'
        f"{text(cut(first.kind, _ROOM + 3 - len(times)))}"
        f'<tspan class="times">{times}</tspan></text>'
        f'<g class="mix">{"".join(bar)}</g>{_more(node, x, y)}</a>'
    )


def _badge(join: PartialJoin, x: int, y: int, direction: GraphDirection) -> str:
    """`2 of 3` at the input of a card, filled by what has succeeded, struck when impossible."""
    words_ = f"{counted(join.required)} of {counted(join.total)}"
    wide = 12 + 6 * len(words_)
    right, down = (-wide - 6, HEIGHT // 2 - 8) if direction is GraphDirection.LR else (8, -20)
    filled = round(wide * min(join.succeeded / max(join.required, 1), 1.0))
    struck = f'<path d="M4 8h{wide - 8}"/>' if join.is_impossible else ""
    classes = "join no" if join.is_impossible else "join"
    return (
        f'<g class="{classes}" transform="translate({x + right} {y + down})">'
        f'<rect class="back" width="{wide}" height="16" rx="8"/>'
        f'<rect class="fill" width="{filled}" height="16" rx="8"/>'
        f'<text x="{wide / 2:g}" y="12">{words_}</text>{struck}</g>'
    )


def _more(node: GraphNode, x: int, y: int) -> str:
    """How many neighbours of a node are not drawn."""
    if not node.hidden:
        return ""
    return f'<text class="more" x="{x + WIDTH - 12}" y="{y + 21}">+{counted(node.hidden)}</text>'


def words(state: PublicState) -> str:
    """The state as words."""
    return _WORDS[state]


def _word(member: GraphMember) -> str:
    return "not needed" if member.not_needed else words(member.state)


def _spoken(member: GraphMember) -> str:
    """What a reader of the screen hears of a card."""
    parts = [member.title, _word(member)]
    if member.name and member.name != member.kind:
        parts.append(f"kind {member.kind}")
    if member.attempts > 1:
        parts.append(f"{counted(member.attempts)} tries")
    if member.join is not None:
        parts.append(
            f"needs {member.join.required} of {member.join.total}, {member.join.succeeded} done"
        )
    return ", ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as `3-7 9`."""
    parts: list[str] = []
    first = before = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != before + 1:
            parts.append(str(first) if first == before else f"{first}-{before}")
            first = number
        before = number
    return " ".join(parts)


def _runs(graph: Graph, numbers: Sequence[int]) -> str:
    """The states of the members one after the other: a letter for each state, `400a12e`."""
    parts: list[str] = []
    run, before = 0, ""
    for number in numbers:
        letter = _LETTER[graph.members[number].state]
        if letter != before and run:
            parts.append(f"{run}{before}")
            run = 0
        run, before = run + 1, letter
    return "".join([*parts, f"{run}{before}"])
