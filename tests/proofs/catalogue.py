"""Every proof, in the order in which `make prove` runs them."""

from __future__ import annotations

from typing import Final

from tests.proofs.blocked_loop import BLOCKED_LOOP
from tests.proofs.budgets import BUDGETS_EXACT
from tests.proofs.canary import CANARY
from tests.proofs.cascade_crash import CASCADE_CRASH
from tests.proofs.chaos.proofs import CHAOS_CRASH
from tests.proofs.drain import DRAIN
from tests.proofs.durable.chaos_steps import CHAOS_STEPS
from tests.proofs.durable.suspend_wake import SUSPEND_WAKE
from tests.proofs.durable.tokens import TOKENS
from tests.proofs.fair_use import FAIR_USE
from tests.proofs.fuzz import FUZZ
from tests.proofs.grant_keys.proof import GRANT_KEYS
from tests.proofs.history.proofs import HISTORY
from tests.proofs.interleave.proof import INTERLEAVE
from tests.proofs.isolation import ISOLATION
from tests.proofs.limits import LIMITS
from tests.proofs.liveness import LIVENESS
from tests.proofs.lost_ack.cuts import LOST_ACK
from tests.proofs.lost_claim import LOST_CLAIM
from tests.proofs.model.proof import MODEL_STATEFUL
from tests.proofs.notify import NOTIFY
from tests.proofs.outbox_gap.proof import OUTBOX_GAP
from tests.proofs.plans import PLANS
from tests.proofs.poison import POISON
from tests.proofs.pooler import POOLER
from tests.proofs.privileges import PRIVILEGES
from tests.proofs.proof import Proof
from tests.proofs.remote_chaos import REMOTE_CHAOS
from tests.proofs.renewal import RENEWAL
from tests.proofs.restart import RESTART
from tests.proofs.retention import RETAINED
from tests.proofs.schedules import SCHEDULES
from tests.proofs.skew import SKEW
from tests.proofs.storm.pool import POOLED
from tests.proofs.storm.proof import STORM
from tests.proofs.streams import STREAMS
from tests.proofs.zombie import ZOMBIE

PROOFS: Final[tuple[Proof, ...]] = (
    MODEL_STATEFUL,
    INTERLEAVE,
    STORM,
    POOLED,
    PLANS,
    CASCADE_CRASH,
    RETAINED,
    OUTBOX_GAP,
    STREAMS,
    NOTIFY,
    POOLER,
    CHAOS_CRASH,
    REMOTE_CHAOS,
    CHAOS_STEPS,
    SUSPEND_WAKE,
    SCHEDULES,
    BUDGETS_EXACT,
    LIMITS,
    RESTART,
    LOST_CLAIM,
    HISTORY,
    ZOMBIE,
    RENEWAL,
    POISON,
    LOST_ACK,
    SKEW,
    BLOCKED_LOOP,
    DRAIN,
    GRANT_KEYS,
    TOKENS,
    LIVENESS,
    ISOLATION,
    PRIVILEGES,
    FUZZ,
    FAIR_USE,
    CANARY,
)
