"""Just enough of the Postgres protocol: which statement a client runs, and when it is done."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from flowfabric.db.faults import statement_name


class Requests:
    """What a client sends; told chunk by chunk."""

    def __init__(self) -> None:
        self._messages = _Messages(typed=False)
        self._statements: dict[bytes, str] = {}

    def feed(self, data: bytes) -> list[str]:
        """The names of the statements that these bytes ask to run."""
        return [name for kind, body in self._messages.feed(data) for name in self._run(kind, body)]

    def _run(self, kind: bytes, body: bytes) -> Iterator[str]:
        if kind == b"P":  # Parse: its name, its text
            name, text, *_ = body.split(b"\0", 2)
            self._statements[name] = _name_of(text)
        elif kind == b"B":  # Bind: its portal, the name of what was parsed
            _portal, name, *_ = body.split(b"\0", 2)
            yield self._statements.get(name, "statement")
        elif kind == b"Q":
            yield _name_of(body.rstrip(b"\0"))


class Answers:
    """What the server sends; told chunk by chunk."""

    def __init__(self) -> None:
        self._messages = _Messages(typed=True)

    def feed(self, data: bytes) -> bytes:
        """One letter for each `ReadyForQuery` in these bytes: `I` committed, `T` in a transaction,
        `E` in one that failed."""
        return b"".join(body for kind, body in self._messages.feed(data) if kind == b"Z")


class _Messages:
    """Bytes in, whole messages out; a client's first has no type."""

    def __init__(self, *, typed: bool) -> None:
        self._typed, self._rest = typed, b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        data, at = self._rest + data, 0
        while True:
            head = at + self._typed
            if head + 4 > len(data):
                break
            (length,) = struct.unpack_from("!I", data, head)
            if head + length > len(data):
                break
            yield data[at:head], data[head + 4 : head + length]
            at, self._typed = head + length, True
        self._rest = data[at:]


def _name_of(text: bytes) -> str:
    sql = text.decode(errors="replace").strip()
    if sql.startswith("--"):
        return statement_name(sql).split(":")[0]
    return sql.partition(" ")[0].rstrip(";").lower()
