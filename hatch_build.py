"""The long description of the package: README.md, readable where its files are not at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)\s]+\)\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")


def without_relative_links(text: str) -> str:
    """The text with each link to a file of the repository as words and path: docs (`docs/a.md`).

    Pictures that are files of the repository are left out.
    """
    return _LINK.sub(r"\1 (`\2`)", _PICTURE.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Fills `readme`: a package index shows the text, and does not have the linked files."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": without_relative_links(text),
        }
