"""HTTP connections of a server process: an answer that is known as a whole is one write.

An ASGI server writes the head of an answer before it knows the body. For the short answers of most
routes a second write is a fifth of what the request costs, here and in the client that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from flowfabric.server.asgi import AT_ONCE

WRITTEN_FOR: Final = "0.54."
"""The releases of uvicorn whose internals `AnswerCycle` uses."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header may have: it would end the value."""


class AnswerCycle(RequestResponseCycle):
    """One request and its answer, which may also be given at once."""

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Write the whole answer; False if it has to be sent by messages, and nothing is written.

        That is so for what has no body, for a client that does not read, and for one that left.
        """
        if self.response_started or self.disconnected or self.flow.write_paused or not body:
            return False
        if self.scope["method"] == "HEAD" or "connection" in headers:
            return False
        if _CONTROL.search("".join(headers.values())) is not None:
            return False  # the check of the messages raises
        ending = "\r\n" if self.keep_alive else "connection: close\r\n\r\n"
        head = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + ending
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join((STATUS_LINE[status], head.encode("latin-1"), body)))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


class AnswerProtocol(HttpToolsProtocol):
    """A connection whose requests have `AT_ONCE` in their scope."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.__class__ = AnswerCycle
        assert isinstance(cycle, AnswerCycle)
        scope: Any = cycle.scope
        scope[AT_ONCE] = cycle.answer
        super()._start_asgi_task(cycle, app)


def http_protocol() -> type[AnswerProtocol] | Literal["httptools"]:
    """How connections are served: by uvicorn's own protocol if its internals may be others."""
    return AnswerProtocol if uvicorn.__version__.startswith(WRITTEN_FOR) else "httptools"
