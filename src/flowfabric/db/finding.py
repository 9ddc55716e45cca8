"""What a check of `ff doctor` found."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """How a check ended; `fail` means that the database cannot be used safely."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check; `advice` says what to do, or what would be better still."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
