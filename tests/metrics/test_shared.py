"""Several processes are measured as one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from flowfabric.counters import LEASE_RENEWALS, POOL_IN_USE
from flowfabric.metrics import SharedCounters
from flowfabric.metrics.snapshot import Buckets, Count, Snapshot, added

OTHER = Snapshot(
    counts=[Count("ff_lease_renewal_total", ("other",), 5)],
    levels=[Count("ff_db_pool_in_use", (), 3)],
    buckets=[Buckets("ff_db_pool_wait_seconds", (), [1] + [0] * 13, 0.5)],
)


def test_the_counters_of_all_processes_are_added_and_those_that_ended_keep_their_counts(
    tmp_path: Path,
) -> None:
    shared = SharedCounters(tmp_path)
    for pid in (1, 2):
        (tmp_path / f"{pid}.json").write_bytes(msgspec.json.encode(OTHER))
    in_use = POOL_IN_USE.snapshot().get((), 0)
    LEASE_RENEWALS.add("other", count=2)

    assert value(shared.read(), "ff_lease_renewal_total", ("other",)) == 12
    assert value(shared.read(), "ff_db_pool_in_use", ()) == in_use + 6
    shared.write()
    shared.ended(1)
    shared.ended(1)

    assert value(shared.read(), "ff_lease_renewal_total", ("other",)) == 12
    assert value(shared.read(), "ff_db_pool_in_use", ()) == in_use + 3
    assert {path.name for path in tmp_path.iterdir()} == {
        "2.json",
        "ended.json",
        f"{os.getpid()}.json",
    }
    LEASE_RENEWALS.values[("other",)] = 0


def test_levels_that_are_the_same_everywhere_are_not_added() -> None:
    one = Snapshot(levels=[Count("ff_executions", ("a", "waiting"), 4)])

    assert value(added((one, one)), "ff_executions", ("a", "waiting")) == 4


@pytest.mark.parametrize("content", [b"", b"{", b'{"counts": 3}'])
def test_a_file_that_cannot_be_read_counts_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "7.json").write_bytes(content)

    SharedCounters(tmp_path).ended(7)

    assert not (tmp_path / "7.json").exists()


def value(found: Snapshot, name: str, labels: tuple[str, ...]) -> float:
    return next(
        each.value
        for each in (*found.counts, *found.levels)
        if (each.name, each.labels) == (name, labels)
    )
