"""A handler begins anew, with other arguments and an empty journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flowfabric.errors import TransactionOpen
from flowfabric.worker.attempt_suspended import AttemptSuspended

if TYPE_CHECKING:
    from flowfabric.worker.durable.durable import Durable


async def restart(durable: Durable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
    """The execution is claimable as its next attempt; raises `AttemptSuspended`."""
    payload, encoding = durable.settings.encode_arguments(*args, **kwargs)
    engine, attempt = durable.services.engine, durable.attempt
    durable.journal.check()
    if durable.transaction.begun:
        raise TransactionOpen
    with attempt.giving_up():
        await durable.fenced(
            lambda: engine.restart_execution(
                attempt.lease, payload=payload, payload_encoding=encoding
            )
        )
        durable.parking.gave_up()
    raise AttemptSuspended
