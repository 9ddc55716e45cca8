"""ETags: a version, which `If-Match` compares, and a digest of the answer for `If-None-Match`."""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import blake2b
from typing import Final

from flowfabric.instants import LAST_MS, epoch_ms, instant
from flowfabric.server.call import ApiCall
from flowfabric.server.problems import RequestProblem

_DIGEST: Final = 8
_TAG: Final = re.compile(r'"([0-9a-z_.]{1,80}?)(?:-[0-9a-f]{16})?"')
_CHANGED: Final = re.compile(r"([0-9a-f]{1,14})(\..*)?")


def etag_of(version: str, body: bytes) -> str:
    """The ETag of an answer; the same version may be answered in several forms."""
    return f'"{version}-{blake2b(body, digest_size=_DIGEST).hexdigest()}"'


def is_none_match(given: str | None, etag: str) -> bool:
    """Does `If-None-Match` name this ETag, so that its holder needs no other answer?"""
    if given is None:
        return False
    return given.strip() == "*" or etag in (
        each.strip().removeprefix("W/") for each in given.split(",")
    )


def changed_version(changed_at: datetime, *more: object) -> str:
    """The version of what changed last at this instant."""
    return ".".join([f"{epoch_ms(changed_at):x}", *(f"{each}" for each in more)])


def expected_version(call: ApiCall) -> str | None:
    """The version that `If-Match` names; None if any is right.

    Raises a `RequestProblem` (412) for what is no ETag of this server.
    """
    given = call.header("if-match")
    if given is None or given.strip() == "*":
        return None
    found = _TAG.fullmatch(given.strip())
    if found is None:
        raise RequestProblem("stale_view", "If-Match is not an ETag of this server")
    return found[1]


def seen_at(call: ApiCall) -> datetime | None:
    """When the version was current that `If-Match` names; None if any is right.

    The engine compares it inside its transaction, and raises `StaleView`.
    """
    version = expected_version(call)
    if version is None:
        return None
    found = _CHANGED.fullmatch(version)
    if found is None or int(found[1], 16) > LAST_MS:
        raise RequestProblem("stale_view", "If-Match is not an ETag of what the path names")
    return instant(int(found[1], 16))
