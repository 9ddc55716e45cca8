"""Every proof, in the order in which `make prove` runs them."""

from __future__ import annotations

from typing import Final

from tests.proofs.proof import Proof

PROOFS: Final[tuple[Proof, ...]] = ()
