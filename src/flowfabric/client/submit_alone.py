"""Submits that change an execution of the same key: each is a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowfabric.client.options import Options
from flowfabric.errors import invalid_input
from flowfabric.limits import merge_name

if TYPE_CHECKING:
    from flowfabric.engine.lifecycle.create_execution import Creation, NewExecution
    from flowfabric.remote.engine_like import EngineLike


async def submit_alone(
    engine: EngineLike, executions: Sequence[NewExecution], options: Sequence[Options], conn: Any
) -> list[Creation]:
    """Create the executions, all or none: a single debounced one, or some that supersede others.

    Raises `ValidationError` for the caller's own connection; then nothing is created.
    """
    if conn is not None:
        [merged, *_] = [each.merged for each in options if each.is_alone]
        assert merged is not None
        why = f"does not go with {merge_name(merged)}, which changes another execution"
        raise invalid_input("conn", None, why)
    debounce = options[0].debounce
    if debounce is None:
        pairs = zip(executions, options, strict=True)
        superseding = [new.execution_id for new, each in pairs if each.supersedes]
        return await engine.create_unique_executions(executions, cancel_old=superseding)
    [new] = executions
    answer = await engine.debounce_execution(
        new, wait=debounce.wait, max_wait=debounce.max_wait, payload=debounce.payload
    )
    return [answer]
