"""One argument of an input is replaced by a result, without knowing the types of the others."""

import msgspec

from flowfabric.engine.lifecycle.pass_arguments import put_argument
from tests.all_cases import all_cases

PACKED = msgspec.msgpack.encode({"a": 1})


@all_cases(
    ("payload", "result", "result_encoding", "expected"),
    [
        (b'{"a": 1}', b"[1.50]", "json", b'{"a":1,"n":[1.50]}'),
        (b'{"n":0,"a":1}', b"2", "json", b'{"n":2,"a":1}'),
        (b"{}", None, "json", b'{"n":null}'),
        (b"{}", b"\x93\x01\x02\x03", "msgpack", b'{"n":[1,2,3]}'),
        (b"{}", b"abc", "bytes", b'{"n":"YWJj"}'),
        (b"{}", b"nonsense", "json", b'{"n":nonsense}'),  # the target fails: it does not decode
        (b"[1]", b"2", "json", None),
        (b"nonsense", b"2", "json", None),
        (b"\xff", b"2", "json", None),
    ],
)
def test_an_argument_is_put_into_a_payload_in_json(
    payload: bytes, result: bytes | None, result_encoding: str, expected: bytes | None
) -> None:
    assert put_argument(payload, "json", "n", result, result_encoding) == expected


@all_cases(
    ("encoding", "result", "result_encoding", "expected"),
    [
        ("msgpack", b"\x02", "msgpack", {"a": 1, "n": 2}),
        ("msgpack", b'{"x": 2}', "json", {"a": 1, "n": {"x": 2}}),
        ("msgpack", b"abc", "bytes", {"a": 1, "n": b"abc"}),
        ("own codec", b"2", "json", None),
        (None, b"2", "json", None),
    ],
)
def test_an_argument_is_put_into_a_payload_in_messagepack_and_into_no_other(
    encoding: str | None, result: bytes, result_encoding: str, expected: object
) -> None:
    composed = put_argument(PACKED, encoding, "n", result, result_encoding)

    assert composed == (expected and msgspec.msgpack.encode(expected))
