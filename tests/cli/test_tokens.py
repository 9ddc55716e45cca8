"""`ff tokens`: a token is shown once; and what `ff server` refuses to do."""

from flowfabric import Engine
from flowfabric.engine.access.secret import digest
from tests.cli.conftest import Inside


async def test_a_token_is_made_shown_once_and_revoked(ff: Inside, ff_engine: Engine) -> None:
    empty = await ff("tokens", "list")
    made = await ff(
        *("tokens", "create", "shop", "--role", "worker", "--namespace", "shop"),
        *("--expires", "90d", "--json"),
    )
    token, token_id = made.json["token"], made.json["token_id"]
    found = await ff_engine.find_token(digest(token))
    listed = await ff("tokens", "list")
    revoked = await ff("tokens", "revoke", token_id)
    again = await ff("tokens", "revoke", token_id)
    assert empty.out == "No tokens yet: ff tokens create NAME --role admin.\n"
    assert found is not None
    assert (found.label, found.namespaces) == ("shop", ["shop"])
    assert "worker" in listed.out
    assert token not in listed.out + revoked.out
    assert (revoked.out, again.out) == ("revoked shop\n", "revoked shop before\n")
    assert await ff_engine.find_token(digest(token)) is None


async def test_wrong_use_is_told_in_one_line(ff: Inside) -> None:
    nobody = await ff("tokens", "revoke", "0189d0c3-0000-7000-8000-000000000000")
    no_id = await ff("tokens", "revoke", "x")
    role = await ff("tokens", "create", "x", "--role", "king")
    opened = await ff("server", "--listen", "0.0.0.0:0")
    address = await ff("server", "--listen", "nowhere")
    assert (nobody.code, no_id.code, role.code) == (1, 2, 2)
    assert (opened.code, address.code) == (2, 2)
    assert "ff tokens create" in opened.err
    assert "HOST:PORT" in address.err
