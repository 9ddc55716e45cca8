"""Rules of operators."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.proofs.model import controls, replays
from tests.proofs.model.common import LANES, Common, move, some, which


class ControlRules(Common):
    """What an operator does to executions and lanes."""

    @move(number=which, how=some)
    def cancel_execution(self, number: int, how: int) -> None:
        meant = self.execution(number)
        known = self.world.executions.get(meant)
        epoch = {1: 7, 2: None}.get(how, known.lease_epoch if known else 1)
        source = "operator_override" if how > 3 else "lease_holder"
        self.both(
            "cancel_execution",
            lambda engine: engine.cancel_execution(
                meant, reason="no", source=source, lease_epoch=epoch
            ),
            lambda _: controls.cancel_execution(
                self.world, meant, reason="no", source=source, lease_epoch=epoch
            ),
            only=meant,
        )

    @move(number=which, how=some)
    def revoke_lease(self, number: int, how: int) -> None:
        lease = self.held(number, how)
        wanted = {
            "worker_instance_id": "w-1" if how in (1, 2, 8) else "",
            "expected_lease_id": lease.lease_id if how in (3, 9) else "",
            "expected_lease_epoch": lease.lease_epoch if how in (4, 11) else None,
        }
        self.both(
            "revoke_lease",
            lambda engine: engine.revoke_lease(lease.execution_id, reason="no", **wanted),
            lambda _: controls.revoke_lease(self.world, lease.execution_id, **wanted),
            only=lease.execution_id,
        )

    @move(number=which)
    def override_complete(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "override_complete",
            lambda engine: engine.override_complete(meant, result=b"by hand"),
            lambda _: controls.override_complete(self.world, meant, b"by hand"),
            only=meant,
        )

    @move(number=which)
    def override_fail(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "override_fail",
            lambda engine: engine.override_fail(meant, reason="by hand"),
            lambda _: controls.override_fail(self.world, meant, "by hand"),
            only=meant,
        )

    @move(number=which)
    def override_delay(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "override_delay",
            lambda engine: engine.override_delay(meant, delay=2),
            lambda _: controls.override_delay(self.world, meant, 2000),
            only=meant,
        )

    @move(number=which, priority=st.sampled_from((-1, 3, 9001)))
    def change_priority(self, number: int, priority: int) -> None:
        meant = self.execution(number)
        self.both(
            "change_priority",
            lambda engine: engine.change_priority(meant, priority),
            lambda _: controls.change_priority(self.world, meant, priority),
            only=meant,
        )

    @move(number=which, downstream=st.booleans())
    def replay_execution(self, number: int, downstream: bool) -> None:
        meant = self.execution(number)
        self.both(
            "replay_execution",
            lambda engine: engine.replay_execution(meant, downstream=downstream),
            lambda _: replays.replay_execution(self.world, meant, downstream=downstream),
            only=meant,
        )

    @move(
        number=which,
        reason=st.sampled_from((*controls.BLOCKS, "paused_by_flow_cancel", "because")),
        detail=st.sampled_from((None, "wait")),
    )
    def block(self, number: int, reason: str, detail: str | None) -> None:
        meant = self.execution(number)
        self.both(
            "block_execution_for_admission",
            lambda engine: engine.block_execution_for_admission(meant, reason, detail=detail),
            lambda _: controls.block_execution_for_admission(
                self.world, meant, reason, detail=detail
            ),
            only=meant,
        )

    @move(number=which, reason=st.sampled_from((None, None, "waiting_for_quota")))
    def unblock(self, number: int, reason: str | None) -> None:
        meant = self.execution(number)
        self.both(
            "unblock_execution",
            lambda engine: engine.unblock_execution(meant, expected_blocking_reason=reason),
            lambda _: controls.unblock_execution(
                self.world, meant, expected_blocking_reason=reason
            ),
            only=meant,
        )

    @move(number=which, lane=st.sampled_from((None, None, None, *LANES)))
    def grant_and_claim(self, number: int, lane: str | None) -> None:
        meant = self.execution(number)
        known = self.world.executions.get(meant)
        named = lane or (known.lane_id if known else LANES[0])
        told = self.both(
            "issue_grant_and_claim",
            lambda engine: engine.issue_grant_and_claim(meant, lane_id=named, lease_ttl=5),
            lambda told: controls.issue_grant_and_claim(
                self.world,
                meant,
                lane_id=named,
                ttl_ms=5000,
                lease_id=getattr(told, "lease_id", None) or self.uuid(),
            ),
            only=meant,
        )
        if not isinstance(told, Exception):
            self.leases.append(self.held_by(meant))

    @move(number=which)
    def mark_lease_expired(self, number: int) -> None:
        meant = self.execution(number)
        self.both(
            "mark_lease_expired_if_due",
            lambda engine: engine.mark_lease_expired_if_due(meant),
            lambda _: controls.mark_lease_expired_if_due(self.world, meant),
            only=meant,
        )

    @move(
        lane=st.sampled_from((*LANES, "nowhere")),
        state=st.sampled_from(("active", "active", "active", "paused", "draining", "disabled")),
    )
    def set_lane_state(self, lane: str, state: str) -> None:
        self.both(
            "set_lane_state",
            lambda engine: engine.set_lane_state(lane, state),
            lambda _: controls.set_lane_state(self.world, lane, state),
        )
