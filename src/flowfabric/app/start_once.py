"""A flow is started once."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from uuid import UUID

from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.errors import FlowAlreadyStarted


class StartOnce:
    """Whether a flow without an idempotency key was started."""

    def __init__(self, flow_kind: str, flow_id: UUID) -> None:
        self._flow_kind, self._flow_id = flow_kind, flow_id
        self._started = False
        self._in_transaction = False
        """Was it started in a transaction of the caller, which may have been committed?"""

    def check(self) -> None:
        """Raise `FlowAlreadyStarted` if the flow was started, or is being started."""
        if self._started:
            raise FlowAlreadyStarted(self._flow_kind, self._flow_id)

    @contextlib.contextmanager
    def starting(self) -> Generator[None]:
        """While the block runs, and after it succeeded, the flow cannot be started again.

        After an error it can: a start whose answer was lost is repeated, and finds its own flow.
        Raises `FlowAlreadyStarted`.
        """
        self.check()
        self._started = True
        try:
            yield
        except BaseException:
            self._started = False
            raise

    def check_answer(self, answer: FlowSubmitted, *, in_transaction: bool) -> None:
        """Raise `FlowAlreadyStarted` if the answer is about an earlier start.

        The id of a flow without a key belongs to one object. So a flow that existed before was
        started by an earlier call: by the same one, repeated after a lost answer, unless that one
        was part of a transaction, which the caller repeats as a whole.
        """
        if answer.repeated and (in_transaction or self._in_transaction):
            raise FlowAlreadyStarted(self._flow_kind, self._flow_id)
        self._in_transaction = self._in_transaction or in_transaction
