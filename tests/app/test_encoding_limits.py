"""Values that JSON cannot express, or only as another value, are refused by name."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from flowfabric import App, Ctx
from flowfabric.app.codec import MSGPACK
from flowfabric.errors import Fail, ValidationError
from flowfabric.policy import ExecutionPolicy
from flowfabric.wire import read_untyped, wire
from tests.all_cases import all_cases

app = App()


@dataclass
class Reading:
    values: list[float]
    note: str | None = None


@app.task("measure")
async def measure(ctx: Ctx, a: Any, b: Any = None) -> Any:
    return a


@app.task("store")
async def store(ctx: Ctx, reading: Reading) -> None: ...


@app.task("packed", codec=MSGPACK)
async def packed(ctx: Ctx, a: Any) -> Any:
    return a


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def circle() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


@all_cases(
    ("value", "path"),
    [
        (math.nan, r"\$\.a is nan"),
        (math.inf, r"\$\.a is inf"),
        (-math.inf, r"\$\.a is -inf"),
        ([1.0, None, {"x": (2.0, math.nan)}], r"\$\.a\[2\]\.x\[1\] is nan"),
        ({1.5: math.inf}, r"\$\.a\.1\.5 is inf"),
        (Reading([0.0, math.nan]), r"\$\.a\.values\[1\] is nan"),
    ],
)
def test_a_number_that_json_has_not_is_refused_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        measure.call(value)
    with pytest.raises(Fail, match=path.replace(r"\.a", "", 1)) as raised:
        measure.encode_result(value, "json")
    assert raised.value.category == "result_encode"


def test_a_number_inside_of_a_model_is_found_too() -> None:
    with pytest.raises(ValidationError, match=r"\$\.values\[1\]"):
        store.call(Reading([1.0, math.inf]))


def test_what_json_has_is_encoded_as_before() -> None:
    assert msgspec.json.decode(measure.call([None, 1.5, "null"], {"n": None}).payload) == {
        "a": [None, 1.5, "null"],
        "b": {"n": None},
    }


def test_msgpack_has_these_numbers() -> None:
    encoded = packed.encode_result([math.inf], "msgpack")

    assert packed.read_result(encoded.data, "msgpack") == [math.inf]


@pytest.mark.parametrize("value", [deep(200_000), circle()])
@pytest.mark.parametrize("task", [measure, packed])
def test_a_value_that_is_nested_too_deeply_or_in_itself_is_refused(task: Any, value: Any) -> None:
    with pytest.raises(ValidationError, match="nested too deeply, or contains itself"):
        task.call(value)
    with pytest.raises(Fail, match="nested too deeply, or contains itself"):
        task.encode_result(value, None)


@pytest.mark.parametrize("value", [{(1, 2): 3}, {None: 1}, object()])
def test_what_json_cannot_encode_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValidationError, match="cannot encode its arguments"):
        measure.call(value)


def test_a_large_integer_is_a_number_in_json_and_refused_by_msgpack() -> None:
    assert measure.call([2**70, None]).payload == b'{"a":[1180591620717411303424,null]}'
    with pytest.raises(ValidationError, match="cannot encode its arguments"):
        packed.call(2**70)


def test_bytes_that_are_nested_too_deeply_are_shown_as_they_are() -> None:
    stored = b"[" * 100_000 + b"]" * 100_000

    assert read_untyped(stored, "json") == stored
    assert isinstance(wire(stored), str)


@all_cases("value", [math.nan, math.inf, deep(200_000), circle(), {(1, 2): 3}])
def test_a_policy_is_held_to_the_same(value: Any) -> None:
    with pytest.raises(ValidationError, match="cannot be stored"):
        ExecutionPolicy(stream_policy={"x": value})
