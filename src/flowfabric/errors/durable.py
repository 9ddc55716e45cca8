"""Errors that durable calls of a handler raise: steps, sleeps, waits and the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowfabric.errors.base import FlowFabricError

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class NonDeterministicReplay(FlowFabricError):
    """The handler ran again and made other durable calls than before.

    `recorded` are the calls that the journal has and `asked` those that the handler made, each
    around the first difference. The execution is suspended until an operator resumes it.
    """

    kind = "handler"
    code = "non_deterministic_replay"

    def __init__(
        self, execution_id: ExecutionId, *, recorded: Sequence[str], asked: Sequence[str]
    ) -> None:
        super().__init__(
            f"execution {execution_id}: the handler made other calls than before;"
            f" recorded: {', '.join(recorded) or 'none'}; asked: {', '.join(asked) or 'none'}"
        )
        self.execution_id = execution_id
        self.recorded, self.asked = tuple(recorded), tuple(asked)


class EntryDecodeError(FlowFabricError):
    """A recorded value is not of the type that the handler declares for it now."""

    kind = "handler"
    code = "entry_decode"

    def __init__(self, name: str, wanted: str, why: str) -> None:
        super().__init__(f"the recorded value of {name!r} cannot be read as {wanted}: {why}")
        self.name, self.wanted, self.why = name, wanted, why


class StepFailed(FlowFabricError):
    """A step failed and is not tried again; `error_type` is the class that its function raised."""

    kind = "handler"
    code = "step_failed"

    def __init__(self, name: str, category: str, reason: str, error_type: str) -> None:
        super().__init__(f"step {name!r} failed ({category}): {reason}")
        self.name, self.category, self.reason, self.error_type = name, category, reason, error_type


class StepNeedsKey(FlowFabricError):
    """Two tasks of the handler call the same name, in no certain order; give each a `key=`."""

    kind = "handler"
    code = "step_needs_key"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is called by several tasks at once, in no certain order;"
            " give each call a key="
        )
        self.name = name


class NestedDurableCall(FlowFabricError):
    """A durable call was made inside the function of a step, which is not run again."""

    kind = "handler"
    code = "nested_durable_call"

    def __init__(self, name: str, inside: str) -> None:
        super().__init__(
            f"{name!r} is a durable call inside step {inside!r}; make it beside the step"
        )
        self.name, self.inside = name, inside


class WrongThread(FlowFabricError):
    """`ctx.sync` was used from another thread than that of the handler."""

    kind = "handler"
    code = "wrong_thread"

    def __init__(self) -> None:
        super().__init__("ctx.sync can be used from the thread of the handler only")


class JournalFull(FlowFabricError):
    """The journal of the execution has too many entries or bytes; use `ctx.restart`."""

    kind = "handler"
    code = "journal_full"

    def __init__(self, entries: int, size: int) -> None:
        super().__init__(
            f"the journal has {entries} entries of {size} bytes in all, which is the limit;"
            " ctx.restart begins with an empty one"
        )
        self.entries, self.size = entries, size


class TransactionOpen(FlowFabricError):
    """The attempt has to be put aside to wait while `ctx.transaction()` is open."""

    kind = "handler"
    code = "transaction_open"

    def __init__(self) -> None:
        super().__init__(
            "the handler waits while its transaction is open; wait before ctx.transaction(),"
            " or use ctx.step_tx"
        )


class SignalTimeout(FlowFabricError):
    """The signal, or the condition, did not come in time.

    `closed` is why an operator closed the waitpoint, if that was before it came; else None.
    """

    kind = "handler"
    code = "signal_timeout"

    def __init__(self, name: str, *, closed: str | None = None) -> None:
        why = "did not come in time"
        if closed is not None:
            why = f"cannot come any more: its waitpoint was closed ({closed})"
        super().__init__(f"{name!r} {why}")
        self.name, self.closed = name, closed


class SignalPayloadInvalid(FlowFabricError):
    """The payload of a signal is not of the type that the handler waits for; it is consumed."""

    kind = "handler"
    code = "signal_payload_invalid"

    def __init__(self, name: str, wanted: str, why: str) -> None:
        super().__init__(f"the payload of signal {name!r} cannot be read as {wanted}: {why}")
        self.name, self.wanted, self.why = name, wanted, why
