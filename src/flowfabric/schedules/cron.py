"""Cron expressions on the time of a wall clock: five fields, or six with seconds first."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cronsim import CronSim, CronSimError

from flowfabric.errors import invalid_input
from flowfabric.ids import check_text

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_ANY_TIME: Final = datetime(2000, 1, 1)
# cronsim asserts, or compares what cannot be compared, for some expressions that are none.
_INVALID: Final = (CronSimError, AssertionError, TypeError, ValueError)


def check_cron(cron: str) -> str:
    """The expression with single spaces; raises `ValidationError(invalid_input)`.

    Also for an expression that never matches, as one for 30 February.
    """
    check_text(cron, field="cron")
    text = " ".join(cron.split())
    try:
        found = next_wall(text, _ANY_TIME)
    except _INVALID as error:
        why = f"is not a cron expression: {error or 'a field cannot be read'}"
        raise invalid_input("cron", cron, why) from None
    if found is None:
        raise invalid_input("cron", cron, "never matches")
    return text


def next_wall(cron: str, wall: datetime) -> datetime | None:
    """The first time of a clock after `wall` that matches; None if none does within 50 years."""
    try:
        return next(CronSim(ALIASES.get(cron.lower(), cron), wall), None)
    except OverflowError:  # the year 9999 is over
        return None


def cron_words(cron: str) -> str:
    """What the expression means, in English; the expression itself if there are no words."""
    try:
        return CronSim(ALIASES.get(cron.lower(), cron), _ANY_TIME).explain()
    except _INVALID:
        return cron


def is_fixed_time(cron: str) -> bool:
    """Does it name hours and minutes, so that it means times of a clock and not a rhythm?"""
    *_, minute, hour, _, _, _ = ALIASES.get(cron.lower(), cron).split()
    return not minute.startswith("*") and not hour.startswith("*")
