"""Instants as markup. Lists have hundreds: a macro takes five times as long to make one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from flowfabric.dashboard.view.durations import length, relative

NONE: Final = Markup('<span class="faint">\N{EN DASH}</span>')


def ago_tag(at: datetime | None, now: datetime) -> Markup:
    """How long ago the instant was, with the instant itself for machines and as a title."""
    if at is None:
        return NONE
    stamp = at.astimezone(UTC).isoformat(" ", "milliseconds")
    return Markup(  # noqa: S704 made of an instant only
        f'<time datetime="{stamp[:10]}T{stamp[11:23]}Z" data-form="ago"'
        f' title="{stamp[:19]} UTC">{relative(at, now)}</time>'
    )


def running_tag(at: datetime, now: datetime) -> Markup:
    """How long something has lasted that began then."""
    stamp = at.astimezone(UTC).isoformat(" ", "milliseconds")
    return Markup(  # noqa: S704 made of an instant only
        f'<time datetime="{stamp[:10]}T{stamp[11:23]}Z" data-form="for"'
        f' title="since {stamp[:19]} UTC">{length(max(0.0, (now - at).total_seconds()))}</time>'
    )
