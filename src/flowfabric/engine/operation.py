"""How an operation becomes a method of `Engine`: each kind says on what it runs.

An operation takes a connection first and never opens or commits a transaction. The method has the
operation's own parameters and docstring, without the connection; `partitions`, where the operation
takes it, is filled in from the engine's configuration. An id in a partition that this database does
not have is refused by every method in the same way.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import Isolation, run, transact
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.streams.reader import StreamReader
from flowfabric.errors import EngineError, FlowFabricError, ValidationError
from flowfabric.ids import (
    ExecutionId,
    GroupId,
    PartitionKey,
    check_partition,
    check_partition_key,
)

P = ParamSpec("P")
T = TypeVar("T")


class Owner(Protocol):
    """What a method needs of the engine that it belongs to."""

    @property
    def pool(self) -> Pool: ...
    @property
    def events(self) -> Hub: ...
    @property
    def streams(self) -> StreamReader: ...
    @property
    def partitions(self) -> int: ...


Operation: TypeAlias = Callable[Concatenate[Connection, P], Awaitable[T]]
Method: TypeAlias = Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]


def statement(operation: Operation[P, T]) -> Method[P, T]:
    """Runs on one connection; its single statement is its own transaction."""
    takes_partitions = _takes_partitions(operation)

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        _check_partitions(self.partitions, args, kwargs)
        if takes_partitions:
            kwargs.setdefault("partitions", self.partitions)
        return await run(
            self.pool, operation.__name__, lambda conn: operation(conn, *args, **kwargs)
        )

    return method


def transaction(
    operation: Operation[P, T], *, isolation: Isolation = "read_committed"
) -> Method[P, T]:
    """Runs its statements in one transaction, all or none."""
    takes_partitions = _takes_partitions(operation)

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        _check_partitions(self.partitions, args, kwargs)
        if takes_partitions:
            kwargs.setdefault("partitions", self.partitions)
        return await transact(
            self.pool,
            operation.__name__,
            lambda conn: operation(conn, *args, **kwargs),
            isolation=isolation,
        )

    return method


def snapshot(operation: Operation[P, T]) -> Method[P, T]:
    """Reads with several statements that all see the database at one moment."""
    return transaction(operation, isolation="repeatable_read")


def refusing(operation: Operation[P, T | ValidationError]) -> Method[P, T]:
    """Runs in one transaction; an error that it returns is raised once that is committed."""
    committed = transaction(operation)

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        answer = await committed(self, *args, **kwargs)
        if isinstance(answer, ValidationError):
            raise answer
        return answer

    return method


def noting(
    operation: Operation[P, T], refusal: type[EngineError], note: Operation[P, None]
) -> Method[P, T]:
    """Runs in one transaction; after such a refusal `note` runs in one of its own.

    What `note` writes stays, although the operation was rolled back. Where `note` fails, the
    refusal is raised all the same.
    """
    committed, noted = transaction(operation), transaction(note)

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await committed(self, *args, **kwargs)
        except refusal:
            with contextlib.suppress(FlowFabricError):
                await noted(self, *args, **kwargs)
            raise

    return method


def procedure(operation: Callable[Concatenate[Pool, P], Awaitable[T]]) -> Method[P, T]:
    """Runs several transactions, one after the other; what is committed stays when one fails."""
    takes_partitions = _takes_partitions(operation)

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        _check_partitions(self.partitions, args, kwargs)
        if takes_partitions:
            kwargs.setdefault("partitions", self.partitions)
        return await operation(self.pool, *args, **kwargs)

    return method


def subscription(operation: Callable[Concatenate[Hub, P], Awaitable[T]]) -> Method[P, T]:
    """Reads events through the one reader that the process has for them."""

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        return await operation(self.events, *args, **kwargs)

    return method


def streaming(operation: Callable[Concatenate[StreamReader, P], Awaitable[T]]) -> Method[P, T]:
    """Reads streams together with the other readers of the process."""

    @functools.wraps(operation)
    async def method(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        _check_partitions(self.partitions, args, kwargs)
        return await operation(self.streams, *args, **kwargs)

    return method


def _check_partitions(partitions: int, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
    """Raise `ValidationError(invalid_input)` for an id in a partition that does not exist."""
    for given in (*args, *kwargs.values()):
        if isinstance(given, ExecutionId | GroupId):
            check_partition(given, partitions)
        elif isinstance(given, PartitionKey):
            check_partition_key(given, partitions)
        elif isinstance(given, Trim):
            if given.partition is not None:
                check_partition_key(given.partition, partitions)
        elif isinstance(given, list | tuple | set | frozenset):
            members = cast("Collection[object]", given)
            if isinstance(next(iter(members), None), ExecutionId):
                for each in cast("Collection[ExecutionId]", members):
                    check_partition(each, partitions)


def _takes_partitions(operation: Callable[..., Any]) -> bool:
    return "partitions" in inspect.signature(operation).parameters
