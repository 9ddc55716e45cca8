"""The operations of `Engine` on API tokens of the server, and on sessions of browsers."""

from __future__ import annotations

from flowfabric.engine.access import (
    close_session,
    create_token,
    find_token,
    has_tokens,
    list_sessions,
    list_tokens,
    open_session,
    read_session,
    revoke_token,
)
from flowfabric.engine.operation import statement, transaction


class AccessOperations:
    """A part of `Engine`, which says how each operation runs."""

    create_token = transaction(create_token.create_token)
    find_token = statement(find_token.find_token)
    has_tokens = statement(has_tokens.has_tokens)
    list_tokens = statement(list_tokens.list_tokens)
    revoke_token = transaction(revoke_token.revoke_token)
    open_session = statement(open_session.open_session)
    read_session = statement(read_session.read_session)
    list_sessions = statement(list_sessions.list_sessions)
    close_session = statement(close_session.close_session)
