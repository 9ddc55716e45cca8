"""From a flow that was read to its picture, by the parameters of the page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from flowfabric.dashboard.flows.reading import FlowRead
from flowfabric.dashboard.graph import (
    AT_ONCE,
    Collapsed,
    CriticalPath,
    DrawOptions,
    Graph,
    GraphDirection,
    Layout,
    choose,
    collapse,
    critical_path,
    draw,
    lay_out,
)

_MOST_KEPT: Final = 64
_MOST_DRAWN: Final = 8
"""Drawings that are kept; one of 1,000 members has 600 KB."""
MINIMAP_FROM: Final = 100
"""So many nodes have a minimap."""


class PictureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose to see."""

    grouped: bool = True
    opened: tuple[str, ...] = ()
    focus: tuple[str, ...] = ()
    depth: int = 2
    draw_all: bool = False
    direction: GraphDirection = GraphDirection.LR
    with_path: bool = False
    state: str = ""
    text: str = ""
    chosen: str = ""


class OpenedStack(msgspec.Struct, frozen=True):
    """A stack that is drawn member by member."""

    key: str
    name: str
    count: int


class FlowPicture(msgspec.Struct, frozen=True, kw_only=True):
    """The drawing, and what the page says about it."""

    svg: str
    shown: int
    """Nodes that are drawn."""
    total: int
    """Nodes that there are."""
    may_draw_all: bool
    has_stacks: bool
    has_minimap: bool
    opened: list[OpenedStack]
    path: CriticalPath | None
    matching: int | None
    """Members that match what is looked for; None if nothing is looked for."""


class Layouts:
    """Keeps the layouts of 64 drawings, and the newest drawings themselves."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, Layout] = OrderedDict()
        self._drawn: OrderedDict[object, tuple[Graph, FlowPicture]] = OrderedDict()

    def drawn(self, key: object, graph: Graph) -> FlowPicture | None:
        """The picture that was drawn by this key, if nothing has changed in the graph since."""
        found = self._drawn.get(key)
        return found[1] if found is not None and found[0] == graph else None

    def keep(self, key: object, graph: Graph, picture: FlowPicture) -> None:
        """Another page shows the same soon: a large drawing takes longer than all of its page."""
        self._drawn[key] = graph, picture
        self._drawn.move_to_end(key)
        while len(self._drawn) > _MOST_DRAWN:
            self._drawn.popitem(last=False)

    async def of(self, key: object, drawn: Collapsed, direction: GraphDirection) -> Layout:
        """The layout of a drawing; a large one is computed in a thread."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        edges = [(arrow.upstream, arrow.downstream) for arrow in drawn.arrows]
        places = [node.place for node in drawn.nodes]

        def compute() -> Layout:
            return lay_out(len(places), edges, places=places, direction=direction)

        found = compute() if len(places) <= AT_ONCE else await asyncio.to_thread(compute)
        self._kept[key] = found
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found


async def picture(
    read: FlowRead,
    options: PictureOptions,
    layouts: Layouts,
    *,
    member_href: Callable[[str], str],
    stack_href: Callable[[str], str],
    usual_times: Mapping[str, float] | None = None,
) -> FlowPicture:
    """Draw the flow as the options say."""
    graph = read.graph
    same = (read.flow.flow_id, options, member_href(""), stack_href(""))
    if not options.with_path and (found := layouts.drawn(same, graph)) is not None:
        return found
    whole = collapse(graph, opened=options.opened, grouped=options.grouped)
    chosen = choose(
        graph, whole, focus=options.focus, depth=options.depth, draw_all=options.draw_all
    )
    drawn = chosen.drawn
    key = (
        read.flow.flow_id,
        read.flow.graph_revision,
        options.direction,
        hash(tuple(node.key for node in drawn.nodes)),
        len(drawn.nodes),
    )
    layout = await layouts.of(key, drawn, options.direction)
    path = critical_path(graph, usual_times) if options.with_path else None
    matching = _matching(read, options)
    svg = draw(
        graph,
        drawn,
        layout,
        DrawOptions(
            member_href=member_href,
            stack_href=stack_href,
            label=f"Graph of {read.flow.flow_kind}: {len(graph.members):,} members",
            direction=options.direction,
            path=path,
            matching=matching,
            chosen=options.chosen,
        ),
    )
    made = FlowPicture(
        svg=svg,
        shown=len(drawn.nodes),
        total=chosen.total,
        may_draw_all=chosen.may_draw_all,
        has_stacks=any(node.is_stack for node in whole.nodes),
        has_minimap=len(drawn.nodes) >= MINIMAP_FROM,
        opened=[
            OpenedStack(node.key, graph.members[node.numbers[0]].kind, len(node.numbers))
            for node in whole.opened
        ],
        path=path,
        matching=None if matching is None else len(matching),
    )
    layouts.keep(same, graph, made)
    return made


def _matching(read: FlowRead, options: PictureOptions) -> frozenset[int] | None:
    """The numbers of the members that the page looks for; None if it looks for none."""
    if not options.state and not options.text:
        return None
    wanted = options.text.casefold()
    return frozenset(
        number
        for number, member in enumerate(read.graph.members)
        if (not options.state or member.state.value == options.state)
        and (not wanted or wanted in member.title.casefold() or wanted in member.kind.casefold())
    )
