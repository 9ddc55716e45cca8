"""Values to bytes and back."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric import App, Client, Codec, Ctx, ExecutionFailed, JsonCodec, MsgpackCodec
from tests.all_cases import all_cases
from tests.given import created

CODECS: list[Codec] = [JsonCodec(), MsgpackCodec()]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from("abc")), inner),
    max_leaves=20,
)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    at: datetime
    inner: Point


class Foreign:
    """Something that no codec knows."""


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@given(value=VALUES)
def test_plain_data_comes_back_equal(codec: Codec, value: Any) -> None:
    assert codec.decoder(Any)(codec.encode(value)) == value


@all_cases("codec", CODECS, ids=lambda codec: codec.name)
@all_cases(
    ("wanted", "value"),
    [
        (Point, Point(1, 2)),
        (list[Point], [Point(1), Point(2)]),
        (Model, Model(at=datetime(2024, 1, 1, tzinfo=UTC), inner=Point(1))),
        (dict[str, Model], {"m": Model(at=datetime(2024, 1, 1, tzinfo=UTC), inner=Point(1))}),
        (bytes, b"\x00\xff"),
    ],
)
def test_typed_values_come_back_as_their_type(codec: Codec, wanted: Any, value: Any) -> None:
    assert codec.decoder(wanted)(codec.encode(value)) == value


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_value_of_the_wrong_shape_is_refused(codec: Codec) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.x"):
        codec.decoder(Point)(codec.encode({"x": "one"}))


@all_cases("codec", CODECS, ids=lambda codec: codec.name)
@all_cases("broken", [b"", b"\xc1", b'{"x": 1'], ids=["empty", "noise", "cut"])
def test_bytes_that_are_not_of_the_codec_are_refused(codec: Codec, broken: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decoder(Point)(broken)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "use",
    [
        lambda codec: codec.encode(Foreign()),
        lambda codec: codec.decoder(Foreign)(codec.encode({})),
    ],
    ids=["encode", "decode"],
)
def test_a_type_that_no_codec_knows_is_refused_by_name(
    codec: Codec, use: Callable[[Codec], object]
) -> None:
    with pytest.raises(NotImplementedError, match="Foreign"):
        use(codec)


async def run_once(client: Client, dsn: str, app: App, call: Any, **options: Any) -> Any:
    handle = await client.submit(call, **options)
    await app.worker(dsn=dsn).run_until_idle()
    return await handle.result(timeout=10)


async def test_a_codec_of_the_users_own_is_used_both_ways(client: Client, ff_dsn: str) -> None:
    class Reversed(JsonCodec):
        name = "reversed"

        def encode(self, value: object) -> bytes:
            return super().encode(value)[::-1]

        def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
            inner = super().decoder(wanted)
            return lambda data: inner(data[::-1])

    app = App(codec=Reversed())

    @app.task("turn")
    async def turn(ctx: Ctx, word: str) -> str:
        return word.upper()

    call = turn.call("abc")

    assert call.payload == b'}"cba":"drow"{'
    assert await run_once(client, ff_dsn, app, call) == "ABC"


async def test_payload_and_result_are_in_the_encoding_of_whoever_submitted(
    client: Client, ff_dsn: str
) -> None:
    before, after = App(codec=MsgpackCodec()), App()

    @before.task("double")
    async def old(ctx: Ctx, number: int) -> int:
        raise AssertionError("only submits")

    @after.task("double")
    async def new(ctx: Ctx, number: int) -> int:
        return 2 * number

    handle = await client.submit(old.call(21))
    await after.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == 42
    assert await client.handle(handle.execution_id).result(timeout=10) == 42


async def test_an_encoding_that_nobody_knows_fails_for_good(
    client: Client, ff_dsn: str, db: Any
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        return number

    execution_id = await created(db, input_payload=b"\x00", payload_encoding="pickle")
    await app.worker(dsn=ff_dsn).run_until_idle()

    with pytest.raises(ExecutionFailed, match="encoding 'pickle' is unknown") as failed:
        await client.handle(execution_id).result(timeout=10)
    assert failed.value.category == "extractor_payload_decode"


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("value", [49, "text", {"a": [1, 2.5, None]}], ids=str)
async def test_a_handle_made_from_an_id_reads_the_result_in_its_encoding(
    client: Client, ff_dsn: str, codec: Codec, value: Any
) -> None:
    app = App(codec=codec)

    @app.task("echo")
    async def echo(ctx: Ctx, given: Any) -> Any:
        return given

    submitted = await client.submit(echo.call(value))
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await client.handle(str(submitted.execution_id)).result(timeout=10) == value
