"""What is loaded before a worker starts is not visited by the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from flowfabric.worker.frozen_heap import frozen_heap


@pytest.fixture(autouse=True)
def nothing_frozen() -> Generator[None]:
    """The test run has frozen its own heap."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_exists_is_frozen_until_the_block_ends() -> None:
    with frozen_heap():
        assert gc.get_freeze_count() > 1000
        made = [object()]
        assert any(each is made for each in gc.get_objects())

    assert gc.get_freeze_count() == 0


def test_what_the_process_has_frozen_itself_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()

    with frozen_heap():
        assert gc.get_freeze_count() == before

    assert gc.get_freeze_count() == before


def test_the_collector_runs_seldom_until_the_block_ends_unless_it_is_off() -> None:
    before = gc.get_threshold()
    try:
        for first, meanwhile in ((700, 20_000), (50_000, 50_000), (0, 0)):
            gc.set_threshold(first, 10, 10)
            with frozen_heap():
                assert gc.get_threshold() == (meanwhile, 10, 10)
            assert gc.get_threshold() == (first, 10, 10)
    finally:
        gc.set_threshold(*before)
