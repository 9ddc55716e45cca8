"""One request: who calls, the ids in its path, and the namespace in which it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_name, check_partition, parse_uuid
from flowfabric.server.access.principal import Principal
from flowfabric.server.problems import RequestProblem, invalid
from flowfabric.server.services import Services

MAX_WAIT: Final = 30.0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with another status than the first of its route, or with headers."""

    value: Any = None
    status: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    version: str | None = None
    """What `If-Match` compares; the ETag is this and a digest of the answer."""


class RawBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as they are stored, with their encoding."""

    data: bytes
    encoding: str | None
    media: str | None = None
    """The content type, if it does not follow from the encoding."""


class ApiCall:
    """What a handler needs of the request that it answers."""

    def __init__(
        self,
        services: Services,
        principal: Principal,
        path: Mapping[str, str],
        headers: Mapping[bytes, bytes],
        url: str,
        packed: bool,
        request_id: str,
        address: str,
    ) -> None:
        self.services, self.principal = services, principal
        self.path, self.headers, self.url = path, headers, url
        self.packed, self.request_id, self.address = packed, request_id, address

    @property
    def engine(self) -> Engine:
        return self.services.engine

    @property
    def actor(self) -> str:
        """Whom operator events name."""
        return self.principal.label

    def header(self, name: str) -> str | None:
        """The value of a header; None if it is not there."""
        found = self.headers.get(name.encode())
        return None if found is None else found.decode("latin-1")

    def idempotency_key(self, member: str | None) -> str | None:
        """The key of the header `Idempotency-Key`, else that of the body.

        Raises a `RequestProblem` if both are given and differ.
        """
        given = self.header("idempotency-key")
        if given is not None and member not in (None, given):
            raise invalid("idempotency_key", "differs from the header Idempotency-Key")
        return member if given is None else given

    # What is in the path.

    def text(self, name: str) -> str:
        """A text of the path; raises a `RequestProblem` for one that cannot be stored."""
        found = self.path[name]
        if "\x00" in found:
            raise invalid(name, "contains a NUL character")
        try:
            found.encode()
        except UnicodeEncodeError:
            raise invalid(name, "is not valid UTF-8") from None
        return found

    def uuid(self, name: str) -> UUID:
        """An id of the path; raises `ValidationError(invalid_input)`."""
        return parse_uuid(self.text(name), field=name)

    def number(self, name: str) -> int:
        """A whole number of the path; raises a `RequestProblem`."""
        found = self.path[name]
        if not (found.isascii() and found.isdigit() and len(found) <= 9):
            raise invalid(name, "must be a whole number")
        return int(found)

    def named(self, name: str = "execution_id") -> ExecutionId:
        """The execution of the path, for operations that are given `namespaces` as well."""
        found = parse_execution_id(self.text(name))
        check_partition(found, self.engine.partitions)
        return found

    async def execution_id(self, name: str = "execution_id") -> ExecutionId:
        """The execution of the path; raises `NotFound` for one that the caller must not see."""
        found = self.named(name)
        await self.check_executions([found])
        return found

    async def flow_id(self) -> UUID:
        """The flow of the path; raises `NotFound` for one that the caller must not see."""
        found = self.uuid("flow_id")
        if not self.principal.everywhere:
            namespace = await self.engine.get_flow_namespace(found)
            if namespace is None or not self.principal.sees(namespace):
                raise NotFound("flow", found)
        return found

    # The namespaces of the caller.

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The namespaces that an operation is restricted to; None: it sees them all."""
        return None if self.principal.everywhere else self.principal.namespaces

    def namespace(self, given: str | None = None) -> str:
        """The namespace of the call; raises a `RequestProblem` for one that is not the caller's."""
        return self.principal.namespace(
            None if given is None else check_name(given, field="namespace")
        )

    def only(self, given: str | None = None) -> str | None:
        """The namespace that a list is restricted to; None: every namespace."""
        if given is None and self.principal.everywhere:
            return None
        return self.namespace(given)

    async def check_executions(self, executions: Sequence[ExecutionId]) -> None:
        """Raise `NotFound` for the first that is not in a namespace of the caller.

        The answer for a foreign one is that for an unknown one. Without a namespace of its own to
        protect, the caller's operation itself finds out.
        """
        if self.principal.everywhere:
            return
        seen = await self.visible(executions)
        for each in executions:
            if each not in seen:
                raise NotFound("execution", each)

    async def visible(self, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
        """Those of the executions that the caller may see."""
        if self.principal.everywhere:
            return set(executions)
        found = await self.engine.read_namespaces(executions)
        return {each for each, namespace in found.items() if self.principal.sees(namespace)}

    # What the caller is shown.

    def without_result(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """The outcome, without its result for a token that must not see payloads."""
        if not self.principal.hide_payloads:
            return outcome
        return msgspec.structs.replace(outcome, result=None)

    # Waiting.

    def seconds(self, wait: float | None) -> float:
        """How long the call may wait; raises a `RequestProblem` for more than 30 seconds."""
        if wait is None:
            return 0.0
        if not 0 <= wait <= MAX_WAIT:
            raise invalid("wait", f"{wait:g} must be 0 to {MAX_WAIT:g} seconds")
        return wait

    def not_found(self) -> RequestProblem:
        """There is no such route."""
        return RequestProblem("route_not_found", "there is no such route")
