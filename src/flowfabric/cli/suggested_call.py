"""A call of a task that a user can try: its payload is made up from the task's annotations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from flowfabric.app.app import App
from flowfabric.app.task import Task
from flowfabric.cli.example_values import example_value
from flowfabric.errors import Fail
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy, milliseconds


def suggested_call(app: App) -> list[str]:
    """The arguments of an `ff submit` for a task of the app: the first whose payload fits.

    The payload is decoded as the worker would; a value that a task refuses in its own code is
    beyond what annotations say.
    """
    calls = [(task, _payload(task)) for task in app.tasks.values()]
    task, payload = next((call for call in calls if _fits(*call)), calls[0])
    options = [("--lane", task.lane)] if task.lane != "default" else []
    options += [("--namespace", app.namespace)] if app.namespace != "default" else []
    options += [("--requires", each) for each in task.requires]
    options += [("--priority", str(task.priority))] if task.priority else []
    options += _limits(task.policy)
    return [task.kind, payload, *(word for option in options for word in option)]


def _limits(policy: ExecutionPolicy | None) -> list[tuple[str, str]]:
    """The retries and time limits of a task as options of `ff submit`."""
    if policy is None:
        return []
    retries = 0 if policy.retry_policy is None else policy.retry_policy.max_retries
    limits = policy.timeout_policy or TimeoutPolicy()
    lengths = {"--attempt-timeout": limits.attempt_timeout, "--deadline": limits.execution_deadline}
    return [
        *([("--retries", str(retries))] if retries else []),
        *((option, _length(given)) for option, given in lengths.items() if given is not None),
    ]


def _length(given: float | timedelta) -> str:
    return f"{milliseconds(given) / 1000:.3f}".rstrip("0").rstrip(".") + "s"


def _fits(task: Task[..., Any], payload: str) -> bool:
    try:
        task.decode(payload.encode(), "json")
    except Fail:
        return False
    return True


def _payload(task: Task[..., Any]) -> str:
    try:
        return msgspec.json.encode(example_value(task.payload_type)).decode()
    except Exception:  # a foreign model may raise anything; the hint is not worth an end
        return "{}"
