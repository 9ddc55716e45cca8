"""A caller: what it may do, and in which namespaces."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from flowfabric.server.problems import RequestProblem
from flowfabric.states.access import Role, Scope

ALL: Final = "*"
_SCOPES: Final[Mapping[Role, frozenset[Scope]]] = {
    Role.READER: frozenset({Scope.READ}),
    Role.CLIENT: frozenset({Scope.READ, Scope.WRITE}),
    Role.WORKER: frozenset({Scope.READ, Scope.WRITE, Scope.WORK}),
    Role.OPERATOR: frozenset({Scope.READ, Scope.WRITE, Scope.OPERATE}),
    Role.ADMIN: frozenset(Scope),
}


class Principal(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Who calls. `who` tells tokens apart; `label` is what events name as the actor."""

    who: str
    label: str
    role: Role
    namespaces: tuple[str, ...] = (ALL,)
    hide_payloads: bool = False

    @functools.cached_property
    def everywhere(self) -> bool:
        """May it see every namespace?"""
        return ALL in self.namespaces

    @functools.cached_property
    def scopes(self) -> frozenset[Scope]:
        """What it may do."""
        scopes = _SCOPES[self.role] | {Scope.PUBLIC, Scope.ANY}
        if self.role is Role.OPERATOR and self.everywhere:
            scopes |= {Scope.OPERATE_ALL}
        if self.role is Role.ADMIN and not self.everywhere:
            scopes -= {Scope.OPERATE_ALL, Scope.ADMIN}
        return scopes

    def require(self, scope: Scope) -> None:
        """Raise a `RequestProblem` unless it has the scope."""
        if scope not in self.scopes:
            detail = f"the token {self.label!r} has not the scope {scope}"
            raise RequestProblem("forbidden", detail, scope=scope.value)

    def sees(self, namespace: str | None) -> bool:
        """Is the namespace one of its own?"""
        return self.everywhere or namespace in self.namespaces

    def namespace(self, given: str | None) -> str:
        """The namespace of a call: the given one, else its only one, else `default`.

        Raises a `RequestProblem` for any that is not its own, whether that exists or not.
        """
        if given is None:
            alone = len(self.namespaces) == 1 and not self.everywhere
            given = self.namespaces[0] if alone else "default"
        if not self.sees(given):
            detail = f"the token {self.label!r} has no access to namespace {given!r}"
            raise RequestProblem("forbidden", detail, namespace=given)
        return given


LOCAL: Final = Principal(who="local", label="local", role=Role.ADMIN)
"""The caller of a server that has no tokens and listens on this machine only."""
