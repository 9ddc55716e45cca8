"""UUIDs for new ids: of version 7, so that those of one process ascend."""

from __future__ import annotations

import os
import struct
import time
from typing import Final
from uuid import UUID, SafeUUID

_AT_ONCE: Final = 256
_NOISE: Final = 0x3FFFFFFFFFFFFFFF
_make_uuid, _put, _unknown = UUID.__new__, object.__setattr__, SafeUUID.unknown
_last_tick = 0
_random: Final[list[int]] = []
"""Random numbers for the next ids: the system is asked for many at once."""
os.register_at_fork(after_in_child=_random.clear)  # else parent and child would use the same ones


def new_uuid() -> UUID:
    """A UUID of version 7: the time, a counter within the millisecond, 62 random bits.

    The ids of one process ascend in the order of their creation, so they share index pages.
    """
    [fresh] = new_uuids(1)
    return fresh


def new_uuids(count: int) -> list[UUID]:
    """As many UUIDs as `new_uuid` would make one by one."""
    global _last_tick
    first = max(_last_tick + 1, time.time_ns() // 1_000_000 << 12)
    _last_tick = first + count - 1
    fresh: list[UUID] = []
    for tick, noise in enumerate(_noise(count), first):
        stamp = tick >> 12 << 80 | 0x7 << 76 | (tick & 0xFFF) << 64
        fresh.append(uuid_of(stamp | 0b10 << 62 | noise & _NOISE))
    return fresh


def uuid_of(number: int) -> UUID:
    """What the constructor does, without its checks: bulk calls make ids by the thousand."""
    uuid = _make_uuid(UUID)
    _put(uuid, "int", number)
    _put(uuid, "is_safe", _unknown)
    return uuid


def _noise(count: int) -> tuple[int, ...]:
    """So many random numbers. Every number is used once: `pop` is atomic between threads."""
    if count > 1:
        return struct.unpack(f">{count}Q", os.urandom(8 * count))
    try:
        return (_random.pop(),)
    except IndexError:
        one, *more = struct.unpack(f">{_AT_ONCE}Q", os.urandom(8 * _AT_ONCE))
        _random.extend(more)
        return (one,)
