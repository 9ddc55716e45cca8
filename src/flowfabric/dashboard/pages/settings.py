"""Settings: who looks, what runs here, and what the doctor finds."""

from __future__ import annotations

import platform
import time
from typing import Any, Final

from flowfabric.config import redact
from flowfabric.counters import POOL_IN_USE
from flowfabric.dashboard.access import cookie
from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.prefs import CHOICES, COOKIE, Preferences
from flowfabric.dashboard.problems import FormProblem, PageProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.db.doctor import Finding, Verdict, examine
from flowfabric.db.migrate import needed_version
from flowfabric.db.server_version import server_version
from flowfabric.db.table_health import table_health
from flowfabric.db.transaction import run
from flowfabric.errors import FlowFabricError
from flowfabric.states import Scope
from flowfabric.version import __version__

_EVERY: Final = 10.0
_A_YEAR: Final = 365 * 86400
TABS: Final = ("me", "info", "doctor")
PREFERENCES: Final = {
    "theme": "Theme",
    "zone": "Times in",
    "density": "Density",
    "keys": "Shortcuts",
}
HUES: Final = {Verdict.OK: "green", Verdict.WARN: "amber", Verdict.FAIL: "red"}
_examined: dict[str, tuple[float, list[Finding]]] = {}


async def settings(visit: Visit) -> PageAnswer:
    """One of three tabs."""
    tabs = TABS if visit.may(Scope.ADMIN) else TABS[:2]
    tab = visit.chosen("tab", tabs)
    values: dict[str, Any] = {"tab": tab, "tabs": tabs, "HUES": HUES}
    match tab:
        case "info":
            values |= await _info(visit)
        case "doctor":
            values["findings"] = await _doctor(visit) if visit.query("run") else None
        case _:
            values["sessions"] = await _sessions(visit)
            values["session"] = visit.visitor.session
            values |= {"choices": CHOICES, "PREFERENCES": PREFERENCES}
    return PageAnswer(template="settings.html", title="Settings", section="settings", values=values)


async def _sessions(visit: Visit) -> list[Any]:
    session = visit.visitor.session
    return [] if session is None else await visit.engine.list_sessions(session.token_hash)


async def _info(visit: Visit) -> dict[str, Any]:
    engine, config = visit.engine, visit.engine.pool.config
    facts = [
        ("Version", __version__),
        ("Schema", str(needed_version())),
        ("Python", platform.python_version()),
        ("Postgres", await run(engine.pool, "server_version", server_version)),
        ("Partitions", str(engine.partitions)),
        ("Database", redact(config.dsn) if visit.may(Scope.ADMIN) else "not shown"),
        ("Connections", f"{_in_use()} in use, {config.pool_size} at most in a pool"),
        ("Behind a pooler", "yes" if config.pooler else "no"),
        ("Capabilities", ", ".join(_capabilities(visit))),
        ("Viewers", str(visit.site.pulse.viewers)),
        ("Time of the database", visit.now.strftime("%Y-%m-%d %H:%M:%S UTC")),
    ]
    tables = await run(engine.pool, "table_health", table_health) if visit.may(Scope.ADMIN) else []
    return {
        "facts": facts,
        "gaps": engine.events.gap_ages(),
        "tables": tables,
        "configured": _configured(visit) if visit.may(Scope.ADMIN) else [],
    }


def _in_use() -> int:
    """Connections of this process that run something now."""
    return round(sum(POOL_IN_USE.snapshot().values()))


def _capabilities(visit: Visit) -> list[str]:
    """What this process does beside showing pages."""
    server = visit.site.server
    if server is None:
        return ["dashboard inside another application"]
    found = ["REST API", "dashboard", "metrics"]
    found += ["API documentation"] if server.docs else []
    return [*found, *(["answers by link"] if visit.site.callbacks is not None else [])]


def _configured(visit: Visit) -> list[tuple[str, str]]:
    """Settings of the server and the dashboard, without secrets."""
    own, server = visit.site.settings, visit.site.server
    found = [("Read-only", "yes" if own.readonly else "no"), ("Hidden keys", own.redact.pattern)]
    if server is not None:
        found += [
            ("Listens on", server.listen),
            ("Answers by link", "yes" if server.callbacks else "no, FF_CALLBACKS=1 takes them"),
        ]
    return found


async def _doctor(visit: Visit) -> list[Finding]:
    """What the checks find; at most every ten seconds for everybody."""
    dsn = visit.engine.pool.config.dsn
    now = time.monotonic()
    kept = _examined.get(dsn)
    if kept is None or now - kept[0] > _EVERY:
        try:
            kept = _examined[dsn] = now, await examine(dsn)
        except FlowFabricError as error:
            raise PageProblem(503, type(error).__name__, kind=error.code) from None
    return kept[1]


def last_failures(dsn: str) -> list[str]:
    """The checks that failed when the doctor last looked; it looks when somebody asks it to."""
    kept = _examined.get(dsn)
    found = [] if kept is None else kept[1]
    return [each.check for each in found if each.verdict is Verdict.FAIL]


async def ask_close(visit: Visit) -> Dialog:
    return Dialog(
        question="End this session?",
        effect="The browser that has it must log in again.",
        button="End session",
        back="/settings",
        reason=False,
    )


async def do_close(visit: Visit, form: SentForm) -> ActDone:
    own = visit.visitor.session
    if own is None:
        raise PageProblem(404, "Nobody is logged in by a token here.", kind="not_found")
    session_id = visit.uuid("session_id")
    closed = await visit.engine.close_session(session_id, token_hash=own.token_hash)
    visit.site.access.forget_kept()
    return ActDone(message="The session has ended." if closed else "The session had ended before.")


async def ask_logout(visit: Visit) -> Dialog:
    return Dialog(
        question="Log out?",
        effect="This session ends.",
        button="Log out",
        back="/settings",
        reason=False,
    )


async def do_logout(visit: Visit, form: SentForm) -> ActDone:
    await visit.site.access.log_out(visit.visitor)
    return ActDone(message="You are logged out.", to=f"{visit.base}/login")


async def ask_prefs(visit: Visit) -> Dialog:
    return Dialog(
        question="Change your preferences?",
        effect="They are kept in this browser.",
        button="Keep preferences",
        back="/settings",
        reason=False,
        fields=[
            DialogField(
                name=name,
                label=PREFERENCES[name],
                kind="select",
                value=getattr(visit.prefs, name),
                choices=[(each, each) for each in words],
            )
            for name, words in CHOICES.items()
        ],
    )


async def do_prefs(visit: Visit, form: SentForm) -> ActDone:
    given = {name: form.text(name, getattr(visit.prefs, name)) for name in CHOICES}
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise FormProblem(name, "must be one of the choices")
    kept = Preferences(**given).cookie()
    visit.set_cookies.append(
        cookie(COOKIE, kept, secure=visit.secure, seconds=_A_YEAR, readable=True)
    )
    return ActDone(message="Your preferences are kept.", reload=True)


ROUTES: Final = (
    screen("/settings", settings),
    act("/prefs", ask_prefs, do_prefs, Scope.ANY),
    act("/sessions/{session_id}/close", ask_close, do_close, Scope.ANY),
    act("/logout", ask_logout, do_logout, Scope.ANY),
)
