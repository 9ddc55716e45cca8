"""Settings of the dashboard, from the environment."""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from flowfabric.errors import ConfigError

DASHBOARD: Final = "FF_DASHBOARD"
READONLY: Final = "FF_DASHBOARD_READONLY"
REDACT: Final = "FF_REDACT"
REDACTED_KEYS: Final = "password|secret|token|api.?key|authorization|cookie|card.?number"
_OFF: Final = ("0", "false", "no", "off")


def _flag(variable: str, *, default: bool) -> bool:
    said = os.environ.get(variable, "").strip().lower()
    return default if not said else said not in _OFF


def _pattern() -> re.Pattern[str]:
    said = os.environ.get(REDACT) or REDACTED_KEYS
    try:
        return re.compile(said, re.IGNORECASE)
    except re.error as error:
        raise ConfigError("dashboard", REDACT, f"{said!r} is no pattern: {error}") from None


def is_wanted() -> bool:
    """Is the dashboard served? Only `FF_DASHBOARD=0` leaves it out."""
    return _flag(DASHBOARD, default=True)


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the dashboard shows and allows. Raises `ConfigError` for an invalid setting."""

    readonly: bool = msgspec.field(default_factory=lambda: _flag(READONLY, default=False))
    """Nobody changes anything here, whatever the role."""
    redact: re.Pattern[str] = msgspec.field(default_factory=_pattern)
    """Values of keys that match are not shown."""
