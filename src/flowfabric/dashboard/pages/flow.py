"""One flow: its graph, the member that was chosen, its members as a table and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.client.pictures import Picture, mermaid
from flowfabric.dashboard.answers import Answer, PageAnswer, download
from flowfabric.dashboard.flows.drawing import FlowPicture, PictureOptions, picture
from flowfabric.dashboard.flows.export import standalone
from flowfabric.dashboard.flows.reading import FlowRead
from flowfabric.dashboard.flows.timeline import timeline
from flowfabric.dashboard.flows.words import DISABLED, counted_states, sentence
from flowfabric.dashboard.graph import GraphDirection, address, critical_path
from flowfabric.dashboard.pages.flows import LOOKS
from flowfabric.dashboard.problems import not_found
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.activity.read_usual_times import MAX_KINDS
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.wire import wire

VIEWS: Final = ("graph", "members", "timeline")
PAGE: Final = 200
"""Members of one page of the table."""
_DEEPEST: Final = 12


class ChosenMember(msgspec.Struct, frozen=True, kw_only=True):
    """The member that the panel shows."""

    member: FlowMember
    explanation: Explanation | None
    upstreams: list[FlowMember]
    downstreams: list[FlowMember]
    slack: float | None = None


async def read_flow(visit: Visit) -> FlowRead:
    """The flow of the path; raises a `PageProblem` for one that cannot be seen."""
    flow_id = visit.uuid("flow_id")
    found = await visit.site.flows.read(flow_id, visit.now)
    if found is None or not visit.principal.sees(found.flow.namespace):
        detail = (
            f"No flow {flow_id} is known. A flow that has ended is deleted after the retention of"
            " its lanes."
        )
        raise not_found(detail)
    return found


async def flow(visit: Visit) -> Answer:
    """The page, or the flow as a file."""
    read = await read_flow(visit)
    match visit.query("format"):
        case "svg" | "mermaid" | "json" as wanted:
            return await _exported(visit, read, wanted)
        case _:
            return await _page(visit, read)


async def _page(visit: Visit, read: FlowRead) -> PageAnswer:
    view = visit.chosen("view", VIEWS)
    options = _options(visit)
    drawn = None
    if view == "graph" and visit.shows("graph"):
        drawn = await _drawn(visit, read, options)
    chosen = await _chosen(visit, read, options, drawn) if visit.shows("panel") else None
    values: dict[str, Any] = {
        "read": read,
        "flow": read.flow,
        "view": view,
        "options": options,
        "drawn": drawn,
        "chosen": chosen,
        "sentence": sentence(read),
        "counts": counted_states(read),
        "ended_at": _ended_at(read),
        "off": DISABLED.get(read.flow.derived_state, {}),
        "LOOKS": LOOKS,
    }
    if view == "members":
        values |= _members(visit, read)
    if view == "timeline":
        values["chart"] = timeline(
            read, visit.now, lambda key: visit.url(f"/executions/{key}"), options.opened
        )
    return PageAnswer(
        template="flow.html", title=read.flow.flow_kind, section="flows", values=values
    )


def _options(visit: Visit) -> PictureOptions:
    depth = visit.query("depth", "2")
    return PictureOptions(
        grouped=visit.chosen("group", ("auto", "none")) == "auto",
        opened=tuple(visit.queries("open")),
        focus=tuple(visit.queries("focus")),
        depth=min(int(depth), _DEEPEST) if depth.isascii() and depth.isdigit() else 2,
        draw_all=visit.query("all") == "1",
        direction=GraphDirection(visit.chosen("dir", ("lr", "tb"))),
        with_path=visit.query("path") == "critical",
        state=visit.chosen("state", ("", *PublicState)),
        text=visit.query("q"),
        chosen=visit.query("member"),
    )


async def _drawn(visit: Visit, read: FlowRead, options: PictureOptions) -> FlowPicture:
    opened = list(options.opened)
    before = f"{visit.base}/executions/"
    chosen = visit.query("ns")
    after = f"?ns={quote(chosen, safe='')}" if chosen else ""
    return await picture(
        read,
        options,
        visit.site.layouts,
        usual_times=await _usual_times(visit, read) if options.with_path else None,
        member_href=lambda key: f"{before}{key}{after}",
        stack_href=lambda key: visit.again(open=[*opened, key], member=None),
    )


async def _usual_times(visit: Visit, read: FlowRead) -> Mapping[str, float]:
    """How long the kinds of members that have not started usually run."""
    kinds = sorted({each.execution_kind for each in read.members if each.started_at is None})

    async def compute() -> Mapping[str, float]:
        return await visit.engine.read_usual_times(kinds[:MAX_KINDS], namespace=read.flow.namespace)

    return await visit.shared("usual", compute, read.flow.namespace, *kinds) if kinds else {}


def _members(visit: Visit, read: FlowRead) -> dict[str, Any]:
    """The table of members: those that match, a page at a time."""
    wanted, text = visit.query("state"), visit.query("q").casefold()
    order = read.graph.places
    found = [
        read.members[number]
        for number in sorted(range(len(order)), key=order.__getitem__)
        if (not wanted or read.members[number].public_state.value == wanted)
        and (not text or text in read.graph.members[number].title.casefold())
    ]
    given = visit.query("from")
    begin = int(given) if given.isascii() and given.isdigit() and len(given) < 8 else 0
    more = begin + PAGE
    return {
        "members": found[begin:more],
        "upstreams": _upstreams(read, found[begin:more]),
        "matching": len(found),
        "begin": begin,
        "following": visit.again(**{"from": more}) if more < len(found) else "",
        "preceding": visit.again(**{"from": max(begin - PAGE, 0) or None}) if begin else "",
    }


def _upstreams(read: FlowRead, shown: Sequence[FlowMember]) -> dict[ExecutionId, list[str]]:
    """What each of these waits for, or has waited for, by name."""
    wanted = {each.execution_id for each in shown}
    found: dict[ExecutionId, list[str]] = {}
    for link in read.graph.links:
        downstream = read.members[link.downstream].execution_id
        if downstream in wanted and not link.is_child:
            names = found.setdefault(downstream, [])
            names.append(read.graph.members[link.upstream].title)
    return {each: sorted(names) for each, names in found.items()}


async def _chosen(
    visit: Visit, read: FlowRead, options: PictureOptions, drawn: FlowPicture | None
) -> ChosenMember | None:
    """The member that was chosen, with the reason for its state; None if it is none of the flow."""
    try:
        wanted = parse_execution_id(visit.query("member"))
    except EngineError:
        return None
    number = read.number_of(wanted)
    if number is None:
        return None
    path = None if drawn is None else drawn.path
    if path is None and options.with_path:  # the panel is asked for alone when a node is chosen
        path = critical_path(read.graph, await _usual_times(visit, read))
    return ChosenMember(
        member=read.members[number],
        explanation=await visit.engine.explain_execution(wanted),
        upstreams=_named(read, [e.upstream for e in read.graph.links if e.downstream == number]),
        downstreams=_named(read, [e.downstream for e in read.graph.links if e.upstream == number]),
        slack=None if path is None else path.slack[number],
    )


def _named(read: FlowRead, numbers: Sequence[int]) -> list[FlowMember]:
    return [read.members[each] for each in sorted(numbers, key=read.graph.places.__getitem__)]


def _ended_at(read: FlowRead) -> Any:
    """When the last member ended, if all have."""
    if not read.flow.derived_state.is_settled:
        return None
    return max((each.terminal_at for each in read.members if each.terminal_at), default=None)


async def _exported(visit: Visit, read: FlowRead, wanted: str) -> Answer:
    name = f"flow-{_short(read.flow.flow_id)}"
    if wanted == "svg":
        drawn = await _drawn(visit, read, msgspec.structs.replace(_options(visit), draw_all=True))
        return download(standalone(drawn.svg).encode(), f"{name}.svg", "image/svg+xml")
    if wanted == "mermaid":
        text = mermaid(Picture(read.flow, list(read.members), list(read.edges)))
        return download(text.encode(), f"{name}.mmd", "text/plain; charset=utf-8")
    found = {**wire(read.flow), "members": wire(read.members), "edges": wire(read.edges)}
    return download(msgspec.json.encode(found), f"{name}.json", "application/json")


def _short(flow_id: UUID) -> str:
    return str(flow_id)[-8:]


def member_path(member: FlowMember) -> str:
    """The path of the page of a member."""
    return f"/executions/{address(member.execution_id)}"


ROUTES: Final = (screen("/flows/{flow_id}", flow),)
