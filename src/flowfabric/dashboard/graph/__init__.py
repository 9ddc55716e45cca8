"""The graph of a flow: collapsed, chosen, laid out and drawn.

No module reads or writes anything: `graph_of` takes what was read, `draw` returns text.
"""

from flowfabric.dashboard.graph.choose import AT_MOST, AT_ONCE, Chosen, choose
from flowfabric.dashboard.graph.collapse import Arrow, Collapsed, Node, collapse
from flowfabric.dashboard.graph.critical_path import CriticalPath, critical_path
from flowfabric.dashboard.graph.draw import BAR_ORDER, Look, draw, words
from flowfabric.dashboard.graph.layout import Direction, Layout, lay_out
from flowfabric.dashboard.graph.model import (
    Graph,
    Join,
    Link,
    LinkState,
    Member,
    address,
    graph_of,
)

__all__ = [
    "AT_MOST",
    "AT_ONCE",
    "BAR_ORDER",
    "Arrow",
    "Chosen",
    "Collapsed",
    "CriticalPath",
    "Direction",
    "Graph",
    "Join",
    "Layout",
    "Link",
    "LinkState",
    "Look",
    "Member",
    "Node",
    "address",
    "choose",
    "collapse",
    "critical_path",
    "draw",
    "graph_of",
    "lay_out",
    "words",
]
