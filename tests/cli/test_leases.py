"""`ff leases expired`: leases that expired and were not reclaimed yet."""

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.testing import Clock
from tests import given
from tests.cli.conftest import Inside, one_line, usage_error


async def test_leases_that_ran_out_are_shown_the_longest_expired_first(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    late = await given.claimed(db, ttl=20)
    later = await given.claimed(db, ttl=25)
    await given.claimed(db, ttl=60)
    await clock.advance(30)

    heading, *lines = (await ff("leases", "expired")).out.splitlines()

    assert heading.split() == [
        "execution_id",
        "worker_instance_id",
        "expires_at",
        "attempt_index",
        "lease_epoch",
    ]
    assert [(line.split()[:2], line.split()[-2:]) for line in lines] == [
        ([str(late.execution_id), "w-1"], ["0", "1"]),
        ([str(later.execution_id), "w-1"], ["0", "1"]),
    ]


async def test_the_same_for_programs_page_by_page(ff: Inside, db: Connection, clock: Clock) -> None:
    late, later = await given.claimed(db, ttl=20), await given.claimed(db, ttl=25)
    await clock.advance(30)

    one = (await ff("leases", "expired", "--limit", "1", "--json")).json
    all_ = (await ff("leases", "expired", "--json")).json

    [lease] = one["leases"]
    assert lease["execution_id"] == str(late.execution_id)
    assert (lease["worker_instance_id"], lease["lease_epoch"]) == ("w-1", late.lease_epoch)
    assert lease["lease_id"] == str(late.lease_id)
    rest = await ff("leases", "expired", "--cursor", one["next_cursor"], "--json")
    assert rest.json["leases"] == all_["leases"][1:]
    assert "--cursor: 'x'" in one_line(await ff("leases", "expired", "--cursor", "x"), 2)
    assert [each["execution_id"] for each in all_["leases"]] == [
        str(late.execution_id),
        str(later.execution_id),
    ]
    assert all_["next_cursor"] is rest.json["next_cursor"] is None


async def test_what_was_taken_back_is_not_shown(ff: Inside, db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=20)
    await clock.advance(30)
    await expire_leases(db, limit=10)

    assert (await ff("leases", "expired")).out == "No expired leases.\n"
    assert (await ff("leases", "expired", "--json")).json == {"leases": [], "next_cursor": None}


async def test_only_of_one_namespace(ff: Inside, db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=20)
    await clock.advance(30)

    ours = (await ff("leases", "expired", "--namespace", "default", "--json")).json
    theirs = await ff("leases", "expired", "--namespace", "acme")

    assert [each["execution_id"] for each in ours["leases"]] == [str(lease.execution_id)]
    assert theirs.out == "No expired leases.\n"


async def test_a_limit_that_cannot_be_shows_how_it_is_used(ff_alone: Inside) -> None:
    for limit in ("0", "10001", "all"):
        assert "--limit" in usage_error(await ff_alone("leases", "expired", "--limit", limit))
