"""One request to the dashboard: who looks, at which namespace, at what time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode
from uuid import UUID

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.prefs import Preferences
from flowfabric.dashboard.problems import FormProblem, PageProblem, not_found
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.instants import instant
from flowfabric.server.access.principal import Principal
from flowfabric.states import Scope

if TYPE_CHECKING:
    from flowfabric.dashboard.access import Visitor
    from flowfabric.dashboard.site import Site

REASON: Final = "reason"
SEEN: Final = "seen"
"""The field and the parameter with the version that a person has seen."""
_READS: Final = frozenset({Scope.READ, Scope.PUBLIC, Scope.ANY})
_SHORTEST, _LONGEST = 3, 1000
T = TypeVar("T")


_PLAIN: Final = re.compile(r"[A-Za-z0-9/.:_~-]*")


def _quoted(path: str) -> str:
    """The path as it stands in an address; most have nothing to escape."""
    return path if _PLAIN.fullmatch(path) else quote(path, safe="/.:-_~")


class SentForm:
    """The fields of a form that was sent."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._fields: dict[str, list[str]] = {}
        for name, value in pairs:
            self._fields.setdefault(name, []).append(value)

    def text(self, name: str, default: str = "") -> str:
        """The first value of the field; raises `FormProblem` for one that cannot be stored."""
        found = self._fields.get(name, [default])[0]
        if "\x00" in found:
            raise FormProblem(name, "must not contain a NUL character")
        return found.replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        """Every value of the field."""
        return list(self._fields.get(name, ()))

    def whole(self, name: str, *, low: int, high: int) -> int:
        """A whole number; raises `FormProblem`."""
        given = self.text(name).strip()
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
            raise FormProblem(name, "must be a whole number")
        if not low <= int(given) <= high:
            raise FormProblem(name, f"must be {low} to {high}")
        return int(given)

    def reason(self) -> str:
        """Why something is changed; raises `FormProblem` unless it has 3 to 1,000 characters."""
        given = self.text(REASON).strip()
        if not _SHORTEST <= len(given) <= _LONGEST:
            raise FormProblem(REASON, f"must have {_SHORTEST} to {_LONGEST:,} characters")
        return given

    def seen_at(self) -> datetime | None:
        """When the version was current that the person saw; None if the form does not say."""
        given = self.text(SEEN).partition(".")[0]
        if not given:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 15):
            raise PageProblem(422, f"{given!r} is no version.", kind="invalid_input")
        return instant(int(given))

    def see(self, version: str) -> None:
        """The person is taken to have seen this version."""
        self._fields[SEEN] = [version]

    def given(self) -> dict[str, str]:
        """The first value of every field."""
        return {name: values[0] for name, values in self._fields.items()}


class Visit:
    """What a page needs of the request that it answers."""

    def __init__(
        self,
        site: Site,
        scope: Mapping[str, Any],
        visitor: Visitor,
        *,
        headers: Mapping[bytes, bytes],
        now: datetime,
        prefs: Preferences,
        request_id: str,
    ) -> None:
        self.site, self.visitor, self.headers = site, visitor, headers
        self.now, self.prefs, self.request_id = now, prefs, request_id
        self.base: str = scope.get("root_path", "")
        self.path: str = scope["path"].removeprefix(self.base)
        self.raw_query: str = scope["query_string"].decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        self.origin: str = f"{scope.get('scheme', 'http')}://{host}"
        self.address: str = (scope.get("client") or ("", 0))[0]
        self.secure: bool = scope.get("scheme") == "https"
        self.params: Mapping[str, str] = {}
        self.set_cookies: list[str] = []
        """Cookies that the answer to an act sets."""
        try:
            pairs = parse_qsl(self.raw_query, keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError):
            raise PageProblem(400, "The address is not UTF-8.") from None
        if any("\x00" in name or "\x00" in value for name, value in pairs):
            raise PageProblem(400, "The address contains a NUL character.")
        self._query = pairs
        self.namespace = self._namespace()

    @property
    def engine(self) -> Engine:
        return self.site.engine

    @property
    def principal(self) -> Principal:
        return self.visitor.principal

    @property
    def actor(self) -> str:
        """Whom operator events name."""
        return self.principal.label

    # The query.

    def query(self, name: str, default: str = "") -> str:
        """The first value of a parameter, without white space around it."""
        return next((value.strip() for key, value in self._query if key == name), default)

    def queries(self, name: str) -> list[str]:
        """Every value of a parameter that is not empty."""
        return [value.strip() for key, value in self._query if key == name and value.strip()]

    def chosen(self, name: str, choices: Sequence[str]) -> str:
        """The value of a parameter, or the first choice if it is none of them."""
        found = self.query(name)
        return found if found in choices else choices[0]

    @property
    def region(self) -> str:
        """The region that is asked for; empty for the whole page."""
        return self.query("_region")

    def shows(self, region: str) -> bool:
        """Is the region part of the answer?"""
        return self.region in ("", region)

    # Addresses.

    def url(self, path: str, **query: object) -> str:
        """An address of the dashboard; the namespace that was chosen stays chosen."""
        pairs: list[tuple[str, str]] = []
        chosen = self.query("ns")
        if chosen and "ns" not in query:
            pairs.append(("ns", chosen))
        for name, value in query.items():
            values: list[object] = value if isinstance(value, list) else [value]  # pyright: ignore
            pairs += [(name, str(each)) for each in values if each is not None and each != ""]
        text = f"?{urlencode(pairs)}" if pairs else ""
        return f"{self.base}{_quoted(path)}{text}"

    def again(self, **changes: object) -> str:
        """This page with some of its parameters changed; None leaves one out."""
        pairs = [(k, v) for k, v in self._query if k not in changes and k != "_region" and v]
        for name, value in changes.items():
            values: list[object] = value if isinstance(value, list) else [value]  # pyright: ignore
            pairs += [(name, str(each)) for each in values if each is not None and each != ""]
        text = f"?{urlencode(pairs)}" if pairs else ""
        return f"{self.base}{_quoted(self.path)}{text}"

    # What may be seen and done.

    def may(self, scope: Scope | str) -> bool:
        """May the person do this here?"""
        wanted = Scope(scope)
        if self.site.settings.readonly and wanted not in _READS:
            return False
        return wanted in self.principal.scopes

    @property
    def readonly(self) -> bool:
        """Can nothing be changed by this person?"""
        return not self.may(Scope.WRITE)

    def require(self, scope: Scope) -> None:
        """Raise a `PageProblem` unless the person may do this."""
        if self.may(scope):
            return
        if self.readonly:
            raise PageProblem(403, "This dashboard is read-only for you.", kind="read_only")
        detail = f"{self.principal.label} has not the scope {scope.value}."
        raise PageProblem(403, detail, kind="forbidden")

    def sees(self, namespace: str | None) -> bool:
        """Is it a namespace that the page shows?"""
        if self.namespace is not None and self.query("ns"):
            return namespace == self.namespace
        return self.principal.sees(namespace)

    def _namespace(self) -> str | None:
        """The namespace that is looked at; None: all of them."""
        given = self.query("ns")
        if given:
            if not self.principal.sees(given):
                raise not_found(f"There is no namespace {given!r}.")
            return given
        return None if self.principal.everywhere else self.principal.namespaces[0]

    # Ids in the path.

    def execution_id(self, name: str = "execution_id") -> ExecutionId:
        """The id in the path; raises a `PageProblem` for what is none."""
        try:
            return parse_execution_id(self.params[name])
        except EngineError:
            text = self.params[name]
            raise not_found(f"{text!r} is no id of an execution.") from None

    async def execution(self, *, with_body: bool = False) -> ExecutionSnapshot:
        """The execution of the path; raises a `PageProblem` for one that cannot be seen."""
        wanted = self.execution_id()
        found = None
        if wanted.partition_key < self.engine.partitions:
            found = await self.engine.describe_execution(wanted, with_body=with_body)
        if found is None or not self.principal.sees(found.namespace):
            detail = (
                f"No execution {wanted} is known. An execution that has ended is deleted after the"
                " retention of its lane."
            )
            raise not_found(detail)
        return found

    def uuid(self, name: str) -> UUID:
        """The id in the path; raises a `PageProblem` for what is none."""
        try:
            return parse_uuid(self.params[name], field=name)
        except EngineError:
            raise not_found(f"{self.params[name]!r} is no id.") from None

    async def shared(self, name: str, read: Callable[[], Awaitable[T]], *more: str) -> T:
        """What `read` gives, read once a second for all pages that show the same namespace.

        It depends on nothing but the namespace, the addresses of this dashboard, and `more`.
        """
        key = (name, self.base, self.namespace or "", self.query("ns"), *more)
        found: T = await self.site.parts.of(key, read)
        return found

    async def namespaces(self) -> list[str]:
        """The namespaces that the page looks at, by name."""
        if self.namespace is not None:
            return [self.namespace]
        return await self.site.namespaces()
