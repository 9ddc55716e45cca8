"""Fresh UUIDs ascend, and no two processes make the same one."""

import subprocess
import sys
import time
from uuid import UUID

import pytest

from flowfabric import fresh_uuids


def test_fresh_uuids_are_random_time_ordered_ones() -> None:
    before = time.time_ns() // 1_000_000
    fresh = [fresh_uuids.new_uuid() for _ in range(200)]
    after = time.time_ns() // 1_000_000

    assert len(set(fresh)) == 200
    assert {(value.version, value.variant) for value in fresh} == {(7, "specified in RFC 4122")}
    assert all(before <= value.int >> 80 <= after for value in fresh)


def test_uuids_of_later_moments_sort_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_uuids, "_last_tick", 0)
    moments = [1, 2**31, 1_700_000_000_000, 1_700_000_000_001, 2**47]
    minted: list[UUID] = []
    for moment in moments:
        monkeypatch.setattr(fresh_uuids.time, "time_ns", lambda moment=moment: moment * 1_000_000)
        minted.append(fresh_uuids.new_uuid())

    assert sorted(minted) == minted
    assert [value.int >> 80 for value in minted] == moments


def test_uuids_of_one_moment_sort_in_the_order_of_their_minting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fresh_uuids, "_last_tick", 0)
    monkeypatch.setattr(fresh_uuids.time, "time_ns", lambda: 1_700_000_000_000_000_000)

    minted = [fresh_uuids.new_uuid() for _ in range(10_000)]

    assert sorted(minted) == minted
    assert len(set(minted)) == len(minted)


FORKED = """
import os
from flowfabric import fresh_uuids
fresh_uuids.time.time_ns = lambda: 1_700_000_000_000_000_000
fresh_uuids.new_uuid()  # random numbers are left over
child = os.fork()
os.write(1, fresh_uuids.new_uuid().bytes)
if child:
    os.waitpid(child, 0)
os._exit(0)
"""


def test_a_forked_process_makes_other_uuids() -> None:
    written = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, check=True).stdout
    here, there = UUID(bytes=written[:16]), UUID(bytes=written[16:])

    assert here.int >> 64 == there.int >> 64  # the same moment and counter
    assert here != there
