"""The icons of states as paths: a thousand references to symbols take four times as many nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SPRITE: Final = Path(__file__).parent.parent / "templates/_parts/icons.html"
_ALONE: Final = re.compile(
    r'<symbol id="i-(\w+)" viewBox="0 0 16 16"><path d="([^"]+)"[^<>]*/></symbol>'
)

ICON_PATHS: Final = dict(_ALONE.findall(_SPRITE.read_text()))
"""The path of each icon of the sprite that consists of one, by name.

Those of states are relative throughout, `m…`: after `M24 40` they are drawn at that place.
"""
