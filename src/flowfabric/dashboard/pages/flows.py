"""The list of flows."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.flows.describe_flow import MemberCounts
from flowfabric.engine.flows.list_flows import FlowStatus, FlowSummary
from flowfabric.errors import ValidationError
from flowfabric.states import DerivedFlowState

LOOKS: Final = {
    "active": ("blue", "play"),
    "completed": ("green", "tick"),
    "failed": ("red", "cross"),
    "cancelled": ("brown", "slash"),
    DerivedFlowState.OPEN.value: ("grey", "ring"),
    DerivedFlowState.RUNNING.value: ("blue", "play"),
    DerivedFlowState.BLOCKED.value: ("violet", "pause"),
}
"""Colour and icon of each state of a flow."""
SINCE: Final = ("", "1h", "24h", "7d", "30d")
LIMITS: Final = ("50", "25", "100")
_MIX: Final = (
    ("completed", "green"),
    ("active", "blue"),
    ("suspended", "violet"),
    ("waiting_children", "teal"),
    ("rate_limited", "amber"),
    ("delayed", "sunk"),
    ("waiting", "sunk"),
    ("skipped", "sunk"),
    ("cancelled", "brown"),
    ("expired", "red"),
    ("failed", "red"),
)


class ListedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of the list."""

    flow: FlowSummary
    ran: timedelta | None
    """From its creation to its last summary, if it has ended."""
    mix: list[tuple[str, int]]
    """Colour and count of its members, state by state."""
    mix_words: str
    failed: int


def mix_of(counts: MemberCounts | None) -> list[tuple[str, int]]:
    """Colour and count of each state, in the order of a bar."""
    if counts is None:
        return []
    return [(hue, getattr(counts, name)) for name, hue in _MIX]


def mix_words(counts: MemberCounts | None) -> str:
    """The counts in words: `3 completed, 1 failed`."""
    if counts is None:
        return "not counted yet"
    found = [(name.replace("_", " "), getattr(counts, name)) for name, _ in _MIX]
    return ", ".join(f"{count:,} {name}" for name, count in found if count) or "no members"


def _listed(flow: FlowSummary) -> ListedFlow:
    counts = flow.counts
    ended = flow.counted_at if flow.status is not FlowStatus.ACTIVE else None
    return ListedFlow(
        flow=flow,
        ran=None if ended is None else ended - flow.created_at,
        mix=mix_of(counts),
        mix_words=mix_words(counts),
        failed=0 if counts is None else counts.failed + counts.expired,
    )


async def flows(visit: Visit) -> PageAnswer:
    """Flows, the newest first."""
    given = visit.queries("status")
    statuses = [each for each in FlowStatus if each.value in given]
    tag = visit.query("tag")
    key, sign, value = tag.partition("=")
    if tag and not sign:
        raise PageProblem(422, "A tag looks like app.name=value.", kind="invalid_input")
    since = parse_length(visit.query("since")) if visit.query("since") else None
    try:
        page = await visit.engine.list_flows(
            namespace=visit.namespace,
            statuses=statuses,
            flow_kind=visit.query("kind") or None,
            tag=(key, value) if tag else None,
            created_since=None if since is None else visit.now - min(since, timedelta(days=36500)),
            cursor=visit.query("cursor") or None,
            limit=int(visit.chosen("limit", LIMITS)),
        )
    except ValidationError as error:
        raise PageProblem(422, str(error), kind=error.code) from None
    values = {
        "flows": [_listed(each) for each in page.flows],
        "older": page.next_cursor and visit.again(cursor=page.next_cursor),
        "newest": visit.again(cursor=None) if visit.query("cursor") else "",
        "is_first": not visit.query("cursor"),
        "statuses": statuses,
        "STATUSES": list(FlowStatus),
        "SINCE": SINCE,
        "LOOKS": LOOKS,
        "is_filtered": bool(statuses or tag or since or visit.query("kind")),
        "all_namespaces": visit.namespace is None,
    }
    return PageAnswer(template="flows.html", title="Flows", section="flows", values=values)


ROUTES: Final = (screen("/flows", flows),)
