"""Which words of `ff.exec_core.exceptional_state` are which public state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowfabric.states import PublicState

EXCEPTIONAL_STATES: Final[Mapping[PublicState, tuple[str, ...]]] = {
    PublicState.WAITING: (
        "blocked_by_route",
        "blocked_by_lane_state",
        "blocked_by_operator",
        "paused_by_flow_cancel",
    ),
    PublicState.RESUMABLE: (),
    PublicState.DELAYED: ("not_eligible_until_time",),
    PublicState.RATE_LIMITED: ("blocked_by_budget", "blocked_by_quota"),
    PublicState.WAITING_CHILDREN: ("blocked_by_dependencies",),
    PublicState.SUSPENDED: ("suspended",),
    PublicState.FAILED: ("failed",),
    PublicState.CANCELLED: ("cancelled",),
    PublicState.EXPIRED: ("expired",),
    PublicState.SKIPPED: ("skipped",),
}
