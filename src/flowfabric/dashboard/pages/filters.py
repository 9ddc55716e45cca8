"""The filter of a list of executions: from the address, in words, and for the engine."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import Any, Final, Literal, cast

import msgspec

from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.view.durations import length, parse_length
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.search import Search
from flowfabric.errors import EngineError
from flowfabric.ids import parse_uuid
from flowfabric.states import PublicState

SORTS: Final = ("new", "old", "long")
LIMITS: Final = ("50", "25", "100")
ENDED_SINCE: Final = "24h"
"""How far back ended executions are looked for if nothing is said."""
_MINUTE, _MONTH = timedelta(minutes=1), timedelta(days=30)
_WORDS: Final = {
    "lane": "on lane {}",
    "flow": "in flow {}",
    "worker": "held by {}",
    "key": "with key {}",
    "reason": "whose reason has “{}”",
    "min_attempts": "with {} attempts or more",
}


PARAMETERS: Final = frozenset(
    {"state", "kind", "tag", "since", "before", "divergent", "unserved", "sort", *_WORDS}
)
"""The parameters of an address that are a filter."""


class FilterCondition(msgspec.Struct, frozen=True):
    """One condition, in words, and the address of the list without it."""

    text: str
    without: str


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of executions shows."""

    states: tuple[PublicState, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    texts: dict[str, str] = {}
    """Conditions with one value each: lane, flow, worker, key, reason, min_attempts."""
    since: str = ""
    before: str = ""
    divergent: bool = False
    unserved: bool = False
    sort: str = "new"

    @property
    def is_empty(self) -> bool:
        """Is nothing asked for?"""
        return not (
            self.states
            or self.kinds
            or self.tags
            or self.texts
            or self.since
            or self.before
            or self.divergent
            or self.unserved
        )

    @property
    def is_by_route(self) -> bool:
        """Are only namespace, lane and kinds asked for, whatever the states?"""
        others = self.tags or self.since or self.before or self.divergent or self.unserved
        return not others and not (self.texts.keys() - {"lane"})

    @property
    def ended_within(self) -> timedelta | None:
        """The window in which ends are counted for the same routes; None if they cannot be."""
        within = parse_length(self.since or ENDED_SINCE)
        alone = msgspec.structs.replace(self, since="").is_by_route
        return within if alone and within and _MINUTE <= within <= _MONTH else None

    def earlier_than(self, visit: Visit) -> datetime | None:
        """What was created before this instant is looked for; None: whenever it was."""
        if not self.before:
            return None
        ago = parse_length(self.before)
        return _instant("before", self.before) if ago is None else visit.now - ago

    def search(self, visit: Visit) -> Search:
        """The same for the engine; raises a `PageProblem` for a value that cannot be."""
        texts: dict[str, Any] = dict(self.texts)
        ended = bool(self.states) and all(each.is_terminal for each in self.states)
        within = parse_length(self.since or (ENDED_SINCE if ended else "3650d"))
        since = None if within is not None else _instant("since", self.since)
        default = not self.since and not ended
        try:
            return Search(
                namespace=visit.namespace or ("default" if "key" in texts else None),
                lane_id=texts.get("lane"),
                execution_kinds=self.kinds,
                public_states=self.states,
                tags=self.tags,
                flow_id=parse_uuid(texts["flow"], field="flow") if "flow" in texts else None,
                worker=texts.get("worker"),
                idempotency_key=texts.get("key"),
                reason=texts.get("reason"),
                min_attempts=int(texts.get("min_attempts", 0)),
                created_within=None if default or within is None else within,
                created_since=since,
                created_before=self.earlier_than(visit),
                divergent=self.divergent,
                unserved=self.unserved,
                sort=cast("Literal['new', 'old', 'long']", self.sort),
            )
        except EngineError as error:
            raise PageProblem(422, str(error), kind=error.code) from None

    def parameters(self) -> dict[str, object]:
        """The same as parameters of an address."""
        return {
            "state": [each.value for each in self.states],
            "kind": list(self.kinds),
            "tag": [f"{key}={value}" for key, value in self.tags],
            **self.texts,
            "since": self.since,
            "before": self.before,
            "divergent": "1" if self.divergent else "",
            "unserved": "1" if self.unserved else "",
            "sort": self.sort if self.sort != "new" else "",
        }

    def conditions(self, visit: Visit) -> list[FilterCondition]:
        """Every condition in words."""
        found: list[FilterCondition] = []
        for state in self.states:
            left = [each.value for each in self.states if each != state]
            found.append(FilterCondition(state_word(state), visit.again(state=left, cursor=None)))
        for kind in self.kinds:
            kinds = [each for each in self.kinds if each != kind]
            found.append(FilterCondition(f"of kind {kind}", visit.again(kind=kinds, cursor=None)))
        for key, value in self.tags:
            tags = [f"{k}={v}" for k, v in self.tags if (k, v) != (key, value)]
            found.append(
                FilterCondition(f"tagged {key}={value}", visit.again(tag=tags, cursor=None))
            )
        for name, value in self.texts.items():
            text = _WORDS[name].format(value)
            found.append(FilterCondition(text, visit.again(**{name: None, "cursor": None})))
        if self.since:
            within = parse_length(self.since)
            text = f"of the last {length(within)}" if within else f"since {self.since}"
            found.append(FilterCondition(text, visit.again(since=None, cursor=None)))
        if self.before:
            ago = parse_length(self.before)
            text = f"created more than {length(ago)} ago" if ago else f"before {self.before}"
            found.append(FilterCondition(text, visit.again(before=None, cursor=None)))
        if self.divergent:
            found.append(
                FilterCondition("stopped for review", visit.again(divergent=None, cursor=None))
            )
        if self.unserved:
            found.append(
                FilterCondition("that nobody can run", visit.again(unserved=None, cursor=None))
            )
        return found

    def in_words(self, visit: Visit) -> str:
        """The whole filter in words."""
        return ", ".join(each.text for each in self.conditions(visit)) or "all executions"


def _instant(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        detail = f"{name}: {text!r} is neither a length such as 24h nor an instant with a zone."
        raise PageProblem(422, detail, kind="invalid_input")
    return found


def filter_of(visit: Visit) -> ExecutionFilter:
    """The filter in the address; raises a `PageProblem` for a value that cannot be."""
    states: list[PublicState] = []
    for given in visit.queries("state"):
        if given not in PublicState.__members__.values():
            raise PageProblem(422, f"{given!r} is no state.", kind="invalid_input")
        states.append(PublicState(given))
    tags: list[tuple[str, str]] = []
    for given in visit.queries("tag")[:3]:
        key, equals, value = given.partition("=")
        if not equals:
            raise PageProblem(422, f"tag: {given!r} is not KEY=VALUE.", kind="invalid_input")
        tags.append((key, value))
    texts = {name: visit.query(name) for name in _WORDS if visit.query(name)}
    attempts = texts.get("min_attempts", "0")
    if not (attempts.isascii() and attempts.isdigit() and len(attempts) < 7):
        raise PageProblem(422, f"min_attempts: {attempts!r} is no number.", kind="invalid_input")
    return ExecutionFilter(
        states=tuple(dict.fromkeys(states)),
        kinds=tuple(dict.fromkeys(visit.queries("kind"))),
        tags=tuple(tags),
        texts=texts,
        since=visit.query("since"),
        before=visit.query("before"),
        divergent=visit.query("divergent") == "1",
        unserved=visit.query("unserved") == "1",
        sort=visit.chosen("sort", SORTS),
    )


def parse_query(text: str) -> dict[str, list[str]] | None:
    """`state:failed kind:charge since:24h` as parameters; None if it is not of that form."""
    found: dict[str, list[str]] = {}
    try:
        parts = shlex.split(text)
    except ValueError:
        return None
    for part in parts:
        name, colon, value = part.partition(":")
        if not colon or name not in PARAMETERS or not value:
            return None
        found.setdefault(name, []).append(value)
    return found or None


QUERIES: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("Waiting too long", {"state": "waiting", "before": "10m", "sort": "old"}),
    ("Running longest", {"state": "active", "sort": "long"}),
    ("Failed today", {"state": "failed", "since": "24h"}),
    ("Retried often", {"min_attempts": "3", "since": "24h"}),
    ("Waits for a person", {"state": "suspended", "sort": "old"}),
    ("Nobody can run it", {"state": "waiting", "unserved": "1", "sort": "old"}),
)
"""Questions that are asked often, as parameters."""

COLUMNS: Final = ("lane", "created", "waited", "ran", "attempts", "priority", "worker", "reason")
"""The columns after state and kind."""
_SELDOM: Final = frozenset({"priority", "worker"})


def columns_of(visit: Visit) -> list[str]:
    """The columns in the address, `all` of them, or those that are shown if nothing is said."""
    given = visit.queries("cols")
    if "all" in given:
        return list(COLUMNS)
    chosen = [each for each in COLUMNS if each in given]
    return chosen or [each for each in COLUMNS if each not in _SELDOM]


SINCES: Final = ("15m", "1h", "6h", "24h", "7d", "30d")
