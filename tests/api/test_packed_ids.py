"""Ids as bytes come back as they were; bytes that are no ids are refused."""

from __future__ import annotations

import pytest

from flowfabric.api.packed_ids import pack_ids, unpack_ids
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, new_uuid


def test_ids_come_back_as_they_were() -> None:
    ids = [ExecutionId(0, new_uuid()), ExecutionId(255, new_uuid()), ExecutionId(65535, new_uuid())]

    assert list(map(ExecutionId, *unpack_ids(pack_ids(ids)))) == ids
    assert unpack_ids(b"") == ([], [])


def test_bytes_that_are_no_ids_are_refused() -> None:
    with pytest.raises(ValidationError, match="18 bytes"):
        unpack_ids(pack_ids([ExecutionId.mint()])[:-1])
