"""Every proof, in the order in which `make prove` runs them."""

from __future__ import annotations

from typing import Final

from tests.proofs.blocked_loop import BLOCKED_LOOP
from tests.proofs.cascade_crash import CASCADE_CRASH
from tests.proofs.chaos.proofs import CHAOS_CRASH
from tests.proofs.drain import DRAIN
from tests.proofs.history.proofs import HISTORY
from tests.proofs.interleave.proof import INTERLEAVE
from tests.proofs.isolation import ISOLATION
from tests.proofs.lost_ack.cuts import LOST_ACK
from tests.proofs.model.proof import MODEL_STATEFUL
from tests.proofs.notify import NOTIFY
from tests.proofs.plans import PLANS
from tests.proofs.poison import POISON
from tests.proofs.pooler import POOLER
from tests.proofs.privileges import PRIVILEGES
from tests.proofs.proof import Proof
from tests.proofs.renewal import RENEWAL
from tests.proofs.restart import RESTART
from tests.proofs.retention import RETAINED
from tests.proofs.skew import SKEW
from tests.proofs.storm.pool import POOLED
from tests.proofs.storm.proof import STORM
from tests.proofs.zombie import ZOMBIE

PROOFS: Final[tuple[Proof, ...]] = (
    MODEL_STATEFUL,
    INTERLEAVE,
    STORM,
    POOLED,
    PLANS,
    CASCADE_CRASH,
    RETAINED,
    NOTIFY,
    POOLER,
    CHAOS_CRASH,
    RESTART,
    HISTORY,
    ZOMBIE,
    RENEWAL,
    POISON,
    LOST_ACK,
    SKEW,
    BLOCKED_LOOP,
    DRAIN,
    ISOLATION,
    PRIVILEGES,
)
