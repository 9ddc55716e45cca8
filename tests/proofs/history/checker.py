"""Is there an order of the calls, within their times, in which one execution would answer so?

The search of Wing and Gong with the memory of Lowe: calls are put in order one by one, and what
was seen before (the same calls done, the same state) is not tried again. A call without an answer
may have happened at any time after it was made, or never.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.proofs.history.log import Op
from tests.proofs.history.spec import State, steps

READS = frozenset({"describe", "row"})


class Verdict(msgspec.Struct, frozen=True):
    """`order` is a possible one; if there is none, the longest that was found."""

    possible: bool
    order: tuple[Op, ...]


def check(history: Sequence[Op]) -> Verdict:
    """Search for an order."""
    _mark_contended(history)
    ops = [op for op in history if not op.void]
    # Those that must come first are tried first; those without an answer only if need be.
    ops.sort(key=lambda op: (op.returned or float("inf"), op.called))
    due = sum(1 << at for at, op in enumerate(ops) if op.answer is not None)
    after = [sum(1 << at for at, other in enumerate(ops) if other.before(op)) & due for op in ops]
    seen: set[tuple[int, State]] = set()
    longest: tuple[int, ...] = ()
    stack: list[tuple[int, State, tuple[int, ...]]] = [(0, State(), ())]
    while stack:
        done, state, order = stack.pop()
        if done & due == due:
            return Verdict(possible=True, order=tuple(ops[at] for at in order))
        if len(order) > len(longest):
            longest = order
        for at in reversed(range(len(ops))):
            if done >> at & 1 or after[at] & ~done:
                continue
            for answer, next_state in steps(state, ops[at]):
                if ops[at].answer not in (None, answer):
                    continue
                if ops[at].answer is None and next_state == state:
                    continue  # as if it had never happened
                key = (done | 1 << at, next_state)
                if key not in seen:
                    seen.add(key)
                    stack.append((*key, (*order, at)))
    return Verdict(possible=False, order=tuple(ops[at] for at in longest))


def _mark_contended(ops: Sequence[Op]) -> None:
    """One without an answer may be on its way still, long after it was made."""
    for op in ops:
        op.contended = any(
            other is not op
            and other.name not in READS
            and not other.before(op)
            and not op.before(other)
            for other in ops
        )
