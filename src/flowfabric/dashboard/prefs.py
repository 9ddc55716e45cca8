"""What a person prefers, in a cookie, so that the first byte of a page has it."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

import msgspec

COOKIE: Final = "ff_prefs"
CHOICES: Final = {
    "theme": ("auto", "light", "dark"),
    "zone": ("utc", "local"),
    "density": ("cosy", "compact"),
    "keys": ("on", "off"),
}


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """Theme, zone of times, density of tables, and whether keys are shortcuts."""

    theme: str = "auto"
    zone: str = "local"
    density: str = "cosy"
    keys: str = "on"

    @classmethod
    def of_cookie(cls, text: str) -> Preferences:
        """Those of the cookie; a word that is not known counts as not chosen."""
        found = {
            name: value
            for name, value in parse_qsl(text.replace("|", "&"))
            if value in CHOICES.get(name, ())
        }
        return cls(**found)

    def cookie(self) -> str:
        """The value of the cookie."""
        return "|".join(f"{name}={getattr(self, name)}" for name in CHOICES)
