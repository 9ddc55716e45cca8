"""The files that pages load: named by a hash of their content, and kept by browsers for good."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Final

from flowfabric.dashboard.answers import Raw
from flowfabric.dashboard.problems import not_found

STATIC: Final = Path(__file__).parent / "static"
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_KEPT: Final = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    """The files of `static/`, all under one hash, so that modules import each other by name."""

    def __init__(self, folder: Path = STATIC) -> None:
        found = sorted(each for each in folder.rglob("*") if each.suffix in _MEDIA)
        self._files = {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}
        digest = hashlib.sha256()
        for name, data in self._files.items():
            digest.update(name.encode() + b"\0" + data + b"\0")
        self.version = digest.hexdigest()[:16]
        self._packed = {name: gzip.compress(data, 9) for name, data in self._files.items()}

    def path(self, name: str) -> str:
        """The path of the file below the dashboard."""
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self.version}/{name}"

    def answer(self, version: str, name: str, *, gzipped: bool) -> Raw:
        """The file; raises a `PageProblem` for one that is not there."""
        data = self._files.get(name)
        if data is None or version != self.version:
            raise not_found("There is no such file.")
        headers = {**_KEPT, "vary": "accept-encoding"}
        if gzipped:
            data, headers = self._packed[name], {**headers, "content-encoding": "gzip"}
        return Raw(data=data, media=_MEDIA[Path(name).suffix], headers=headers)
