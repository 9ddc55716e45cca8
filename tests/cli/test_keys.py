"""`ff keys`: which key signs; a secret goes in and never comes out."""

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock
from tests.cli.conftest import Answer, Inside, one_line
from tests.engine.controls import actions

SECRET = "c0ffee" + "5a" * 29
OTHER = "ab" * 32


def silent(answer: Answer, *secrets: str) -> Answer:
    """The answer, in which no secret is to be found, in whatever letters."""
    for secret in secrets or (SECRET, OTHER):
        assert secret.lower() not in (answer.out + answer.err).lower()
        assert bytes.fromhex(secret).decode("latin-1") not in answer.out + answer.err
    return answer


async def stored(db: Connection) -> dict[str, str]:
    """The secrets in the database, by the name of their key."""
    rows = await db.fetch("SELECT kid, secret FROM ff.waitpoint_hmac")
    return {row["kid"]: row["secret"].hex() for row in rows}


async def test_a_new_database_has_no_keys(ff: Inside) -> None:
    assert (await ff("keys", "list")).out == "No keys yet: ff keys seed makes the first.\n"
    assert (await ff("keys", "list", "--json")).json == {"keys": [], "next_cursor": None}


async def test_the_first_key_is_seeded_from_the_environment_and_every_boot_may_do_it_again(
    ff: Inside, db: Connection
) -> None:
    first = silent(await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET))
    again = silent(await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET))
    listed = silent(await ff("keys", "list"))

    assert (first.code, first.out) == (0, "seeded k1\n")
    assert (again.code, again.out) == (0, "key k1 exists already; nothing changed\n")
    assert await stored(db) == {"k1": SECRET}
    assert listed.out.splitlines()[1].split() == ["k1", "signs"]


async def test_without_a_secret_one_is_made_and_not_shown(ff: Inside, db: Connection) -> None:
    seeded = await ff("keys", "seed", "--kid", "first", "--json")
    again = await ff("keys", "seed", "--kid", "first", "--json")
    rotated = await ff("keys", "rotate", "--kid", "second")
    listed = await ff("keys", "list", "--json")
    one = await ff("keys", "list", "--limit", "1", "--json")

    assert [key["kid"] for key in listed.json["keys"]] == ["second", "first"]
    assert one.json["keys"] == listed.json["keys"][:1]
    assert seeded.json == {"kid": "first", "seeded": True}
    assert again.json == {"kid": "first", "seeded": False}
    secrets = await stored(db)
    assert [len(secret) for secret in secrets.values()] == [64, 64]
    for answer in (seeded, again, rotated, listed):
        silent(answer, *secrets.values())


async def test_another_secret_under_a_known_name_is_an_error(ff: Inside, db: Connection) -> None:
    await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET)

    said = silent(await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=OTHER))
    told = silent(await ff("keys", "seed", "--json", FF_WAITPOINT_HMAC_SECRET=OTHER))

    assert said.code == 1
    assert said.out == "key k1 exists already with another secret; nothing changed\n"
    assert (told.code, told.json) == (1, {"kid": "k1", "seeded": False})
    assert await stored(db) == {"k1": SECRET}


async def test_a_rotation_retires_the_key_before_and_keeps_who_did_it(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET)

    answer = silent(
        await ff("keys", "rotate", "--kid", "k2", "--grace", "1h", FF_WAITPOINT_HMAC_SECRET=OTHER)
    )
    listed = silent(await ff("keys", "list", "--json"))
    shown = silent(await ff("keys", "list"))
    await clock.advance(3601)
    later = await ff("keys", "list", "--json")

    assert (answer.code, answer.out) == (0, "k2 signs from now on; k1 verifies for 1h more\n")
    signs, retired = listed.json["keys"]
    assert signs == {"kid": "k2", "status": "signs", "expires_at": None}
    assert (retired["kid"], retired["status"]) == ("k1", "retired")
    assert [line.split()[:2] for line in shown.out.splitlines()[1:]] == [
        ["k2", "signs"],
        ["k1", "retired"],
    ]
    assert [each["kid"] for each in later.json["keys"]] == ["k2"]
    [action] = await actions(db)
    assert (action.event_type, action.actor) == ("key_rotated", user_at_host())
    assert action.details == {"old_kid": "k1", "new_kid": "k2", "grace_ms": 3_600_000}


async def test_a_rotation_may_make_the_first_key_and_its_name(ff: Inside) -> None:
    answer = await ff("keys", "rotate", "--json")

    assert answer.json["previous_kid"] is None
    assert answer.json["new_kid"].startswith("k-")
    [key] = (await ff("keys", "list", "--json")).json["keys"]
    assert key["kid"] == answer.json["new_kid"]


async def test_the_same_rotation_again_changes_nothing(ff: Inside, db: Connection) -> None:
    rotate = ("keys", "rotate", "--kid", "k2")
    await ff(*rotate, FF_WAITPOINT_HMAC_SECRET=SECRET)

    said = silent(await ff(*rotate, FF_WAITPOINT_HMAC_SECRET=SECRET))
    told = silent(await ff(*rotate, "--json", FF_WAITPOINT_HMAC_SECRET=SECRET))

    assert (said.code, said.out) == (0, "k2 signs already; nothing changed\n")
    assert told.json == {"kid": "k2"}
    assert len(await actions(db)) == 1


MISTAKES: list[tuple[tuple[str, ...], str, str]] = [
    (("seed", "--kid", "k2"), SECRET, "kid 'k2' cannot be seeded: another key signs"),
    (("seed", "--kid", ""), SECRET, "invalid_kid: kid must not be empty"),
    (("seed", "--kid", f"k1:{OTHER}"), SECRET, "invalid_kid: kid must not hold a colon"),
    (("seed",), SECRET[:-1], "invalid_secret_hex: the secret must be 64 hex digits"),
    (("seed",), SECRET + "00", "invalid_secret_hex: the secret must be 64 hex digits"),
    (("seed",), f"{SECRET[:-2]}zz", "invalid_secret_hex: the secret must be 64 hex digits"),
    (("rotate", "--kid", "a:b"), SECRET, "invalid_kid: kid must not hold a colon"),
    (("rotate", "--kid", "k1"), OTHER, "kid 'k1' belongs to another secret"),
    (("rotate",), SECRET[:-1], "the secret must be an even number of hex digits"),
    (("rotate", "--grace", "soon"), SECRET, "--grace: 'soon' must look like 90s, 15m"),
]


async def test_what_cannot_be_a_key_is_one_line_without_the_secret(
    ff: Inside, db: Connection
) -> None:
    await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET)

    for arguments, secret, why in MISTAKES:
        answer = await ff("keys", *arguments, FF_WAITPOINT_HMAC_SECRET=secret)
        assert why in one_line(answer, 1 if "another" in why else 2)
        assert secret not in answer.err
        assert OTHER not in answer.err
    assert await stored(db) == {"k1": SECRET}


async def test_a_retired_name_is_not_taken_again(ff: Inside) -> None:
    await ff("keys", "seed", FF_WAITPOINT_HMAC_SECRET=SECRET)
    await ff("keys", "rotate", "--kid", "k2")

    line = one_line(await ff("keys", "rotate", "--kid", "k1", FF_WAITPOINT_HMAC_SECRET=SECRET))

    assert line == "ff: kid 'k1' was retired"


# What is not as it should be.


async def test_an_empty_name_of_a_new_key_is_refused(ff: Inside) -> None:
    assert "invalid_kid" in one_line(await ff("keys", "rotate", "--kid", ""), 2)


async def test_without_grace_the_old_key_is_said_to_be_void(ff: Inside) -> None:
    await ff("keys", "seed")

    assert "for 0 more" not in (await ff("keys", "rotate", "--grace", "0")).out
