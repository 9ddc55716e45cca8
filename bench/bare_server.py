"""`python -m bench.bare_server`: answers every request with the same bytes, by the same protocol.

Its CPU per request is what remains of a request when the application costs nothing. It depends on
the machine, and a figure of the server is read beside it.
"""

import sys
from typing import Any, Final

import uvicorn
import uvloop

from flowfabric.server.asgi import AT_ONCE
from flowfabric.server.protocol import http_protocol
from flowfabric.server.serve import address_of, bind
from flowfabric.server.settings import Settings

BODY: Final = b'{"label":"bench","role":"admin","scopes":["read","write"],"namespaces":["*"]}'
ANSWER: Final = {
    "content-type": "application/json",
    "content-length": str(len(BODY)),
    "x-request-id": "req_bench",
}


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Answer without a look at the request."""
    if scope["type"] == "http":
        scope[AT_ONCE](200, ANSWER, BODY)


async def main() -> None:
    """Serve until a signal comes."""
    with bind(Settings(listen="127.0.0.1:0")) as bound:
        config = uvicorn.Config(
            bare,
            lifespan="off",
            http=http_protocol(),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=60,
        )
        bound.listen(128)
        print(f"serving at {address_of(bound)}", file=sys.stderr, flush=True)
        await uvicorn.Server(config).serve(sockets=[bound])


if __name__ == "__main__":
    uvloop.run(main())
