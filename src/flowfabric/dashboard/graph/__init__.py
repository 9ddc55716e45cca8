"""The graph of a flow: collapsed, chosen, laid out and drawn.

No module reads or writes anything: `graph_of` takes what was read, `draw` returns text.
"""

from flowfabric.dashboard.graph.choose import AT_MOST, AT_ONCE, Choice, choose
from flowfabric.dashboard.graph.collapse import Collapsed, GraphArrow, GraphNode, collapse
from flowfabric.dashboard.graph.critical_path import CriticalPath, critical_path
from flowfabric.dashboard.graph.draw import BAR_ORDER, DrawOptions, draw, words
from flowfabric.dashboard.graph.layout import GraphDirection, Layout, lay_out
from flowfabric.dashboard.graph.model import (
    Graph,
    GraphLink,
    GraphMember,
    LinkState,
    PartialJoin,
    address,
    graph_of,
)

__all__ = [
    "AT_MOST",
    "AT_ONCE",
    "BAR_ORDER",
    "Choice",
    "Collapsed",
    "CriticalPath",
    "DrawOptions",
    "Graph",
    "GraphArrow",
    "GraphDirection",
    "GraphLink",
    "GraphMember",
    "GraphNode",
    "Layout",
    "LinkState",
    "PartialJoin",
    "address",
    "choose",
    "collapse",
    "critical_path",
    "draw",
    "graph_of",
    "lay_out",
    "words",
]
