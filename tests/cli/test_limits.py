"""`ff limits`: what a limit allows, which keys use it up, and how it is changed."""

import pytest

from flowfabric.db.rows import Connection
from tests.cli.conftest import Inside
from tests.engine.quotas import limited


async def test_limits_are_set_listed_shown_and_deleted(ff: Inside, db: Connection) -> None:
    for bare in (("limits",), ("limits", "list")):
        assert "No limits yet" in (await ff(*bare)).out
    made = await ff("limits", "set", "per-customer", "--concurrency", "2", "--rate", "10/1m")
    assert made.out == "per-customer: 2 at once, 10 per 1m\n"
    await limited.created(db, *"aaab")
    await limited.claimed(db)

    [listed] = (await ff("limits", "list", "--json")).json["limits"]
    assert (await ff("limits", "--json")).json["limits"] == [listed]
    assert (listed["name"], listed["limits"]["max_concurrent"]) == ("per-customer", 2)
    shown = (await ff("limits", "show", "per-customer", "--json")).json
    keys = {each["limit_key"]: (each["held_slots"], each["held_back"]) for each in shown["keys"]}
    assert keys == {"a": (2, 1), "b": (1, 0)}
    assert "per-customer: 2 at once" in (await ff("limits", "show", "per-customer")).out
    one = (await ff("limits", "show", "per-customer", "--key", "b", "--json")).json["keys"]
    assert [each["limit_key"] for each in one] == ["b"]

    gone = await ff("limits", "delete", "per-customer", "--yes")
    assert (gone.code, gone.out) == (0, "deleted per-customer\n")
    assert (await ff("limits", "show", "per-customer")).code == 1
    odd = await ff("limits", "set", "per [b]", "--concurrency", "2")
    assert odd.out == "per [b]: 2 at once\n"
    assert "per [b]: 2 at once" in (await ff("limits", "show", "per [b]")).out


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--concurrency", "0"),
        ("--concurrency", "-1"),
        ("--rate", "10"),
        ("--rate", "x/60s"),
        ("--rate", "10/0s"),
        ("--rate", "0/60s"),
    ],
    ids=str,
)
async def test_numbers_that_are_no_limit_are_refused(ff: Inside, given: tuple[str, ...]) -> None:
    assert (await ff("limits", "set", "x", *given)).code in (1, 2)
    assert (await ff("limits", "list", "--json")).json["limits"] == []
