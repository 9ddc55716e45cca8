"""What should be so: the keys and when their grace ends, and the grants that were issued."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from flowfabric.engine.grants.grant import ClaimGrant, GrantKey

ACCEPTED = "accepted"


class Keyring:
    """Every key that there was, known from the rotations alone."""

    def __init__(self, kid: str) -> None:
        self.signs, self._ends = kid, dict[str, int]()
        self._passed: set[str] = set()

    @property
    def kids(self) -> list[str]:
        return [*self._ends, self.signs]

    def rotated(self, previous: str | None, new: str, *, end_ms: int) -> None:
        """`new` signs, and `previous`, which signed, verifies up to and including `end_ms`."""
        assert previous == self.signs, f"{previous} was retired, and {self.signs} signed"
        self._ends[self.signs], self.signs = end_ms, new

    def verifies(self, kid: str, now_ms: int) -> bool:
        return kid == self.signs or self._ends.get(kid, -1) >= now_ms

    def next_end(self) -> int | None:
        """The earliest end of a grace that has not passed yet."""
        return min(
            (end for kid, end in self._ends.items() if kid not in self._passed), default=None
        )

    def passed(self, end_ms: int) -> None:
        """The grace of every key whose end this is has passed."""
        self._passed |= {kid for kid, end in self._ends.items() if end == end_ms}

    def since_end(self, kid: str, now_ms: int) -> int | None:
        """How many milliseconds ago the grace of the key ended, 0 at its last; None if it signs."""
        return now_ms - self._ends[kid] if kid in self._ends else None


class Issued(msgspec.Struct, frozen=True):
    """A grant that was committed."""

    grant: ClaimGrant
    key: GrantKey


class Book:
    """The grants of each key, as many as are worth to be verified again and again."""

    def __init__(self, ring: Keyring, *, each: int) -> None:
        self._ring, self._each = ring, each
        self._of: defaultdict[str, list[Issued]] = defaultdict(list)
        self._used: set[str] = set()
        self._spoilt: set[str] = set()
        self.issued = 0

    def add(self, grant: ClaimGrant) -> None:
        self.issued += 1
        key = GrantKey.parse(grant.grant_key)
        if len(self._of[key.kid]) < self._each:
            self._of[key.kid].append(Issued(grant, key))

    @property
    def is_full(self) -> bool:
        """Are there as many grants of the key that signs as are worth it?"""
        return len(self._of[self._ring.signs]) >= self._each

    def drop(self, now_ms: int) -> None:
        """Grants that expired long ago, of keys whose grace is over, are of no more interest."""
        for kid, grants in self._of.items():
            if not self._ring.verifies(kid, now_ms - 10_000):
                grants.clear()

    def all(self) -> list[Issued]:
        return [each for grants in self._of.values() for each in grants]

    def valid(self, now_ms: int) -> list[Issued]:
        """Those that must be accepted now."""
        return [each for each in self.all() if self.expected(each, now_ms) == ACCEPTED]

    def use_up(self, issued: Issued) -> None:
        self._used.add(issued.key.text)

    def spoil(self, issued: Issued) -> None:
        """The stored row was changed behind the back of the engine."""
        self._spoilt.add(issued.key.text)

    def expected(self, issued: Issued, now_ms: int) -> str:
        """`accepted`, or the code of the refusal."""
        if issued.key.expires_at_ms <= now_ms:
            return "grant_expired"
        if not self._ring.verifies(issued.key.kid, now_ms):
            return "grant_unknown_kid"
        if issued.key.text in self._spoilt:
            return "grant_signature_mismatch"
        return "grant_unknown" if issued.key.text in self._used else ACCEPTED


def sample(chance: random.Random, among: Sequence[Issued], number: int) -> list[Issued]:
    """So many of them, or all if there are fewer."""
    return chance.sample(list(among), min(number, len(among)))
