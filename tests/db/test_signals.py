"""Signals inside a process: sent when the transaction that named their topic has ended."""

import pytest

from flowfabric.db.signals import after_commit, signal, signals_at_end, subscribed


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


def test_what_waits_for_the_commit_is_done_once_after_it_and_not_after_an_error() -> None:
    counted: list[str] = []

    def transaction(name: str, error: Exception | None = None) -> None:
        with signals_at_end():
            after_commit(lambda: counted.append(name))
            assert name not in counted
            if error is not None:
                raise error

    transaction("committed")
    with pytest.raises(ConnectionError):
        transaction("rolled back", ConnectionError())
    after_commit(lambda: counted.append("of the caller"))  # in a transaction of the caller
    transaction("another")

    assert counted == ["committed", "another"]
