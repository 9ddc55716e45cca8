"""What a task returns is checked in the worker, where the words still help."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pytest

from flowfabric import App, ResultDecodeError, Task
from flowfabric.errors import Fail
from tests.all_cases import all_cases


class Receipt(msgspec.Struct):
    order_id: str
    total: int


class Colour(StrEnum):
    RED = "red"


@dataclass
class Basket:
    receipts: list[Any]


def returning(annotation: Any) -> Task[..., Any]:
    """A task whose function is annotated with this type of result."""

    async def charge(ctx: Any) -> Any: ...

    charge.__annotations__["return"] = annotation
    return App().task("charge")(charge)


MISTYPED: list[tuple[Any, Any, str]] = [
    (int, "x", "-> int: expected int, got str"),
    (int, True, "-> int: expected int, got bool"),
    (int, None, "-> int: expected int, got None"),
    (str, b"x", "-> str: expected str, got bytes"),
    (str, 7, "-> str: expected str, got int"),
    (float, "1.5", "-> float: expected float, got str"),
    (bytes, "x", "-> bytes: expected bytes, got str"),
    (bytes, None, "-> bytes: expected bytes, got None"),
    (bytes | None, 7, r"-> bytes \| None: expected bytes, got int"),
    (None, "x", "-> None: expected null, got str"),
    (list[int], [1, "x"], r"-> list\[int\]: \$\[1\]: expected int, got str"),
    (list[int], None, r"-> list\[int\]: expected list\[int\], got None"),
    (int | None, "x", r"-> int \| None: expected int \| null, got str"),
    (Receipt, Receipt("o-1", "7"), r"-> Receipt: \$.total: expected int, got str"),  # type: ignore[arg-type]
    (Receipt, {"order_id": "o-1"}, "-> Receipt: object missing required field total"),
]


@all_cases(("annotation", "value", "why"), MISTYPED, ids=[why for *_, why in MISTYPED])
def test_a_value_of_another_type_than_was_declared_is_refused_by_its_place(
    annotation: Any, value: Any, why: str
) -> None:
    with pytest.raises(Fail, match=f"result of 'charge' does not match {why}") as refused:
        returning(annotation).encode_result(value, "json")

    assert (refused.value.category, refused.value.may_retry) == ("result_encode", False)


@all_cases(
    ("annotation", "value", "read"),
    [
        (float, 1, 1.0),
        (Annotated[int, ["a list has no hash"]], 1, 1),
        (str, Colour.RED, "red"),
        (int | None, None, None),
        (Any, None, None),
        (object, None, None),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Receipt, {"order_id": "o-1", "total": 7}, Receipt("o-1", 7)),
        (bytes, bytearray(b"\xff"), b"\xff"),
        (bytes, memoryview(b"\xff"), b"\xff"),
    ],
)
def test_a_value_that_reads_as_the_declared_type_is_accepted(
    annotation: Any, value: Any, read: Any
) -> None:
    task = returning(annotation)

    encoded = task.encode_result(value, "json")

    assert task.read_result(encoded.data, encoded.encoding or "json") == read


UNENCODABLE: list[tuple[Any, str]] = [
    (object(), r"\$ is of type object"),
    ({"a": [1, {"b": object()}]}, r"\$\.a\[1\]\.b is of type object"),
    (Basket([Receipt("o-1", object())]), r"\$\.receipts\[0\]\.total is of type object"),  # type: ignore[arg-type]
    ({"a": {(1, 2): 3}}, r"\$\.a has a key of type tuple"),
    ((each for each in "abc"), r"\$ is of type generator"),
]


@all_cases(("value", "why"), UNENCODABLE, ids=[why for _, why in UNENCODABLE])
def test_a_value_that_cannot_be_encoded_is_named_by_place_and_type(value: Any, why: str) -> None:
    with pytest.raises(Fail, match=f"result of 'charge' cannot be encoded: {why}") as refused:
        returning(Any).encode_result(value, "json")

    assert (refused.value.category, refused.value.may_retry) == ("result_encode", False)


READERS: list[tuple[Any, bytes, str, str]] = [
    (int, b'"x"', "$", "expected int, got str"),
    (Receipt, b'{"order_id":"o-1","total":"7"}', "$.total", "expected int, got str"),
    (str, b'"x', "$", "input data was truncated"),
    (str, b'"\xff"', "$", "invalid start byte"),
]


@pytest.mark.parametrize(("annotation", "stored", "path", "why"), READERS)
def test_a_stored_result_that_cannot_be_read_names_place_type_and_value(
    annotation: Any, stored: bytes, path: str, why: str
) -> None:
    with pytest.raises(ResultDecodeError, match=why) as refused:
        returning(annotation).read_result(stored, "json")

    error = refused.value
    assert (error.execution_kind, error.path, error.wanted) == (
        "charge",
        path,
        annotation.__name__,
    )
    assert error.stored == repr(stored)


def test_only_the_beginning_of_a_large_result_is_shown() -> None:
    with pytest.raises(ResultDecodeError) as refused:
        returning(int).read_result(b'"' + b"x" * 10_000 + b'"', "json")

    assert len(str(refused.value)) < 400
    assert refused.value.stored.endswith("…")


def test_a_codec_of_the_user_may_raise_what_it_likes() -> None:
    class Stubborn:
        name = "stubborn"

        def encode(self, value: object) -> bytes:
            return b"?"

        def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
            def read(data: bytes) -> Any:
                raise KeyError("nothing here")

            return read

    async def charge(ctx: Any) -> int: ...

    charge.__annotations__["return"] = int
    task = App(codec=Stubborn()).task("charge")(charge)
    with pytest.raises(ResultDecodeError, match="KeyError: 'nothing here'"):
        task.read_result(b"?", "stubborn")
