"""Handles: the opaque bytes that a remote holder keeps."""

from __future__ import annotations

import hashlib
import struct
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.engine.lifecycle.lease import (
    Lease,
    LeaseHandle,
    LeaseHandleKind,
    fence_columns,
    pack_lease,
    unpack_lease,
)
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.stored_policy import MAX_MS
from tests.all_cases import all_cases

HANDLE = LeaseHandle(
    lease=Lease(
        ExecutionId.parse("{fp:7}:550e8400-e29b-41d4-a716-446655440000"),
        0,
        1,
        UUID("22222222-2222-2222-2222-222222222222"),
    ),
    attempt_id=UUID("11111111-1111-1111-1111-111111111111"),
    lease_ttl=30,
    lane_id="default",
    worker_instance_id="w-1",
)
BYTES = HANDLE.encode()

indexes = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**63 - 1)
handles = st.builds(
    LeaseHandle,
    lease=st.builds(
        Lease, st.builds(ExecutionId, st.integers(0, 255), st.uuids()), indexes, epochs, st.uuids()
    ),
    attempt_id=st.uuids(),
    lease_ttl=st.integers(0, MAX_MS).map(lambda ms: ms / 1000),
    lane_id=st.text(max_size=64),
    worker_instance_id=st.text(max_size=64),
)


def fault(data: bytes) -> str:
    with pytest.raises(ValidationError) as error:
        LeaseHandle.decode(data)
    return error.value.code


def test_a_handle_is_written_as_in_the_vector() -> None:
    assert len(BYTES) == 168
    assert (
        hashlib.sha256(BYTES).hexdigest()
        == "2a558e931e16b93210776062a229263246dc9a33950f83c072481e435ab7831b"
    )


@given(handles)
def test_a_handle_reads_back_as_it_was_written(handle: LeaseHandle) -> None:
    assert LeaseHandle.decode(handle.encode()) == handle


@given(handles)
def test_a_lease_is_packed_in_few_bytes_and_unpacked_from_either_form(handle: LeaseHandle) -> None:
    packed = pack_lease(handle.lease)
    assert len(packed) == 46
    assert unpack_lease(packed) == unpack_lease(handle.encode()) == handle.lease


@pytest.mark.parametrize("data", [b"", b"\x00" * 45, b"\xff" * 46], ids=["none", "short", "large"])
def test_other_bytes_are_no_packed_lease(data: bytes) -> None:
    with pytest.raises(ValidationError, match="handle") as error:
        unpack_lease(data)
    assert error.value.code == "corruption"


@all_cases("length", range(len(BYTES)))
def test_a_handle_cut_short_is_corrupt(length: int) -> None:
    assert fault(BYTES[:length]) == "corruption"


@pytest.mark.parametrize("more", [b"\x00", b"x", BYTES])
def test_a_handle_with_trailing_bytes_is_corrupt(more: bytes) -> None:
    assert fault(BYTES + more) == "corruption"


@pytest.mark.parametrize("backend", [0x00, 0x01, 0x03, 0xFF])
def test_a_handle_of_another_backend_is_told_apart(backend: int) -> None:
    assert fault(BYTES[:2] + bytes([backend]) + BYTES[3:]) == "handle_from_other_backend"


@pytest.mark.parametrize(("at", "byte"), [(0, 0x00), (0, 0x01), (1, 0x00), (1, 0x02)])
def test_a_handle_of_another_layout_is_corrupt(at: int, byte: int) -> None:
    assert fault(BYTES[:at] + bytes([byte]) + BYTES[at + 1 :]) == "corruption"


@all_cases(
    ("old", "new"),
    [
        (b"{fp:7}", b"{fp:x}"),
        (b"{fp:7}:", b"{fp:7};"),
        (b"{fp:7}:550e8400-", b"{fp:7}:x50e8400-"),
        (b"11111111-1111", b"1111111111111"),
        (b"22222222-2222", b"g2222222-2222"),
        (b"default", b"\xff\xfe\xff\xfe\xff\xfe\xff"),
        (struct.pack("<I", 7) + b"default", struct.pack("<I", 2**32 - 1) + b"default"),
    ],
)
def test_a_handle_with_a_field_that_cannot_be_is_corrupt(old: bytes, new: bytes) -> None:
    assert BYTES.count(old) == 1

    assert fault(BYTES.replace(old, new)) == "corruption"


def test_a_handle_into_a_partition_that_does_not_exist_is_corrupt() -> None:
    outside = b"{fp:256}:550e8400-e29b-41d4-a716-446655440000"
    inside = str(HANDLE.lease.execution_id).encode()
    data = BYTES.replace(
        struct.pack("<I", len(inside)) + inside, struct.pack("<I", len(outside)) + outside
    )

    assert data != BYTES
    assert fault(data) == "corruption"


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda end: BYTES[:3] + end)))
def test_any_bytes_are_a_handle_or_refused(data: bytes) -> None:
    try:
        told = LeaseHandle.decode(data).encode()
    except ValidationError as error:
        told = error.code.encode()

    assert told in (data, b"corruption", b"handle_from_other_backend")


def test_a_lease_knows_the_name_of_its_attempt() -> None:
    lease = HANDLE.lease

    assert lease.attempt_id == attempt_id(lease.execution_id, 0)
    assert lease.attempt_id != attempt_id(lease.execution_id, 1)


def test_a_lease_becomes_a_handle() -> None:
    handle = HANDLE.lease.handle(lease_ttl=30, lane_id="default", worker_instance_id="w-1")

    assert handle.attempt_id == HANDLE.lease.attempt_id
    assert len(handle.encode()) == 168
    assert msgspec.structs.replace(handle, attempt_id=HANDLE.attempt_id) == HANDLE


def test_a_handle_is_of_one_of_four_kinds() -> None:
    assert list(LeaseHandleKind) == ["fresh", "resumed", "suspended", "reclaimed"]


def test_leases_become_parallel_arrays() -> None:
    other = Lease(ExecutionId(9, UUID(int=5)), 2, 4, UUID(int=6))

    assert fence_columns([HANDLE.lease, other]) == {
        "partition_key": [7, 9],
        "execution_id": [HANDLE.lease.execution_id.uuid, UUID(int=5)],
        "attempt_index": [0, 2],
        "lease_epoch": [1, 4],
        "lease_id": [HANDLE.lease.lease_id, UUID(int=6)],
    }
