"""Patches are merged into the summary of a stream, which is readable at any time."""

import json
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.streams.patch import NULL
from flowfabric.engine.streams.read_state import read_state
from flowfabric.engine.streams.read_summary import read_summary
from flowfabric.errors import ValidationError
from flowfabric.instants import instant
from flowfabric.policy import FixedBackoff
from flowfabric.states import PatchKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.streams.streams import SUMMARY, appended, frame, frames, patch

MERGES: list[tuple[list[Any], Any]] = [
    ([{"a": 1, "b": {"c": 1}}, {"b": {"c": 2, "d": 3}}, {"a": None}], {"b": {"c": 2, "d": 3}}),
    ([{"a": [1, 2]}, {"a": [3]}], {"a": [3]}),
    ([{"a": 1}, {"a": {"b": {"c": None, "d": 1}}}], {"a": {"b": {"d": 1}}}),
    ([{"a": {"b": 1}}, {"a": "x"}], {"a": "x"}),
    ([{"a": NULL}], {"a": None}),
    ([{"a": NULL}, {"a": {"b": 1}}], {"a": {"b": 1}}),
    (
        [{"a": [NULL, [NULL], {"b": NULL}], "c": {"d": NULL}}],
        {"a": [None, [None], {"b": None}], "c": {"d": None}},
    ),
    ([{"a": 1}, {}], {"a": 1}),
    ([{NULL: "x", "t": f"say {NULL}"}], {NULL: "x", "t": f"say {NULL}"}),
    ([{"a": 1, "b": 2}, {"c": None}], {"a": 1, "b": 2}),
]


@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "call by call"])
@pytest.mark.parametrize(("patches", "document"), MERGES, ids=lambda each: str(each)[:50])
async def test_patches_are_merged(
    patches: list[Any], document: Any, at_once: bool, db: Connection
) -> None:
    lease = await given.claimed(db)
    if at_once:
        versions = [
            each.summary_version for each in await appended(db, lease, *map(patch, patches))
        ]
    else:
        versions = [(await appended(db, lease, patch(each)))[0].summary_version for each in patches]

    found = await read_summary(db, lease.execution_id, 0)

    assert found is not None
    assert found.document == document
    assert versions == list(range(1, len(patches) + 1))
    assert found.version == len(patches)


async def test_a_patch_that_replaces_deletes_the_keys_that_it_does_not_name(db: Connection) -> None:
    lease = await given.claimed(db)

    await appended(db, lease, patch({"a": 1, "b": {"x": 1}}))
    await appended(db, lease, patch({"b": {"y": 2}, "c": 3}, replaces=True), patch({"d": 4}))

    found = await read_state(db, lease.execution_id)
    assert found is not None
    assert found.document == {"b": {"x": 1, "y": 2}, "c": 3, "d": 4}
    # A reader that merges the frames itself gets the same document.
    deltas = [json.loads(each.text) for each in await frames(db, lease) if each.mode is SUMMARY]
    assert deltas == [{"a": 1, "b": {"x": 1}}, {"a": None, "b": {"y": 2}, "c": 3}, {"d": 4}]


async def test_a_summary_has_its_times_and_survives_the_trimming_of_its_frames(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=600)
    began = await clock.now_ms()
    await appended(db, lease, patch({"first": True}))
    await clock.advance(timedelta(seconds=5))
    await appended(db, lease, *(patch({"n": n}) for n in range(100)))

    found = await read_summary(db, lease.execution_id, 0)

    assert len(await frames(db, lease)) == 64
    assert found is not None
    assert found.document == {"first": True, "n": 99}
    assert (found.version, found.patch_kind) == (101, PatchKind.JSON_MERGE_PATCH)
    assert found.first_applied_at == instant(began)
    assert found.last_updated_at == instant(began + 5000)


async def test_patches_of_two_connections_are_merged_one_after_the_other(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    other = await another()
    async with db.transaction():
        await appended(db, lease, patch({"a": 1, "both": "first"}))
        behind = await given.blocked(
            await another(), other, appended(other, lease, patch({"b": 2, "both": "second"}))
        )
    [second] = await behind

    found = await read_summary(db, lease.execution_id, 0)
    assert found is not None
    assert found.document == {"a": 1, "b": 2, "both": "second"}
    assert second.summary_version == found.version == 2


async def test_there_is_no_summary_without_a_summary_frame(db: Connection) -> None:
    lease = await given.claimed(db)
    await appended(db, lease, frame())

    assert await read_summary(db, lease.execution_id, 0) is None
    assert await read_state(db, lease.execution_id) is None
    with pytest.raises(ValidationError, match="attempt_index -1"):
        await read_summary(db, lease.execution_id, -1)


async def test_the_state_is_that_of_the_newest_attempt_that_has_one(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(
        db, policy=given.retrying(backoff=FixedBackoff(delay=0.001)), ttl=600
    )
    await appended(db, lease, patch({"attempt": 0}))
    await fail(db, [Failure(lease=lease, reason="again")])
    await clock.advance(timedelta(seconds=1))
    await promote_due(db, 10)
    [again] = await claim(db, given.OTHER, ttl=600)
    assert again.lease.attempt_index == 1

    before = await read_state(db, lease.execution_id)
    await appended(db, again.lease, patch({"attempt": 1}))
    after = await read_state(db, lease.execution_id)

    assert before is not None
    assert before.document == {"attempt": 0}
    assert after is not None
    assert (after.attempt_index, after.document) == (1, {"attempt": 1})
