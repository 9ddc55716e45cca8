"""The execution policy: defaults, what is refused, and the rules for capabilities."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import RetryLater, ValidationError
from flowfabric.instants import instant
from flowfabric.policy import (
    CapabilitySide,
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    Retry,
    RetryPolicy,
    TimeoutPolicy,
    check_capabilities,
    clamp_priority,
    grace_milliseconds,
    milliseconds,
)
from tests.all_cases import all_cases

HUNDRED_YEARS_MS = 100 * 365 * 24 * 60 * 60 * 1000


def fault(policy: object) -> str:
    with pytest.raises(ValidationError) as error:
        ExecutionPolicy.parse(policy)
    assert error.value.code == "invalid_policy_json"
    return error.value.detail


# Defaults.


def test_an_empty_policy_takes_every_default() -> None:
    policy = ExecutionPolicy.parse({})

    assert msgspec.structs.asdict(policy) == {
        "priority": 0,
        "delay_until": None,
        "retry_policy": None,
        "timeout_policy": None,
        "max_reclaim_count": 5,
        "max_replay_count": 10,
        "suspension_policy": None,
        "fallback_policy": None,
        "budget_ids": (),
        "routing_requirements": None,
        "dedup_window": 24 * 60 * 60.0,
        "stream_policy": None,
        "max_signals_per_execution": 10_000,
    }


def test_a_retry_policy_takes_its_defaults_where_fields_are_absent() -> None:
    policy = ExecutionPolicy.parse({"retry_policy": {}})

    assert policy.retry_policy == RetryPolicy(
        max_retries=3,
        backoff=ExponentialBackoff(initial_delay=1, max_delay=60, multiplier=2.0, jitter=False),
        retryable_categories=(),
    )


def test_a_backoff_takes_its_defaults_where_fields_are_absent() -> None:
    def backoff(given: dict[str, Any]) -> object:
        policy = ExecutionPolicy.parse({"retry_policy": {"backoff": given}}).retry_policy
        assert policy is not None
        return policy.backoff

    assert backoff({"type": "fixed"}) == FixedBackoff(delay=1)
    assert backoff({"type": "fixed", "delay_ms": 5}) == FixedBackoff(delay=0.005)
    assert backoff({"type": "exponential"}) == ExponentialBackoff()
    assert backoff({"type": "exponential", "jitter": True}) == ExponentialBackoff(jitter=True)


def test_a_policy_survives_being_stored() -> None:
    policy = ExecutionPolicy(
        retry_policy=RetryPolicy(max_retries=5, backoff=FixedBackoff(delay=0.01)),
        timeout_policy=TimeoutPolicy(attempt_timeout=1.5, max_reclaim_count=3),
        budget_ids=("b-1",),
        dedup_window=0.001,
    )

    stored = msgspec.json.decode(policy.as_json())

    assert ExecutionPolicy.parse(stored) == policy
    assert stored["retry_policy"]["backoff"] == {"type": "fixed", "delay_ms": 10}
    assert stored["timeout_policy"] == {"attempt_timeout_ms": 1500, "max_reclaim_count": 3}


def test_a_policy_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(ValidationError) as error:
        ExecutionPolicy(max_reclaim_count=-1)

    assert error.value.code == "invalid_policy_json"
    assert ExecutionPolicy.parse(ExecutionPolicy(max_reclaim_count=7)).max_reclaim_count == 7


# What is refused.


@all_cases(
    ("policy", "where"),
    [
        (None, "object"),
        ([], "object"),
        ("{}", "object"),
        (7, "object"),
        ({"priority": "high"}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"delay_until": "tomorrow"}, "delay_until"),
        ({"retry_policy": []}, "retry_policy"),
        ({"retry_policy": {"max_retries": "3"}}, "max_retries"),
        ({"retry_policy": {"max_retries": None}}, "max_retries"),
        ({"retry_policy": {"backoff": 1000}}, "backoff"),
        ({"retry_policy": {"backoff": {"type": "fixed", "delay_ms": "1s"}}}, "delay_ms"),
        ({"retry_policy": {"backoff": {"type": "exponential", "jitter": 1}}}, "jitter"),
        ({"retry_policy": {"retryable_categories": "all"}}, "retryable_categories"),
        ({"retry_policy": {"retryable_categories": [1]}}, "retryable_categories"),
        ({"timeout_policy": "never"}, "timeout_policy"),
        ({"timeout_policy": {"attempt_timeout_ms": "1s"}}, "attempt_timeout_ms"),
        ({"budget_ids": "b-1"}, "budget_ids"),
        ({"stream_policy": []}, "stream_policy"),
        ({"routing_requirements": []}, "routing_requirements"),
    ],
)
def test_a_malformed_policy_is_refused_where_it_is_wrong(policy: object, where: str) -> None:
    assert where in fault(policy)


MS_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("dedup_window_ms", {}),
    ("timeout_policy.attempt_timeout_ms", {}),
    ("timeout_policy.execution_deadline_ms", {}),
    ("retry_policy.backoff.delay_ms", {"type": "fixed"}),
    ("retry_policy.backoff.initial_delay_ms", {"type": "exponential"}),
    ("retry_policy.backoff.max_delay_ms", {"type": "exponential"}),
]
COUNT_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("max_reclaim_count", {}),
    ("max_replay_count", {}),
    ("timeout_policy.max_reclaim_count", {}),
    ("retry_policy.max_retries", {}),
]


def nested(path: str, beside: dict[str, Any], value: object) -> dict[str, Any]:
    """A policy with `value` at the dotted path."""
    *outer, name = path.split(".")
    policy: dict[str, Any] = {**beside, name: value}
    for step in reversed(outer):
        policy = {step: policy}
    return policy


@all_cases(
    ("path", "beside", "most"),
    [(*field, HUNDRED_YEARS_MS) for field in MS_FIELDS]
    + [(*field, 2**31 - 1) for field in COUNT_FIELDS],
)
def test_a_number_out_of_range_is_refused_by_name(
    path: str, beside: dict[str, Any], most: int
) -> None:
    for value in (0, most):
        assert ExecutionPolicy.parse(nested(path, beside, value))
    for value in (-1, most + 1):
        assert fault(nested(path, beside, value)) == f"{path} {value} is out of range"


@all_cases("multiplier", [0.99, 0, -1, 1000.5, math.inf, math.nan])
def test_a_multiplier_that_shrinks_or_explodes_is_refused(multiplier: float) -> None:
    backoff = {"type": "exponential", "multiplier": multiplier}

    assert "retry_policy.backoff.multiplier" in fault({"retry_policy": {"backoff": backoff}})


# Capabilities.


@all_cases("capabilities", ["gpu", 5, [5], ["a b"], {"gpu": 1}])
def test_capabilities_that_cannot_be_are_refused_in_a_policy_too(capabilities: object) -> None:
    routing = {"required_capabilities": capabilities}

    for made in (ExecutionPolicy.parse, lambda given: ExecutionPolicy(**given)):
        with pytest.raises(ValidationError) as error:
            made({"routing_requirements": routing})
        assert error.value.code in ("invalid_policy_json", "invalid_capabilities")


def test_a_policy_names_the_capabilities_it_requires() -> None:
    routing = {"required_capabilities": ["gpu", "eu"]}

    assert ExecutionPolicy.parse({}).required_capabilities == ()
    assert ExecutionPolicy.parse({"routing_requirements": {}}).required_capabilities == ()
    assert ExecutionPolicy.parse({"routing_requirements": routing}).required_capabilities == (
        "gpu",
        "eu",
    )


@all_cases("side", ["required", "worker"])
@all_cases(
    ("given_", "why"),
    [
        ("gpu", "not_array"),
        (b"gpu", "not_array"),
        (None, "not_array"),
        (7, "not_array"),
        ([7], "non_string_token"),
        ([None], "non_string_token"),
        (["gpu", b"x"], "non_string_token"),
        ([""], "empty_token"),
        (["a,b"], "comma_in_token"),
        (["a b"], "control_or_whitespace"),
        (["a\x00"], "control_or_whitespace"),
        (["a\x1f"], "control_or_whitespace"),
        (["a\x7f"], "control_or_whitespace"),
        ([f"c{number}" for number in range(257)], "too_many_tokens"),
        (["a" * 4097], "too_many_bytes"),
        (["a" * 2048, "b" * 2048], "too_many_bytes"),
        (["é" * 2049], "too_many_bytes"),
    ],
)
def test_a_capability_that_cannot_be_is_refused_with_its_reason(
    side: CapabilitySide, given_: object, why: str
) -> None:
    with pytest.raises(ValidationError) as error:
        check_capabilities(given_, side=side)

    assert (error.value.code, error.value.detail) == ("invalid_capabilities", f"{side}:{why}")


@all_cases(
    "given_",
    [
        [],
        ["gpu"],
        ["\x80", "\N{NO-BREAK SPACE}", "é", "\N{GRINNING FACE}"],
        [f"c{number:03}" for number in range(256)],
        ["a" * 4096],
        ["a" * 2047, "b" * 2048],
    ],
    ids=["none", "one", "above ASCII", "256 tokens", "4096 bytes", "4096 bytes with the comma"],
)
def test_the_limits_of_capabilities_are_inclusive(given_: list[str]) -> None:
    assert check_capabilities(given_, side="worker") == sorted(given_)


def test_capabilities_come_back_sorted_once_each_and_case_sensitive() -> None:
    assert check_capabilities(("b", "a", "b", "B"), side="required") == ["B", "a", "b"]
    assert check_capabilities({"b", "a"}, side="required") == ["a", "b"]


# Small things.


@all_cases(
    ("duration", "ms"),
    [
        (0, 0),
        (1, 1000),
        (0.0015, 2),
        (0.25, 250),
        (30.0, 30_000),
        (timedelta(milliseconds=1), 1),
        (timedelta(days=1), 86_400_000),
        (timedelta(microseconds=1499), 1),
        (-1.5, -1500),
    ],
)
def test_a_duration_is_whole_milliseconds(duration: float | timedelta, ms: int) -> None:
    assert milliseconds(duration) == ms
    assert isinstance(milliseconds(duration), int)


@all_cases("duration", [math.nan, math.inf, -math.inf, True, "1s", None, []])
def test_a_duration_that_is_no_number_is_refused_as_invalid_input(duration: Any) -> None:
    with pytest.raises(ValidationError) as error:
        milliseconds(duration)

    assert error.value.code == "invalid_input"


@given(st.integers())
def test_a_priority_is_clamped(priority: int) -> None:
    clamped = clamp_priority(priority)

    assert 0 <= clamped <= 9000
    assert clamped == priority or priority < 0 or priority > 9000


def test_a_retry_is_the_policy_of_a_task() -> None:
    assert Retry().policy == RetryPolicy()
    assert Retry(
        max_retries=5,
        initial=timedelta(milliseconds=500),
        factor=3,
        max=10,
        jitter=True,
        categories=["net"],
    ).policy == RetryPolicy(
        max_retries=5,
        backoff=ExponentialBackoff(initial_delay=0.5, max_delay=10, multiplier=3, jitter=True),
        retryable_categories=("net",),
    )
    assert not isinstance(Retry(), BaseException)


def test_a_handler_asks_for_a_retry_with_an_exception() -> None:
    assert RetryLater().after is None
    assert RetryLater(after=30).after == 30.0
    assert RetryLater("later", after=timedelta(minutes=1)).after == 60.0
    assert str(RetryLater("later")) == RetryLater("later").reason == "later"


@all_cases("after", [True, "30", [], math.nan, math.inf, 1e30])
def test_a_wait_that_is_no_duration_is_refused(after: Any) -> None:
    with pytest.raises(ValidationError, match="invalid_input: after ") as error:
        RetryLater(after=after)

    assert repr(after) in error.value.detail


BAD_DURATIONS = [True, "1s", [], math.nan, math.inf, -1, -0.001, timedelta(seconds=-1), 1e30]
BAD_COUNTS = [True, "3", 3.0, math.nan, -1, 2**31, None]
BAD_FACTORS = [True, "2", 0.99, math.nan, math.inf, 1000.5, None]
MADE: list[tuple[type[msgspec.Struct], str, list[Any]]] = [
    (FixedBackoff, "delay", BAD_DURATIONS),
    (ExponentialBackoff, "initial_delay", BAD_DURATIONS),
    (ExponentialBackoff, "max_delay", BAD_DURATIONS),
    (ExponentialBackoff, "multiplier", BAD_FACTORS),
    (ExponentialBackoff, "jitter", [1, "yes", None]),
    (RetryPolicy, "max_retries", BAD_COUNTS),
    (RetryPolicy, "backoff", [None, 1.0, Retry(), {"type": "fixed"}]),
    (RetryPolicy, "retryable_categories", ["net", 5, (5,)]),
    (TimeoutPolicy, "attempt_timeout", BAD_DURATIONS),
    (TimeoutPolicy, "execution_deadline", BAD_DURATIONS),
    (TimeoutPolicy, "max_reclaim_count", BAD_COUNTS[:-1]),
    (ExecutionPolicy, "priority", [True, "high", 1.5]),
    (ExecutionPolicy, "delay_until", [5, "tomorrow"]),
    (ExecutionPolicy, "retry_policy", [Retry(), {}]),
    (ExecutionPolicy, "timeout_policy", [30, {}]),
    (ExecutionPolicy, "max_reclaim_count", BAD_COUNTS),
    (ExecutionPolicy, "max_replay_count", BAD_COUNTS),
    (ExecutionPolicy, "max_signals_per_execution", BAD_COUNTS),
    (ExecutionPolicy, "dedup_window", BAD_DURATIONS),
    (Retry, "max_retries", BAD_COUNTS),
    (Retry, "initial", BAD_DURATIONS),
    (Retry, "max", BAD_DURATIONS),
    (Retry, "factor", BAD_FACTORS),
    (Retry, "jitter", [1, "yes", None]),
    (Retry, "categories", ["net", 5, [5], None]),
]


@all_cases(
    ("kind", "field", "value"),
    [(kind, field, value) for kind, field, values in MADE for value in values],
)
def test_a_policy_names_the_field_and_the_value_that_it_refuses(
    kind: type[msgspec.Struct], field: str, value: Any
) -> None:
    with pytest.raises(ValidationError) as error:
        kind(**{field: value})

    assert error.value.code == "invalid_policy_json"
    assert error.value.detail.startswith(f"{field} ")
    if not isinstance(value, list | tuple):
        assert repr(value) in error.value.detail


def test_a_moment_in_a_policy_carries_a_time_zone() -> None:
    with pytest.raises(ValidationError, match="must have a time zone"):
        ExecutionPolicy(delay_until=datetime(2030, 1, 1))


def test_durations_of_a_policy_are_kept_as_seconds() -> None:
    limits = TimeoutPolicy(attempt_timeout=timedelta(minutes=1), execution_deadline=3600)

    assert limits == TimeoutPolicy(attempt_timeout=60.0, execution_deadline=timedelta(hours=1))
    assert (limits.attempt_timeout, limits.execution_deadline) == (60.0, 3600.0)
    assert FixedBackoff(delay=0.0014) == FixedBackoff(delay=0.001)


def test_a_policy_is_stored_under_the_names_of_the_spec() -> None:
    policy = ExecutionPolicy(
        priority=7,
        delay_until=instant(1_900_000_000_123),
        retry_policy=RetryPolicy(backoff=ExponentialBackoff(initial_delay=0.25)),
        timeout_policy=TimeoutPolicy(attempt_timeout=1.5, execution_deadline=timedelta(hours=1)),
        dedup_window=timedelta(hours=2),
    )

    assert policy.as_json() == (
        b'{"priority":7,"delay_until":1900000000123,"retry_policy":{"max_retries":3,"backoff":'
        b'{"type":"exponential","initial_delay_ms":250,"max_delay_ms":60000,"multiplier":2.0,'
        b'"jitter":false},"retryable_categories":[]},"timeout_policy":{"attempt_timeout_ms":1500,'
        b'"execution_deadline_ms":3600000},"dedup_window_ms":7200000}'
    )
    assert ExecutionPolicy.parse(msgspec.json.decode(policy.as_json())) == policy
    assert ExecutionPolicy().as_json() == b"{}"


@all_cases("grace", [-1, -0.001, True, "5", math.nan, math.inf, 2**53])
def test_a_grace_that_cannot_be_is_refused_under_the_code_of_the_spec(grace: Any) -> None:
    with pytest.raises(ValidationError) as error:
        grace_milliseconds(grace)

    assert error.value.code == "invalid_grace_ms"
    assert error.value.detail.startswith(f"grace {grace!r} ")
