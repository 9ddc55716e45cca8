"""From a template and its values to HTML; every value is escaped."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, cast

import jinja2
from markupsafe import Markup

from flowfabric.dashboard import csrf
from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.nav import entries
from flowfabric.dashboard.view import durations
from flowfabric.dashboard.view.sentences import BULK_ACTS, STATES, own_tags, reason_word, state_word
from flowfabric.dashboard.view.time_tags import ago_tag, running_tag
from flowfabric.dashboard.visit import Visit
from flowfabric.ids import ExecutionId
from flowfabric.version import __version__

TEMPLATES: Final = Path(__file__).parent / "templates"
MODULES: Final = (
    "times.js",
    "regions.js",
    "live.js",
    "dialogs.js",
    "keys.js",
    "prefs.js",
    "copies.js",
    "rows.js",
    "frames.js",
    "html.js",
    "vendor/idiomorph.js",
)
"""What every page imports: asked for at once, and not when the module before it was read."""
_PURE: Final = ("icon", "badge", "word")
"""Parts that depend on nothing but their arguments, and stand in every row of a list."""
_MOST_KEPT: Final = 256
_visit: Final[ContextVar[Visit]] = ContextVar("flowfabric_visit")


def _url(path: str, **query: object) -> str:
    return _visit.get().url(path, **query)


def _asset(name: str) -> str:
    visit = _visit.get()
    return visit.base + visit.site.assets.path(name)


def _relative(at: datetime) -> str:
    return durations.relative(at, _visit.get().now)


def _ago(at: datetime | None) -> Markup:
    return ago_tag(at, _visit.get().now)


def _running(at: datetime) -> Markup:
    return running_tag(at, _visit.get().now)


def path_id(execution_id: ExecutionId) -> str:
    """The id as it stands in addresses."""
    return f"{execution_id.partition_key}.{execution_id.uuid}"


def _execution_url(execution_id: ExecutionId, act: str = "", **query: object) -> str:
    tail = f"/{act}" if act else ""
    return _url(f"/executions/{path_id(execution_id)}{tail}", **query)


def _has(path: str) -> bool:
    """Is there such a screen?"""
    from flowfabric.dashboard.routes import PATHS  # the pages use this module

    return path in PATHS


def _short(value: object) -> str:
    """The last 8 characters of an id: the first are the time."""
    return str(value)[-8:]


def _environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    shared = cast("dict[str, Any]", env.globals)  # pyright: ignore[reportUnknownMemberType]
    shared.update(
        url=_url,
        asset=_asset,
        ago=_ago,
        running=_running,
        x_url=_execution_url,
        has=_has,
        STATES=STATES,
        MODULES=MODULES,
        BULK_ACTS=BULK_ACTS,
        version=__version__,
    )
    filters = cast("dict[str, Any]", env.filters)  # pyright: ignore[reportUnknownMemberType]
    filters.update(
        ago=_relative,
        iso=durations.iso,
        absolute=durations.absolute,
        lasting=durations.length,
        size=durations.size,
        number=durations.number,
        rate=durations.rate,
        short=_short,
        path_id=path_id,
        state_word=state_word,
        reason_word=reason_word,
        own_tags=own_tags,
    )
    # Regions are rendered alone, without the imports of their page: parts are globals.
    for name in ("ui", "payload", "chart"):
        parts = env.get_template(f"_parts/{name}.html").module
        shared.update({part: found for part, found in vars(parts).items() if part[0] != "_"})
    for name in _PURE:
        shared[name] = lru_cache(maxsize=_MOST_KEPT)(shared[name])
    return env


_env: Final = _environment()


@cache
def _compile_ahead() -> None:
    """The template of a flow is compiled while a person looks at the first page.

    That takes as long as everything else of its page together. The others take little.
    """
    threading.Thread(
        target=_env.get_template, args=("flow.html",), name="ff-templates", daemon=True
    ).start()


def values_of(visit: Visit, page: PageAnswer) -> dict[str, Any]:
    """What every template can use, and what the page gives it."""
    return {
        "visit": visit,
        "principal": visit.principal,
        "may": visit.may,
        "title": page.title,
        "section": page.section,
        "nav": entries(visit),
        "now": visit.now,
        "prefs": visit.prefs,
        "csrf_token": lambda: csrf.token(visit.visitor.secret or ""),
        "toast": "",
        "inbox_waiting": "",
        "all_known": (),
        **page.values,
    }


def render_page(visit: Visit, page: PageAnswer, **more: Any) -> bytes:
    """The whole page."""
    token = _visit.set(visit)
    try:
        template = _env.get_template(page.template)
        body = template.render({**values_of(visit, page), **more}).encode()
        _compile_ahead()
        return body
    finally:
        _visit.reset(token)


def render_block(visit: Visit, page: PageAnswer, block: str) -> bytes | None:
    """One block of the page alone; None if the page has no such block."""
    token = _visit.set(visit)
    try:
        template = _env.get_template(page.template)
        found = template.blocks.get(block)
        if found is None:
            return None
        context = template.new_context(values_of(visit, page))
        return "".join(found(context)).encode()
    finally:
        _visit.reset(token)


def render_bare(template: str, values: Mapping[str, Any]) -> bytes:
    """A page without a visit: nobody is known, or the database does not answer."""
    return _env.get_template(template).render(values).encode()
