"""What is counted of requests: how many, with which answers, and how long they took."""

from __future__ import annotations

from flowfabric.counters import HTTP_SECONDS, HTTP_REQUESTS

_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


def observe(method: str, template: str, status: int, seconds: float) -> None:
    """One request was answered; `template` is the path of its route."""
    method = method if method in _METHODS else "OTHER"
    HTTP_REQUESTS.add(method, template, str(status))
    HTTP_SECONDS.observe(seconds)
