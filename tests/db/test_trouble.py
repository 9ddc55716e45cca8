"""What is trouble with the database, and what is a fault of the statement or of the handler."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from flowfabric.db.faults import find_trouble
from flowfabric.db.rows import Connection
from flowfabric.errors import (
    OperationTimeout,
    ResourceExhausted,
    RetryExhausted,
    TransportError,
    Unavailable,
    ValidationError,
)
from tests.all_cases import all_cases

RAISE = "DO $$ BEGIN RAISE SQLSTATE '{}' USING MESSAGE = 'provoked'; END $$"


async def provoked(db: Connection, sqlstate: str) -> BaseException:
    with pytest.raises(asyncpg.PostgresError) as raised:
        await db.execute(RAISE.format(sqlstate))
    return raised.value


@pytest.mark.parametrize(
    "sqlstate",
    ["08006", "08P01", "57P01", "57P03", "53300", "53100", "40001", "40P01", "25P03", "25P04"],
)
async def test_connections_limits_and_conflicts_are_trouble(db: Connection, sqlstate: str) -> None:
    error = await provoked(db, sqlstate)

    assert find_trouble(error) is error


@pytest.mark.parametrize("sqlstate", ["42601", "23505", "22012", "57014", "55P03", "25P02"])
async def test_what_a_statement_does_wrong_is_not(db: Connection, sqlstate: str) -> None:
    assert find_trouble(await provoked(db, sqlstate)) is None


@all_cases(
    ("error", "trouble"),
    [
        (TransportError("gone"), True),
        (ResourceExhausted("connections", "none left"), True),
        (OperationTimeout("claim"), True),
        (RetryExhausted("claim", 3), True),
        (Unavailable("connect", "no password"), True),
        (ValidationError("invalid_input", "number"), False),
        (ConnectionResetError("of some other service"), False),
        (TimeoutError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_our_calls_are_trouble_and_those_of_other_services_are_not(
    error: BaseException, trouble: bool
) -> None:
    assert (find_trouble(error) is error) == trouble


async def test_a_closed_connection_is_trouble_and_its_misuse_is_not(
    another: Callable[[], Awaitable[Connection]],
) -> None:
    conn = await another()
    async with conn.transaction():
        with pytest.raises(asyncpg.InterfaceError) as misused:
            await conn.executemany("SELECT $1::integer", ["no number", ()])
    await conn.close()
    with pytest.raises(asyncpg.InterfaceError) as closed:
        await conn.execute("SELECT 1")

    assert find_trouble(misused.value) is None
    assert find_trouble(closed.value) is closed.value
    assert find_trouble(misused.value, connection_lost=True) is misused.value


def test_an_error_that_wraps_trouble_is_about_it() -> None:
    trouble = TransportError("gone")
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = trouble

    assert find_trouble(wrapped) is trouble


def test_a_group_is_trouble_if_all_of_it_is() -> None:
    trouble, failure = TransportError("gone"), ValueError("wrong")

    assert find_trouble(ExceptionGroup("tasks", [trouble, trouble])) is trouble
    assert find_trouble(ExceptionGroup("tasks", [trouble, failure])) is None
