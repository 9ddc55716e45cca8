"""When the renewer does what: no lease waits longer than a third of its TTL."""

import pytest

from flowfabric.worker.renewal_schedule import HEARTBEAT, RenewalSchedule

TTL = 30.0
EVERY = 10.0


def test_leases_are_renewed_every_third_of_the_ttl() -> None:
    schedule = RenewalSchedule(TTL, 0)

    assert schedule.next_at(0) == EVERY
    schedule.renewed(EVERY)
    schedule.heartbeat_sent(EVERY)
    assert schedule.next_at(EVERY) == 2 * EVERY


@pytest.mark.parametrize("claimed_at", [1.0, 4.0, 6.0, 9.9])
def test_a_lease_claimed_between_two_renewals_is_a_third_of_its_ttl_old_at_most(
    claimed_at: float,
) -> None:
    schedule, now, renewed_at = RenewalSchedule(TTL, 0), 0.0, claimed_at

    while renewed_at == claimed_at:
        now = schedule.next_at(renewed_at if now else None)
        schedule.heartbeat_sent(now)
        assert schedule.renewal_is_due(renewed_at, now)
        schedule.renewed(now)
        if now - renewed_at >= EVERY / 2:  # what a renewal covers
            renewed_at = now

    assert renewed_at - claimed_at <= EVERY


@pytest.mark.parametrize("hung", [0.0, 0.1, 9.0, EVERY])
def test_however_tries_fail_the_next_begins_within_a_third_of_the_ttl(hung: float) -> None:
    schedule, began = RenewalSchedule(TTL, 0), EVERY
    for _ in range(20):
        schedule.failed(began, began + hung, renewal=True)
        again = schedule.next_at(0)
        assert began + min(0.35, EVERY) <= again <= began + EVERY
        began = again


def test_a_heartbeat_or_a_look_that_hangs_does_not_postpone_a_renewal() -> None:
    schedule, now = RenewalSchedule(TTL, 0), 8.0
    schedule.ask_for_look()
    assert schedule.renewal_is_due(0, now)  # first, and a little early
    schedule.renewed(now)
    within = schedule.seconds_until_renewal(now, now)

    schedule.failed(now, now + within, renewal=False)

    assert within >= EVERY / 2
    assert schedule.renewal_is_due(now, now + EVERY)


def test_many_wake_ups_are_answered_by_few_looks() -> None:
    schedule, now, looks, takes = RenewalSchedule(TTL, 0), 0.0, 0, 0.001
    while now < 1.0:
        schedule.ask_for_look()
        if schedule.look_is_due(now):
            schedule.look_begins()
            looks += 1
            schedule.looked(now, now + takes)
        now += 0.001

    assert 15 <= looks <= 20


def test_looks_that_take_long_leave_most_of_the_time_to_renewals() -> None:
    schedule = RenewalSchedule(TTL, 0)
    schedule.ask_for_look()
    schedule.look_begins()
    schedule.looked(0, 0.5)  # of very many leases

    schedule.ask_for_look()

    assert not schedule.look_is_due(2.4)
    assert schedule.look_is_due(2.5)


def test_a_wake_up_during_a_look_needs_another_look() -> None:
    schedule = RenewalSchedule(TTL, 0)
    schedule.ask_for_look()
    schedule.look_begins()
    schedule.ask_for_look()
    schedule.looked(0, 0.001)

    assert schedule.next_at(None) < 0.1


def test_a_heartbeat_that_is_wanted_soon_is_sent_at_most_once_a_second() -> None:
    schedule = RenewalSchedule(TTL, 0)
    schedule.heartbeat_sent(5.0)

    schedule.heartbeat_soon(5.2)
    assert schedule.next_at(None) == 6.0
    schedule.heartbeat_sent(6.0)
    schedule.heartbeat_soon(8.0)
    assert schedule.heartbeat_is_due(8.0)
    schedule.heartbeat_sent(8.0)
    schedule.renewed(8.0)
    assert schedule.next_at(None) == 8.0 + min(EVERY, HEARTBEAT)
