"""The messages between a worker and its child processes: MessagePack frames over pipes."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.sql.lease import Claimed

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


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """From the child process: how far the task has come."""

    percent: int | None
    message: str | None


Reply = Done | Failed | Progressed

_encoder: Final = msgspec.msgpack.Encoder()
_replies: Final = msgspec.msgpack.Decoder(Reply)
_runs: Final = msgspec.msgpack.Decoder(Run)


def framed(message: Run | Reply) -> bytes:
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body


def read_reply(body: bytes) -> Reply:
    return _replies.decode(body)


def read_run(body: bytes) -> Run:
    return _runs.decode(body)
