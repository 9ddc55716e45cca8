"""`ff flows list | show | graph | cancel | replay`."""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import typer
from rich.console import Group
from rich.live import Live
from rich.tree import Tree

from flowfabric.cli.confirm import Yes, confirmed
from flowfabric.cli.connection import ask
from flowfabric.cli.options import Namespace
from flowfabric.cli.output import (
    AsJson,
    Cursor,
    DatabaseUrl,
    Limit,
    ago,
    coloured,
    console,
    counted,
    cut,
    escape,
    listing,
    more,
    print_json,
)
from flowfabric.client.identity import user_at_host
from flowfabric.client.list_all_members import list_all_members
from flowfabric.client.pictures import Picture, dot, mermaid
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.engine.flows.list_flows import FlowPage, FlowStatus, FlowSummary, flow_cursor
from flowfabric.engine.operators.plan_replay import ReplayMember
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.pages import MAX_PAGE
from flowfabric.states import CancellationPolicy
from flowfabric.wire import wire

app = typer.Typer(
    help="List, show, cancel and replay flows: graphs of executions.", no_args_is_help=True
)

FlowArgument = Annotated[str, typer.Argument(metavar="FLOW", help="The flow id: a uuid.")]

_MAX_MEMBERS: Final = 200
_MAX_DEPTH: Final = 8
_MAX_READS: Final = 5


class Language(StrEnum):
    """The languages in which a graph can be written."""

    MERMAID = "mermaid"
    DOT = "dot"


@app.command("list")
def list_(
    database_url: DatabaseUrl = None,
    namespace: Namespace = None,
    state: Annotated[FlowStatus | None, typer.Option(help="Only in this state.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List flows and their states, newest first.

    With --state one page looks at 5000 flows at most: it may be short although more follow.
    """
    page = ask(
        database_url,
        lambda engine: _list(engine, cursor, limit, namespace, state),
    )
    if as_json:
        print_json(page)
        return
    shown = listing(page.flows, "flow_id", "flow_kind", "status", "node_count", "created_at")
    console.print(shown if page.flows else "No flows.")
    more(page.next_cursor)


@app.command()
def show(
    flow: FlowArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Redraw until the flow has ended.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one flow as a tree: its members, their states, and what they wait for."""
    flow_id = parse_uuid(flow, field="FLOW")
    if as_json:
        picture = ask(database_url, lambda engine: _read(engine, flow_id))
        print_json({**wire(picture.flow), "members": picture.members, "edges": picture.edges})
    elif follow:
        with contextlib.suppress(KeyboardInterrupt):
            ask(database_url, lambda engine: _follow(engine, flow_id))
    else:
        console.print(_draw(ask(database_url, lambda engine: _read(engine, flow_id))))


@app.command()
def graph(
    flow: FlowArgument,
    language: Annotated[Language, typer.Option("--format", help="The language of the graph.")] = (
        Language.MERMAID
    ),
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the graph of a flow for Mermaid or Graphviz, coloured by state."""
    flow_id = parse_uuid(flow, field="FLOW")
    picture = ask(database_url, lambda engine: _read(engine, flow_id))
    text = mermaid(picture) if language is Language.MERMAID else dot(picture)
    if as_json:
        print_json({"flow_id": flow_id, "format": language, "graph": text})
    else:
        typer.echo(text)


@app.command()
def cancel(
    flow: FlowArgument,
    policy: Annotated[CancellationPolicy, typer.Option(help="Which members to cancel.")] = (
        CancellationPolicy.CANCEL_ALL
    ),
    reason: Annotated[str, typer.Option(help="Why; stored with the flow.")] = "cancelled with ff",
    yes: Yes = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a flow and, by the policy, its members; asks for confirmation."""
    flow_id = parse_uuid(flow, field="FLOW")
    answer = ask(database_url, lambda engine: _cancel(engine, flow_id, policy, reason, yes))
    if as_json:
        print_json(answer)
    elif isinstance(answer, FlowAlreadyCancelled):
        console.print(f"already cancelled: {flow_id}")
    else:
        members = counted(len(answer.member_execution_ids), "member")
        console.print(f"cancelled {flow_id}: {members}")


@app.command()
def replay(
    flow: FlowArgument,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only list what would run or wait again.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the events.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run again what failed, expired or was cancelled, and what was skipped because of that."""
    flow_id = parse_uuid(flow, field="FLOW")
    answer = ask(
        database_url,
        lambda engine: engine.replay_flow(
            flow_id, preview=preview, actor=user_at_host(), reason=reason
        ),
    )
    if as_json:
        print_json(answer)
        return
    runs, waits = len(answer.run_again), len(answer.wait_again)
    if not runs and not waits:
        console.print(f"nothing to replay: {flow_id}")
    else:
        done = "would replay" if preview else "replayed"
        runs_again = f"{counted(runs, 'member')} run{'s' if runs == 1 else ''} again"
        console.print(f"{done} {flow_id}: {runs_again}, {waits} wait{'s' if waits == 1 else ''}")
    _list_members("runs again", answer.run_again)
    _list_members("waits again", answer.wait_again)
    _list_members("stays", answer.stay)


async def _list(
    engine: Engine,
    cursor: str | None,
    limit: int,
    namespace: str | None,
    state: FlowStatus | None,
) -> FlowPage:
    """A page of flows; of one state, those among the next 5000."""
    if state is None:
        return await engine.list_flows(cursor=cursor, limit=limit, namespace=namespace)
    found: list[FlowSummary] = []
    for _ in range(_MAX_READS):
        page = await engine.list_flows(cursor=cursor, limit=MAX_PAGE, namespace=namespace)
        for flow in page.flows:
            if flow.status is not state:
                continue
            if len(found) == limit:
                return FlowPage(flows=found, next_cursor=flow_cursor(found[-1]))
            found.append(flow)
        cursor = page.next_cursor
        if cursor is None or len(found) == limit:
            break
    return FlowPage(flows=found, next_cursor=cursor)


def _list_members(what: str, members: list[ReplayMember]) -> None:
    for member in members[:_MAX_MEMBERS]:
        name = escape(member.name or member.execution_kind)
        reason = f" [dim]{escape(member.reason[:80])}[/dim]" if member.reason else ""
        console.print(
            f"  {what}: {name} {coloured(member.public_state)} {member.execution_id}{reason}",
            soft_wrap=True,
        )
    if len(members) > _MAX_MEMBERS:
        console.print(f"  … and {len(members) - _MAX_MEMBERS} more")


async def _cancel(
    engine: Engine, flow_id: UUID, policy: CancellationPolicy, reason: str, yes: bool
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    found = await engine.describe_flow(flow_id)
    if found is None:
        raise NotFound("flow", flow_id)
    counts = found.members
    open_members = counts.total - (
        counts.completed + counts.failed + counts.cancelled + counts.expired + counts.skipped
    )
    confirmed(
        f"cancel flow {found.flow_kind!r} ({policy.value})? {open_members} of its "
        f"{counts.total} members have not ended.",
        yes=yes,
    )
    return await engine.cancel_flow(flow_id, reason=reason, policy=policy, requester=user_at_host())


async def _read(engine: Engine, flow_id: UUID) -> Picture:
    flow = await engine.describe_flow(flow_id)
    if flow is None:
        raise NotFound("flow", flow_id)
    members = await list_all_members(engine, flow_id)
    return Picture(flow, members, await engine.list_edges(flow_id))


async def _follow(engine: Engine, flow_id: UUID) -> None:
    picture = await _read(engine, flow_id)
    with Live(_draw(picture), console=console, refresh_per_second=4) as live:
        while not picture.flow.derived_state.is_settled:
            await asyncio.sleep(0.5)
            picture = await _read(engine, flow_id)
            live.update(_draw(picture))


def _draw(picture: Picture) -> Group:
    flow = picture.flow
    counts = ", ".join(
        f"{number} {name}"
        for name, number in wire(flow.members).items()
        if number and name != "total"
    )
    tree = Tree(f"{escape(flow.flow_kind)} [b]{flow.derived_state.value}[/b]  {counts}")
    places: dict[ExecutionId, _Place] = {}
    for member in picture.ordered()[:_MAX_MEMBERS]:
        places[member.execution_id] = _place(picture, member, places, tree)
    if len(picture.members) > _MAX_MEMBERS:
        tree.add(f"… and {len(picture.members) - _MAX_MEMBERS} more")
    return Group(tree, *_cancel_note(flow))


class _Place(NamedTuple):
    """The place of a member in the tree; members of a chain share one place."""

    branch: Tree
    parent: Tree
    depth: int


def _place(
    picture: Picture, member: FlowMember, places: dict[ExecutionId, _Place], tree: Tree
) -> _Place:
    before = picture.continues(member.execution_id)
    if before is not None:
        place = places[before.execution_id]
        place.branch.label = f"{place.branch.label}\n↳ {_label(picture, member, [])}"
        return place
    above = picture.above(member.execution_id)
    place = places[above[-1].execution_id] if above else _Place(tree, tree, 0)
    if place.depth < _MAX_DEPTH:
        branch = place.branch.add(_label(picture, member, above[:-1], "also "))
        return _Place(branch, place.branch, place.depth + 1)
    # Too deep: the member is drawn beside its last upstream and names all of them.
    return place._replace(branch=place.parent.add(_label(picture, member, above)))


def _label(picture: Picture, member: FlowMember, after: list[FlowMember], also: str = "") -> str:
    name = escape(member.name or member.execution_kind)
    reason = f" [dim]{escape(cut(member.reason))}[/dim]" if member.reason else ""
    waits = "" if member.public_state.is_terminal else picture.waits_for(member.execution_id)
    others = ", ".join(escape(each.name or str(each.execution_id)) for each in after)
    more = f" [dim]({also}after {others})[/dim]" if after else ""
    return f"{name} {coloured(member.public_state)}{waits}{more}{reason}"


def _cancel_note(flow: FlowSnapshot) -> list[str]:
    if flow.cancelled_at is None:
        return []
    return [f"cancelled {ago(flow.cancelled_at)}: {escape(flow.cancel_reason or '')}"]
