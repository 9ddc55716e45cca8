"""Signals inside a process: sent when the transaction that named their topic has ended."""

import pytest

from flowfabric.db.signals import signal, signals_at_end, subscribed


def test_a_subscriber_is_called_once_after_the_transaction_and_no_other_is() -> None:
    calls: list[str] = []
    with subscribed("a", lambda: calls.append("a")), subscribed("b", lambda: calls.append("b")):
        with signals_at_end():
            signal(["a", "nobody"])
            signal(["a"])
            assert calls == []
        assert calls == ["a"]

        signal(["a"])  # in a transaction of the caller, which commits later
        with signals_at_end():
            pass
    with signals_at_end():
        signal(["a"])

    assert calls == ["a"]


def test_a_transaction_that_may_be_committed_although_it_raised_is_signalled() -> None:
    calls: list[str] = []

    def fails() -> None:
        with signals_at_end():
            signal(["a"])
            raise ConnectionError

    with subscribed("a", lambda: calls.append("a")), pytest.raises(ConnectionError):
        fails()

    assert calls == ["a"]
