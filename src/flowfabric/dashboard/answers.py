"""What a page answers with, and the headers that every answer has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types ff"
)
HTML: Final = "text/html; charset=utf-8"
SECURITY: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A template with what it shows; `title` is its only `<h1>`."""

    template: str
    title: str
    values: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    status: int = 200
    section: str = ""
    """The entry of the navigation that is marked as the current one."""


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """The browser goes on to this address of the dashboard; the next page shows `toast`."""

    to: str
    toast: str = ""


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes with their content type."""

    data: bytes
    media: str
    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is sent piece by piece as it is read."""

    pieces: AsyncGenerator[bytes]
    media: str
    headers: Mapping[str, str]


Answer: TypeAlias = PageAnswer | Redirect | Raw | Streamed


def download(data: bytes, name: str, media: str = "application/octet-stream") -> Raw:
    """Bytes that a browser stores as a file, and never shows."""
    return Raw(data=data, media=media, headers=_stored_as(name))


def download_pieces(pieces: AsyncGenerator[bytes], name: str, media: str) -> Streamed:
    """As `download`, of which only a piece is in memory at a time."""
    return Streamed(pieces=pieces, media=media, headers=_stored_as(name))


def _stored_as(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
