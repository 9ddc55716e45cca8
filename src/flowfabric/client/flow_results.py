"""The results of a flow."""

from __future__ import annotations

from typing import Any, TypeVar

from flowfabric.app.member import Member
from flowfabric.errors import NotFound

R = TypeVar("R")


class FlowResults(dict[str, Any]):
    """The results of the members that succeeded, by name.

    `results["build"]` and `results.of(build)` are the same value; the second one has a type.
    """

    def of(self, member: Member[R]) -> R:
        """The result of this member, with the type that its task returns.

        Raises `NotFound` for a member without a result: it was skipped, cancelled as not needed, or
        failed without failing the flow.
        """
        if member.name not in self:
            raise NotFound("result of member", member.name)
        return self[member.name]
