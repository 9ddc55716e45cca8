"""Submits with `unique` or `debounce`: each is a transaction of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowfabric.client.options import Options
from flowfabric.engine.lifecycle.create_execution import Creation, NewExecution
from flowfabric.errors import invalid_input

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike


async def submit_alone(
    engine: EngineLike, new: NewExecution, options: Options, conn: Any
) -> Creation:
    """Create the execution, or find the one that has its key; raises `ValidationError`."""
    if conn is not None:
        raise invalid_input("conn", None, "cannot be given with unique or debounce")
    if options.unique is not None:
        return await engine.create_unique_execution(new, on_conflict=options.unique.on_conflict)
    assert options.debounce is not None
    return await engine.debounce_execution(
        new,
        wait=options.debounce.wait,
        max_wait=options.debounce.max_wait,
        payload=options.debounce.payload,
    )


def refuse_alone(options: Mapping[str, Any]) -> None:
    """Raise `ValidationError` for options that only a submit of one call has."""
    for name in ("unique", "debounce"):
        if options.get(name) is not None:
            raise invalid_input(name, None, "is for submit: give each call its own key")
