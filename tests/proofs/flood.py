"""`python -m tests.proofs.flood URL TOKEN CLIENTS`: clients of one token that never pause.

Each reads again as soon as it is answered, with whatever status, until the process is ended.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final
from urllib.parse import urlsplit

PATH: Final = "/v1/executions?limit=5"


async def _repeat(host: str, port: int, request: bytes) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while True:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.partition(b":")[2]))


async def flood(url: str, token: str, clients: int) -> None:
    """Read by so many connections, until an error."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    lines = (f"GET {PATH} HTTP/1.1", f"host: {host}", f"authorization: Bearer {token}", "", "")
    request = "\r\n".join(lines).encode()
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    await asyncio.gather(*(_repeat(host, port, request) for _ in range(clients)))


if __name__ == "__main__":
    asyncio.run(flood(sys.argv[1], sys.argv[2], int(sys.argv[3])))
