"""Pages of lists: `items`, the cursor of the next page, and a `Link` to it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final, NewType
from urllib.parse import urlencode

import msgspec

from flowfabric.pages import MAX_PAGE
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.problems import invalid

DEFAULT_LIMIT: Final = 50
FreeText = NewType("FreeText", str)
"""A text of a list in a URL that may have commas: the parameter is repeated instead."""


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many items a page has, and where it begins."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


class NamespaceQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The namespace in which is looked."""

    namespace: str | None = None


class NamespacePageQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of one namespace."""

    namespace: str | None = None


def tag_of(given: str | None) -> tuple[str, str] | None:
    """The tag that a parameter names as `key=value`; raises a `RequestProblem`."""
    if given is None:
        return None
    key, found, value = given.partition("=")
    if not found:
        raise invalid("tag", "must be key=value")
    return key, value


@functools.cache
def page_of(member: Any) -> Any:
    """The type of a page of these items."""
    return msgspec.defstruct(
        f"{member.__name__}List",
        [("items", list[member]), ("next_cursor", str | None)],
        namespace={"__doc__": f"A page of `{member.__name__}`; without a cursor it is the last."},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


def check_limit(limit: int) -> int:
    """The limit, if it is 1 to 1,000; raises a `RequestProblem`."""
    if not 1 <= limit <= MAX_PAGE:
        raise invalid("limit", f"{limit} must be 1 to {MAX_PAGE}")
    return limit


def page(
    call: ApiCall, member: Any, items: Iterable[Any], next_cursor: object, query: msgspec.Struct
) -> Reply:
    """The page, with a link to the next one if there is one."""
    cursor = None if next_cursor is None else str(next_cursor)
    value = page_of(member)(items=list(items), next_cursor=cursor)
    return Reply(value=value, headers=link_to_next(call, cursor, query))


def link_to_next(call: ApiCall, cursor: str | None, query: msgspec.Struct) -> dict[str, str]:
    """The header `Link` to the page after the cursor; none without a cursor."""
    if cursor is None:
        return {}
    given = {name: each for name, each in msgspec.to_builtins(query).items() if each is not None}
    link = f"<{call.url}?{urlencode({**given, 'cursor': cursor}, doseq=True)}>"
    return {"link": f'{link}; rel="next"'}
