"""Words of access: the roles of API tokens, and the scopes that a role gives."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What the holder of an API token may do."""

    READER = "reader"
    CLIENT = "client"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


class Scope(StrEnum):
    """What a route demands of its caller."""

    PUBLIC = "public"
    """No token is asked for."""
    ANY = "any"
    """Any valid token."""
    READ = "read"
    WRITE = "write"
    WORK = "work"
    OPERATE = "operate"
    OPERATE_ALL = "operate_all"
    """`operate`, with a token of all namespaces."""
    ADMIN = "admin"
