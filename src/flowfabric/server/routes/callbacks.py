"""Callbacks: the holder of the token of a waitpoint answers it; off unless `FF_CALLBACKS=1`."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import InvalidToken, NotFound, ValidationError
from flowfabric.server.call import ApiCall
from flowfabric.server.table import MEDIUM, Route, route
from flowfabric.states import Scope

_SCHEME: Final = "waitpoint "


class CallbackQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token, unless the header `Authorization: Waitpoint …` has it; the name of the signal."""

    token: str | None = None
    signal: str = "callback"

    def __repr__(self) -> str:
        return f"CallbackQuery(signal={self.signal!r})"


async def deliver_callback(
    call: ApiCall, query: CallbackQuery, body: msgspec.Raw
) -> SignalAccepted | SignalDuplicate:
    """Answer a waitpoint with its token alone; the body is the payload, any JSON."""
    if not call.services.settings.callbacks:
        raise call.not_found()
    call.services.callbacks.count(call.address)
    given = call.header("authorization") or ""
    token = given[len(_SCHEME) :] if given.lower().startswith(_SCHEME) else query.token or ""
    try:
        return await call.engine.deliver_signal(
            parse_execution_id(call.text("execution_id")),
            call.uuid("waitpoint_id"),
            token,
            query.signal,
            payload=bytes(body),
            encoding="json",
            source_type="callback",
            source_identity=call.address,
            idempotency_key=call.header("idempotency-key"),
        )
    except NotFound:
        raise InvalidToken from None  # nothing is told to a caller without a token
    except ValidationError as error:
        if error.field == "execution_id":
            raise InvalidToken from None
        raise


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/callbacks/{execution_id}/{waitpoint_id}",
        deliver_callback,
        scope=Scope.PUBLIC,
        limit=MEDIUM,
        body=msgspec.Raw,
        query=CallbackQuery,
        answers={200: SignalAccepted | SignalDuplicate},
    ),
)
