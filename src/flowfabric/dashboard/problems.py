"""What a page says instead of its content: not found, refused, changed meanwhile."""

from __future__ import annotations

from typing import Final

STALE: Final = "stale_view"
"""Something has changed since the person looked."""
_TITLES: Final = {
    400: "The request cannot be understood",
    401: "Log in to go on",
    403: "You may not do this",
    404: "There is no such page",
    405: "This page cannot be used that way",
    409: "It was not possible",
    412: "It changed while you looked",
    413: "That is too much",
    421: "This host is not served here",
    422: "Something in the request is not valid",
    429: "Too many requests",
    500: "Something went wrong here",
    503: "The database does not answer",
    504: "The database took too long",
}


class PageProblem(Exception):
    """The page cannot be shown; `status` and `detail` say why."""

    def __init__(self, status: int, detail: str, *, kind: str = "", title: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.kind = status, detail, kind
        self.title = title or title_of(status)


class FormProblem(Exception):
    """A field of a form has a value that cannot be taken."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field, self.detail = field, detail


def title_of(status: int) -> str:
    """The heading of a page with this status."""
    return _TITLES.get(status, "It was not possible")


def not_found(detail: str = "") -> PageProblem:
    """There is no such thing, or it is not one that the caller may see."""
    return PageProblem(404, detail or "Nothing is known under this address.", kind="not_found")
