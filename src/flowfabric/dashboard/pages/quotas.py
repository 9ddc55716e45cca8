"""Limits: what they allow each of their keys, who holds their slots, and how to change them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.view.durations import as_length, length, parse_length
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.limits import QuotaLimits
from flowfabric.states import Scope

KEYS: Final = 100
_MOST: Final = 10**9


def caps(limits: QuotaLimits) -> str:
    """What the limit allows each key, in words."""
    said: list[str] = []
    if limits.max_concurrent:
        said.append(f"{limits.max_concurrent:,} at once")
    if limits.max_requests_per_window:
        window = length(limits.window_ms / 1000)
        said.append(f"{limits.max_requests_per_window:,} starts in {window}")
    return ", ".join(said) or "anything"


def _window(limits: QuotaLimits) -> timedelta:
    return timedelta(milliseconds=limits.window_ms)


async def _quota(visit: Visit) -> QuotaPolicy:
    wanted = visit.uuid("quota_id")
    for namespace in (await visit.namespaces())[:50]:
        found = await visit.engine.get_quota_policy(wanted, namespace=namespace)
        if found is not None:
            return found
    raise not_found("There is no such limit.")


def _title(found: QuotaPolicy) -> str:
    return found.name or str(found.quota_policy_id)


async def quota(visit: Visit) -> PageAnswer:
    """One limit: its keys, the busiest first."""
    found = await _quota(visit)
    keys = await visit.engine.list_busiest_keys(
        found.quota_policy_id, namespace=found.namespace, count=KEYS
    )
    values = {"quota": found, "keys": keys, "caps": caps(found.limits), "most": KEYS}
    return PageAnswer(template="quota.html", title=_title(found), section="budgets", values=values)


def _fields(limits: QuotaLimits) -> list[DialogField]:
    return [
        DialogField(
            name="concurrent",
            label="At once",
            kind="number",
            value=str(limits.max_concurrent),
            hint="How many of one key run; 0: any number.",
        ),
        DialogField(
            name="starts",
            label="Starts",
            kind="number",
            value=str(limits.max_requests_per_window),
            hint="0: any number.",
            half=True,
        ),
        DialogField(
            name="window",
            label="Within",
            value=as_length(_window(limits)),
            hint="Such as 60s or 1h.",
            half=True,
        ),
    ]


def _limits(form: SentForm, kept: QuotaLimits) -> QuotaLimits:
    given = form.text("window").strip()
    window = _window(kept) if given == as_length(_window(kept)) else parse_length(given or "0s")
    if window is None:
        raise FormProblem("window", "must look like 60s or 1h")
    return QuotaLimits(
        max_concurrent=form.whole("concurrent", low=0, high=_MOST),
        max_requests_per_window=form.whole("starts", low=0, high=_MOST),
        window_seconds=window,
        jitter=kept.jitter,
    )


async def ask_limits(visit: Visit) -> Dialog:
    found = await _quota(visit)
    return Dialog(
        question=f"Change the limit {_title(found)}?",
        effect="What runs goes on, also over a lower cap. What has room now is let go by the next"
        " sweep.",
        button="Change limit",
        back=f"/quotas/{found.quota_policy_id}",
        fields=_fields(found.limits),
    )


async def do_limits(visit: Visit, form: SentForm) -> ActDone:
    found = await _quota(visit)
    changed = await visit.engine.update_quota_policy(
        found.quota_policy_id,
        _limits(form, found.limits),
        namespace=found.namespace,
        reason=form.reason(),
        actor=visit.actor,
    )
    return ActDone(message=f"{_title(found)} allows {caps(changed.limits)} now.")


async def ask_new(visit: Visit) -> Dialog:
    return Dialog(
        question="Make a limit?",
        effect="Executions that name it are counted by their key, and wait where it has no room.",
        button="Make limit",
        back="/budgets",
        fields=[
            DialogField(name="name", label="Name", required=True, half=True),
            DialogField(
                name="namespace",
                label="Namespace",
                value=visit.namespace or "default",
                half=True,
            ),
            *_fields(QuotaLimits(max_concurrent=1)),
        ],
    )


async def do_new(visit: Visit, form: SentForm) -> ActDone:
    name, namespace = form.text("name").strip(), form.text("namespace").strip() or "default"
    if not name:
        raise FormProblem("name", "is needed")
    if not visit.principal.sees(namespace):
        raise FormProblem("namespace", "is not one of yours")
    limits = _limits(form, QuotaLimits())
    made = await visit.engine.create_quota_policy(
        name, limits, namespace=namespace, actor=visit.actor
    )
    word = "was made" if made.created else "was there before"
    to = visit.url(f"/quotas/{made.quota_policy_id}")
    return ActDone(message=f"The limit {name} {word}.", to=to)


ROUTES: Final = (
    screen("/quotas/{quota_id}", quota),
    act("/quotas/new", ask_new, do_new, Scope.OPERATE),
    act("/quotas/{quota_id}/limits", ask_limits, do_limits, Scope.OPERATE),
)
