"""What a proof has tried: runs, steps, calls, and in which states each operation was called."""

from __future__ import annotations

from collections import Counter
from typing import Final

from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.states import PublicState

PHASES: Final = tuple(sorted(PublicState))

OPERATIONS: Final = (
    "renew",
    "progress",
    "complete",
    "fail",
    "delay",
    "release",
    "cancel",
    "create_execution",
    "cancel_execution",
    "revoke_lease",
    "override_complete",
    "override_fail",
    "override_delay",
    "change_priority",
    "replay_execution",
    "block_execution_for_admission",
    "unblock_execution",
    "issue_grant_and_claim",
    "mark_lease_expired_if_due",
    "add_execution_to_flow",
    "stage_dependency_edge: upstream",
    "stage_dependency_edge: downstream",
    "apply_dependency_to_child: upstream",
    "apply_dependency_to_child: downstream",
    "set_edge_group_policy",
    "describe_execution",
    "send_signal",
    "record_entries",
    "delay_with_entries",
    "restart_execution",
    "create_waitpoint",
    "suspend",
    "deliver_signal",
    "close_waitpoint",
    "resume_execution",
    "wake_execution",
    "expire_suspension",
)
"""The operations that take an execution; an edge takes two."""

FREE: Final = {"claim", "dispatch", "describe_execution", "describe_flow"} | {
    sweep.name for sweep in SWEEPS
}

PAIRS: Final = frozenset((str(phase), name) for phase in PHASES for name in OPERATIONS)


class Tally:
    """Counts over all runs of one proof."""

    def __init__(self) -> None:
        self.runs = self.steps = 0
        self.calls = self.refused = 0
        self.pairs: Counter[tuple[str, str]] = Counter()

    def answered(self, operation: str, *, refused: bool) -> None:
        """One more call of somebody; a claim, a sweep or a read cannot be refused."""
        if operation not in FREE:
            self.calls += 1
            self.refused += refused

    def tried(self, phase: str, operation: str) -> None:
        if (phase, operation) in PAIRS:
            self.pairs[phase, operation] += 1

    @property
    def missing(self) -> list[tuple[str, str]]:
        return sorted(PAIRS - self.pairs.keys())

    @property
    def coverage(self) -> float:
        """The share of (phase, operation) that was called at least once."""
        return 1 - len(self.missing) / len(PAIRS)
