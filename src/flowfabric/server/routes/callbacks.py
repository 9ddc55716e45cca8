"""Callbacks: the holder of the token of a waitpoint answers it; off unless `FF_CALLBACKS=1`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Final

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.engine.suspensions.read_question import Question
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import InvalidToken, NotFound, ValidationError
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.table import CONTROL, MEDIUM, Route, route
from flowfabric.states import Scope

_SCHEME: Final = "waitpoint "


class CallbackQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token, unless the header `Authorization: Waitpoint …` has it; the name of the signal."""

    token: str | None = None
    signal: str = "callback"

    def __repr__(self) -> str:
        return f"CallbackQuery(signal={self.signal!r})"


class TokenQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token, unless the header `Authorization: Waitpoint …` has it."""

    token: str | None = None

    def __repr__(self) -> str:
        return "TokenQuery()"


class QuestionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing but the token is needed."""


def _token(call: ApiCall, given: str | None) -> str:
    """The token of the call, which is counted; raises a `RequestProblem` if callbacks are off."""
    if not call.services.settings.callbacks:
        raise call.not_found()
    call.services.callbacks.count(call.address)
    header = call.header("authorization") or ""
    return header[len(_SCHEME) :] if header.lower().startswith(_SCHEME) else given or ""


@contextlib.contextmanager
def _telling_nothing() -> Generator[None]:
    """Nothing is told to a caller without a token, not even which ids exist."""
    try:
        yield
    except NotFound:
        raise InvalidToken from None
    except ValidationError as error:
        if error.field == "execution_id":
            raise InvalidToken from None
        raise


async def read_question(call: ApiCall, query: TokenQuery, body: QuestionRequest) -> Reply:
    """What a waitpoint asks for, and which signals answer it; with its token alone."""
    token = _token(call, query.token)
    with _telling_nothing():
        found = await call.engine.read_question(
            parse_execution_id(call.text("execution_id")), call.uuid("waitpoint_id"), token
        )
    return Reply(value=found, headers={"cache-control": "no-store"})


async def deliver_callback(
    call: ApiCall, query: CallbackQuery, body: msgspec.Raw
) -> SignalAccepted | SignalDuplicate:
    """Answer a waitpoint with its token alone; the body is the payload, any JSON."""
    token = _token(call, query.token)
    with _telling_nothing():
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


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/callbacks/{execution_id}/{waitpoint_id}",
        deliver_callback,
        scope=Scope.PUBLIC,
        limit=MEDIUM,
        body=msgspec.Raw,
        query=CallbackQuery,
        idempotency_key=True,
        answers={200: SignalAccepted | SignalDuplicate},
    ),
    route(
        "POST",
        "/v1/callbacks/{execution_id}/{waitpoint_id}/question",
        read_question,
        scope=Scope.PUBLIC,
        limit=CONTROL,
        body=QuestionRequest,
        query=TokenQuery,
        answers={200: Question},
    ),
)
