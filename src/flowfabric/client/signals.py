"""Signals of a client: by name to an execution, or with a token to a waitpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from flowfabric.app.codec import encode_untyped
from flowfabric.db.batcher import Batcher
from flowfabric.db.transaction import repeated
from flowfabric.engine.suspensions.send_signal import NewSignal, SignalAnswer
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.states import SignalEffect
from flowfabric.tokens import WaitpointToken

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

_SIGNALS_PER_STATEMENT: Final = 500


class SignalSender:
    """Sends the signals of one client; those that are sent at once share a transaction."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._signals = Batcher(engine.send_signals, max_weight=_SIGNALS_PER_STATEMENT)

    async def send(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: object,
        *,
        identity: str,
        idempotency_key: str | None,
    ) -> SignalAnswer:
        """Send a signal by name, from a client of this identity."""
        signal_id = new_uuid()
        stored, encoding = encode_untyped(payload, field="payload")
        signal = NewSignal(
            execution_id=execution_id,
            signal_name=name,
            payload=stored,
            encoding=encoding,
            source_identity=identity,
            # A call that is repeated after a lost answer must not send a second signal.
            idempotency_key=idempotency_key or str(signal_id),
            signal_id=signal_id,
        )
        answer = await self._signals.request(signal)
        return _own(answer, signal_id, SignalEffect.BUFFERED_IN_INBOX)

    async def deliver(
        self,
        execution_id: ExecutionId,
        waitpoint_id: UUID,
        token: WaitpointToken | str,
        name: str,
        payload: object,
        *,
        source: tuple[str, str],
        idempotency_key: str | None,
    ) -> SignalAnswer:
        """Signal a waitpoint, in the name of an outsider that has its token."""
        source_type, source_identity = check_source(source)
        signal_id = new_uuid()
        stored, encoding = encode_untyped(payload, field="payload")
        answer = await repeated(
            lambda: self._engine.deliver_signal(
                execution_id,
                waitpoint_id,
                token,
                name,
                signal_id=signal_id,
                source_type=source_type,
                source_identity=source_identity,
                payload=stored,
                encoding=encoding,
                idempotency_key=idempotency_key or str(signal_id),
            )
        )
        return _own(answer, signal_id, SignalEffect.APPENDED_TO_WAITPOINT)


def check_source(source: object) -> tuple[str, str]:
    """Type and identity of the sender; raises `ValidationError(invalid_input)`."""
    match source:
        case (str() as source_type, str() as identity):
            return source_type, identity
        case _:
            raise invalid_input("source", source, "must be a pair of texts: its type and who it is")


def _own(answer: SignalAnswer, signal_id: UUID, stored: SignalEffect) -> SignalAnswer:
    """The answer; a duplicate of this very signal was accepted, and only that answer was lost."""
    if isinstance(answer, SignalDuplicate) and answer.existing_signal_id == signal_id:
        return SignalAccepted(signal_id=signal_id, effect=stored)
    return answer
