"""A policy in words."""

from __future__ import annotations

from flowfabric.dashboard.view.durations import length
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy


def policy_words(policy: ExecutionPolicy) -> list[str]:
    """What was agreed on for an execution: retries, timeouts, reclaims."""
    said = [_retries(policy.retry_policy)]
    timeout = policy.timeout_policy
    if timeout is not None and timeout.attempt_timeout is not None:
        said.append(f"{length(timeout.attempt_timeout)} per attempt")
    if timeout is not None and timeout.execution_deadline is not None:
        said.append(f"{length(timeout.execution_deadline)} in all")
    return said


def _retries(policy: RetryPolicy | None) -> str:
    if policy is None or policy.max_retries == 0:
        return "no retry"
    count = "1 retry" if policy.max_retries == 1 else f"{policy.max_retries:,} retries"
    backoff = policy.backoff
    if isinstance(backoff, FixedBackoff):
        said = f"{count}, {length(backoff.delay)} apart"
    else:
        said = f"{count}, {length(backoff.initial_delay)} to {length(backoff.max_delay)} apart"
    if policy.retryable_categories:
        said += f", of {', '.join(policy.retryable_categories)} only"
    return said
