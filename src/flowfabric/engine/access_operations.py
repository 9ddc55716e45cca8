"""The operations of `Engine` on API tokens of the server."""

from __future__ import annotations

from flowfabric.engine.access import (
    create_token,
    find_token,
    has_tokens,
    list_tokens,
    revoke_token,
)
from flowfabric.engine.operation import statement


class AccessOperations:
    """A part of `Engine`, which says how each operation runs."""

    create_token = statement(create_token.create_token)
    find_token = statement(find_token.find_token)
    has_tokens = statement(has_tokens.has_tokens)
    list_tokens = statement(list_tokens.list_tokens)
    revoke_token = statement(revoke_token.revoke_token)
