"""What a schedule may follow from; everything else is refused with its field and value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric.errors import ValidationError
from flowfabric.schedules.spec import spec_of
from tests.all_cases import all_cases


@all_cases(
    ("given", "said"),
    [
        ({}, "schedule needs one of cron, every and at"),
        ({"cron": "* * * * *", "every": 5}, "schedule 'cron and every' needs one of"),
        ({"cron": "0 2 * *"}, "cron '0 2 * *' is not a cron expression: Wrong number of fields"),
        ({"cron": "61 * * * *"}, "cron '61 * * * *' is not a cron expression: Bad minute"),
        ({"cron": "0 0 * * MON#2/2"}, "cron '0 0 * * MON#2/2' is not a cron expression"),
        ({"cron": "0 0 30 2 *"}, "cron '0 0 30 2 *'"),
        ({"cron": "0 0 */8 2 SUN#5"}, "cron '0 0 */8 2 SUN#5' never matches"),
        ({"cron": "@reboot"}, "cron '@reboot' is not a cron expression"),
        ({"cron": 5}, "cron 5 must be a text"),
        ({"cron": "@daily", "tz": "Mars/Olympus"}, "tz 'Mars/Olympus' is not the name of a time"),
        ({"cron": "@daily", "tz": "../etc/passwd"}, "tz '../etc/passwd' is not the name"),
        ({"cron": "@daily", "tz": "Europe"}, "tz 'Europe' is not the name"),
        ({"cron": "@daily", "tz": ""}, "tz '' must not be empty"),
        ({"every": 60, "tz": "UTC"}, "tz 'UTC' is for cron"),
        ({"every": 0.999}, "every 0.999 must be at least 1 second"),
        ({"every": timedelta(seconds=-5)}, "every '-1 day, 23:59:55' must be at least"),
        ({"every": "5m"}, "every '5m' must be a number of seconds or a timedelta"),
        ({"at": datetime(2027, 1, 1)}, "at '2027-01-01T00:00:00' must have a time zone"),
        ({"every": 60, "starts": datetime(2027, 1, 1)}, "starts '2027-01-01T00:00:00' must have"),
        ({"at": "tomorrow"}, "at 'tomorrow' must be a datetime"),
    ],
)
def test_what_cannot_be_a_schedule_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        spec_of(**given)

    assert refused.value.code == "invalid_input"
    assert said in refused.value.detail


def test_a_specification_says_in_words_what_it_is() -> None:
    assert str(spec_of(cron=" 0  2 * * * ", tz="Europe/Berlin")) == "0 2 * * * (Europe/Berlin)"
    assert str(spec_of(every=900)) == "every 0:15:00"
    assert str(spec_of(at=datetime(2027, 1, 1, tzinfo=UTC))) == "once at 2027-01-01 00:00:00+00:00"
