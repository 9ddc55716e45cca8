"""The messages between a worker and its child processes: MessagePack frames over pipes."""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

import msgspec

from flowfabric.engine.joins.read_upstream_results import UpstreamResult
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.streams.frame import NewFrame

HEADER: Final = struct.Struct("<I")


class Run(msgspec.Struct, frozen=True, tag="run"):
    """To the child process: run this task for this execution."""

    module: str
    kind: str
    claimed: Claimed


class Done(msgspec.Struct, frozen=True, tag="done"):
    """From the child process: the task returned."""

    result: bytes | None
    encoding: str | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From the child process: the task raised."""

    failure: Failure


class Troubled(msgspec.Struct, frozen=True, tag="troubled"):
    """From the child process: trouble with a database stopped the task."""

    trouble: Trouble


class UpstreamsWanted(msgspec.Struct, frozen=True, tag="upstreams_wanted"):
    """From the child process: the task asks for the results of its upstreams."""


class Upstreams(msgspec.Struct, frozen=True, tag="upstreams"):
    """To the child process: the upstreams that the task asked for, with their stored results."""

    results: list[UpstreamResult]


class LogLevels(msgspec.Struct, frozen=True, tag="log_levels"):
    """To the child process, once: from which level on each logger is wanted."""

    levels: dict[str, int]
    disabled: int


class Logged(msgspec.Struct, frozen=True, kw_only=True, tag="logged"):
    """From the child process: a log record."""

    name: str
    level: int
    message: str
    created: float
    path: str
    line: int
    function: str | None
    process: int | None
    thread: str | None
    traceback: str | None
    fields: dict[str, str | int | float | None]


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """From the child process: how far the task has come."""

    percent: int | None
    message: str | None


class Emitted(msgspec.Struct, frozen=True, tag="emitted"):
    """From the child process: a frame for the stream of the attempt."""

    frame: NewFrame


Request = Run | Upstreams | LogLevels
Reply = Done | Failed | Troubled | UpstreamsWanted | Progressed | Emitted | Logged

_encoder: Final = msgspec.msgpack.Encoder()
_replies: Final = msgspec.msgpack.Decoder(Reply)
_requests: Final = msgspec.msgpack.Decoder(Request)


def framed(message: Request | Reply) -> bytes:
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body


def read_reply(body: bytes) -> Reply:
    return _replies.decode(body)


def read_request(stream: BinaryIO) -> Request | None:
    """The next message to the child process; None once the worker has closed the pipe."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    return _requests.decode(stream.read(length))
