"""What a proof is: a name, and one function for each of its two sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from tests.proofs.arena import Arena
from tests.proofs.figures import Figure

Run: TypeAlias = Callable[[Arena], Sequence[Figure]]


class Proof(msgspec.Struct, frozen=True):
    """`quick` runs in `make test` and takes seconds; `full` has the figures of the promise."""

    name: str
    quick: Run
    full: Run
