"""Tokens: what they sign, who is refused, and that nobody sees them."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.pretty import pprint

from flowfabric.engine.keys.key import Key
from flowfabric.errors import InvalidToken, MissingToken, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.tokens import TokenParts, WaitpointToken, parse_token, sign_token, verify_token
from flowfabric.wire import wire
from tests.all_cases import all_cases

EXECUTION = ExecutionId(7, UUID("550e8400-e29b-41d4-a716-446655440000"))
WAITPOINT = UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
SECRET = b"topsecret"
TOKEN = sign_token("k1", SECRET, EXECUTION, WAITPOINT)
DIGEST = TOKEN.reveal().removeprefix("k1:")


def test_a_token_signs_kid_execution_and_waitpoint() -> None:
    assert Key("k1", SECRET).sign(f"{EXECUTION}:{WAITPOINT}") == DIGEST
    assert DIGEST == "59c9283c4147275fd69eab8fb07fe26bc2470ef6d3b522db0299207b2e74d6c3"
    assert sign_token("k1", SECRET, EXECUTION, WAITPOINT) == TOKEN
    assert TOKEN.fingerprint == DIGEST[:16]


def test_a_token_verifies_with_its_own_secret_only() -> None:
    verify_token(SECRET, TOKEN, EXECUTION, WAITPOINT)
    verify_token(SECRET, TOKEN.reveal(), EXECUTION, WAITPOINT, stored=TOKEN)

    with pytest.raises(InvalidToken):
        verify_token(b"topsecret2", TOKEN, EXECUTION, WAITPOINT)


def test_a_token_is_for_one_waitpoint_of_one_execution() -> None:
    others = [
        (ExecutionId(8, EXECUTION.uuid), WAITPOINT),
        (ExecutionId(7, UUID(int=1)), WAITPOINT),
        (EXECUTION, UUID(int=1)),
    ]
    for execution, waitpoint in others:
        with pytest.raises(InvalidToken):
            verify_token(SECRET, TOKEN, execution, waitpoint)


def test_a_token_that_is_not_the_stored_one_is_refused_although_it_is_signed() -> None:
    other = sign_token("k2", SECRET, EXECUTION, WAITPOINT)

    with pytest.raises(InvalidToken):
        verify_token(SECRET, TOKEN, EXECUTION, WAITPOINT, stored=other)


@pytest.mark.parametrize("nothing", [None, "", WaitpointToken("")])
def test_no_token_is_missing(nothing: Any) -> None:
    with pytest.raises(MissingToken) as refused:
        parse_token(nothing)

    assert refused.value.code == "missing_token"
    assert isinstance(refused.value, InvalidToken)


MALFORMED: list[Any] = [
    "k1",
    ":",
    "k1:",
    f":{DIGEST}",
    DIGEST,
    f"k1:{DIGEST[:-1]}",
    f"k1:{DIGEST}0",
    f"k1:{DIGEST.upper()}",
    f"k1:{DIGEST} ",
    f"k1:{DIGEST}\n",
    f" :{DIGEST[:-2]}é1",
    f"k1:{'٣' * 64}",
    f"k1:{'g' * 64}",
    f"k1:x:{DIGEST[:62]}",
    f"k\x00:{DIGEST}",
    f"k\ud800:{DIGEST}",
    f"{'k' * 257}:{DIGEST}",
    TOKEN.reveal().encode(),
    7,
    [TOKEN],
]


@all_cases("text", MALFORMED)
def test_a_text_that_is_no_token_is_invalid(text: Any) -> None:
    with pytest.raises(InvalidToken) as refused:
        parse_token(text)

    assert refused.value.code == "invalid_token"
    assert str(refused.value) == "invalid_token: the token is not valid for this waitpoint"


def test_a_key_may_have_any_printable_name() -> None:
    assert parse_token(f"clé 1:{DIGEST}") == TokenParts("clé 1", bytes.fromhex(DIGEST))


@given(st.integers(0, 255))
def test_a_token_with_one_bit_flipped_is_refused(bit: int) -> None:
    flipped = int(DIGEST, 16) ^ 1 << bit

    with pytest.raises(InvalidToken):
        verify_token(SECRET, f"k1:{flipped:064x}", EXECUTION, WAITPOINT)


@given(st.text())
def test_any_text_is_refused_in_the_same_way(text: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        verify_token(SECRET, text, EXECUTION, WAITPOINT)

    assert refused.value.code in ("invalid_token", "missing_token")


def test_a_token_that_is_shown_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    paper = io.StringIO()
    pprint([TOKEN], console=Console(file=paper))
    with caplog.at_level(logging.INFO):
        logging.getLogger("tests").info("token %s %r", TOKEN, TOKEN)

    texts = [repr(TOKEN), str(TOKEN), f"{TOKEN}", repr([TOKEN]), ascii(TOKEN)]
    for text in (*texts, paper.getvalue(), caplog.text):
        assert "k1:<REDACTED:len=64>" in text
        assert DIGEST[:16] not in text
    assert repr(WaitpointToken("secret")) == str(WaitpointToken("secret")) == "<REDACTED:malformed>"
    assert DIGEST not in repr(parse_token(TOKEN))
    assert WaitpointToken("secret").fingerprint is None


def test_a_token_has_no_json_form_and_no_attributes() -> None:
    for encode in (msgspec.json.encode, msgspec.to_builtins, wire):
        with pytest.raises(TypeError):
            encode(TOKEN)
    assert not hasattr(TOKEN, "__dict__")


def test_tokens_are_equal_if_their_texts_are() -> None:
    assert WaitpointToken("a") == WaitpointToken("a") == copy.deepcopy(WaitpointToken("a"))
    assert WaitpointToken("a") != WaitpointToken("b")
    assert WaitpointToken("a") != "a"
    assert len({WaitpointToken("a"), WaitpointToken("a")}) == 1
    assert WaitpointToken("k\ud800") != WaitpointToken("k?")


def test_a_token_is_made_of_a_text() -> None:
    with pytest.raises(ValidationError):
        WaitpointToken(b"a")  # type: ignore[arg-type]
