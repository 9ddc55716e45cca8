"""The server: every operation of the engine over HTTP.

table      what a route is
routes     the routes, one module per noun: decode, await one operation, encode
call       one request: its principal, its ids and its namespace
app        `app(engine)`: the ASGI application
endpoint   from a request to the answer of its route, or to a problem
services   what the requests of a process share: waiters, gathered submits, the drain
access     principals, tokens, hosts and origins
plain_claims  claims after whose outcomes nothing else has to go on
limits     how much a token may ask for, and what a body may contain
problems   refusals of the server itself
sse        server-sent events
openapi    the OpenAPI document, made from the table
serve      the process: listen, drain, stop
"""

from flowfabric.server.app import app

__all__ = ["app"]
