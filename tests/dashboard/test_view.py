"""Values as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from flowfabric.dashboard.regions import etag
from flowfabric.dashboard.settings import REDACTED_KEYS
from flowfabric.dashboard.view.divergence import divergence_of
from flowfabric.dashboard.view.durations import length, parse_length, relative, size
from flowfabric.dashboard.view.json_text import Fold, Line, folded, format_json, payload
from flowfabric.dashboard.view.policies import policy_words
from flowfabric.errors import NonDeterministicReplay
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy

REDACT = re.compile(REDACTED_KEYS, re.IGNORECASE)
NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def test_lengths_and_ages_have_at_most_two_units() -> None:
    lengths = (0.0004, 0.35, 4.25, 9.96, 42.4, 200, 3600, 3 * 3600 + 300, 90000, 86400 * 40, -1)
    assert [length(each) for each in lengths] == [
        "0 ms", "350 ms", "4.2 s", "10 s", "42 s", "3 m 20 s", "1 h", "3 h 5 m", "1 d 1 h",
        "40 d", "0 s",
    ]  # fmt: skip
    ages = (0, 5, 61, 7200, -30, -86400 * 2)
    assert [relative(NOW - timedelta(seconds=each), NOW) for each in ages] == [
        "now", "5 s ago", "1 m ago", "2 h ago", "in 30 s", "in 2 d",
    ]  # fmt: skip
    assert [size(each) for each in (12, 2048, 3 << 20)] == ["12 B", "2.0 KiB", "3.0 MiB"]
    assert parse_length("24h") == timedelta(days=1)
    assert [parse_length(each) for each in ("", "h", "1w", "-1h", "٣h", "1e9d")] == [None] * 6


def shown(text: str) -> str:
    """The formatted JSON as plain text."""
    lines, _ = format_json(text, REDACT)
    return "\n".join("  " * each.depth + "".join(p.text for p in each.pieces) for each in lines)


def test_json_is_shown_as_it_is_stored() -> None:
    text = '{"b": 12345678901234567890123, "a": [1, 1.50, {}], "a": "\\u00e9\\n", "n": null}'
    assert shown(text) == (
        '{\n  "b": 12345678901234567890123,\n  "a": [\n    1,\n    1.50,\n    {}\n  ],\n'
        '  "a": "\\u00e9\\n",\n  "n": null\n}'
    )
    assert shown(' "alone" ') == '"alone"'
    for broken in ("", "{", "[1,]", "{1:2}", "[1 2]", "nul", '{"a":}', "]", "[" * 5000):
        with pytest.raises(ValueError):
            format_json(broken, REDACT)


def outline(rows: list[Line | Fold]) -> list[object]:
    """Lines as text; folds as their members, and the same of what is inside."""
    return [
        [row.count, *outline(row.inside)]
        if isinstance(row, Fold)
        else "".join(each.text for each in row.pieces)
        for row in rows
    ]


def test_what_is_deep_or_long_is_folded_and_loses_nothing() -> None:
    lines, _ = format_json('{"a": {"b": {"c": {"d": [1, 2]}, "e": {}}}}', REDACT)
    assert outline(folded(lines)) == [
        "{", '"a": {', '"b": {', [1, [2, "1,", "2"]], '"e": {}', "}", "}", "}",
    ]  # fmt: skip
    long, _ = format_json(f'{{"n": [{", ".join("7" * 200)}], "m": [1]}}', REDACT)
    [_, fold, *rest] = folded(long)
    assert isinstance(fold, Fold)
    assert (fold.count, len(fold.inside), len(rest)) == (200, 200, 4)


def test_a_policy_is_said_in_words() -> None:
    assert policy_words(ExecutionPolicy()) == ["no retry"]
    policy = ExecutionPolicy(
        retry_policy=RetryPolicy(max_retries=5),
        timeout_policy=TimeoutPolicy(attempt_timeout=120, execution_deadline=3600),
    )
    assert policy_words(policy) == ["5 retries, 1 s to 1 m apart", "2 m per attempt", "1 h in all"]
    fixed = RetryPolicy(
        max_retries=1, backoff=FixedBackoff(delay=2), retryable_categories=("io", "net")
    )
    assert policy_words(ExecutionPolicy(retry_policy=fixed)) == [
        "1 retry, 2 s apart, of io, net only"
    ]


def test_secret_values_are_blotted_out_with_their_length() -> None:
    text = '{"Password": "hunter2", "nested": {"api_key": {"a": [1, 2]}, "n": 1}, "tokens": 12}'
    assert shown(text) == (
        '{\n  "Password": ••• (7 characters),\n  "nested": {\n'
        '    "api_key": ••• (11 characters),\n    "n": 1\n  },\n  "tokens": ••• (2 characters)\n}'
    )


def test_other_payloads_are_text_or_hexadecimal_and_never_too_much() -> None:
    big = payload(b'{"a": "' + b"x" * 100_000 + b'"}', "json", REDACT)
    assert big is not None
    assert (big.cut, len(big.text), big.lines) == (True, 64 * 1024, [])
    raw = payload(b"\xff\x00\x01" * 1000, "raw", REDACT)
    assert raw is not None
    assert raw.text.startswith("ff 00 01 ff")
    assert len(raw.text) == 512 * 3 - 1
    text = payload("grüße\x1b[31m".encode(), "text", REDACT)
    assert text is not None
    assert text.text == "grüße\ufffd[31m"
    hidden = payload(b"{}", "json", REDACT, hidden=True)
    assert hidden is not None
    assert (hidden.hidden, hidden.lines, hidden.text) == (True, [], "")


def test_the_etag_of_a_region_does_not_change_with_the_age_of_things() -> None:
    region = '<p><time datetime="2026-11-17T12:00:00Z">{}</time> {}</p>'
    first = etag(region.format("3 s ago", "a").encode())
    assert first == etag(region.format("4 s ago", "a").encode())
    assert first != etag(region.format("3 s ago", "b").encode())


def test_a_divergence_is_two_sequences_with_the_first_difference_marked() -> None:
    error = NonDeterministicReplay(
        ExecutionId(1, UUID(int=1)),
        recorded=["reserve", "charge", "ship"],
        asked=["reserve", "pay"],
    )

    pairs = divergence_of(["it waits", str(error)])

    assert [(each.recorded, each.asked, each.is_first) for each in pairs] == [
        ("reserve", "reserve", False),
        ("charge", "pay", True),
        ("ship", None, False),
    ]
    assert divergence_of(["it waits for a signal"]) == []
