"""Identifiers: written forms, partitions, and what may be stored."""

from __future__ import annotations

import contextlib
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric import ids
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from tests import given as existing
from tests.all_cases import all_cases

A_UUID = "550e8400-e29b-41d4-a716-446655440000"


def refused(error: pytest.ExceptionInfo[ValidationError], field: str, value: str) -> bool:
    """Is it `invalid_input`, naming the field and the value?"""
    told = str(error.value)
    return error.value.code == "invalid_input" and field in told and value in told


# Partition functions.


def test_crc16_is_xmodem() -> None:
    assert ids.crc16(b"123456789") == 0x31C3


@all_cases(
    ("text", "crc", "of_256", "of_32"),
    [
        ("00000000-0000-0000-0000-000000000000", 0x0000, 0, 0),
        ("11111111-1111-1111-1111-111111111111", 0x5006, 6, 6),
        ("550e8400-e29b-41d4-a716-446655440000", 0x9018, 24, 24),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 0xF34D, 77, 13),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", 0x0041, 65, 1),
    ],
)
def test_a_uuid_lives_in_the_partition_of_its_crc(
    text: str, crc: int, of_256: int, of_32: int
) -> None:
    assert ids.crc16(UUID(text).bytes) == crc
    assert ids.uuid_partition(UUID(text)) == of_256
    assert ids.uuid_partition(UUID(text), 32) == of_32


@pytest.mark.parametrize(
    ("lane", "crc", "of_256"),
    [("default", 0xD656, 86), ("workers", 0x49A2, 162), ("gpu-a100", 0x0FA7, 167)],
)
def test_ids_minted_by_lane_elsewhere_use_the_same_crc(lane: str, crc: int, of_256: int) -> None:
    assert ids.crc16(lane.encode()) == crc
    assert crc % 256 == of_256


@pytest.mark.parametrize(
    ("instance", "digest", "partition"),
    [("worker-1", 0x24913EC59027EBED, 237), ("inst-a", 0xF189748710D82387, 135)],
)
def test_a_worker_lives_in_the_partition_of_its_fnv1a(
    instance: str, digest: int, partition: int
) -> None:
    assert ids.fnv1a_64(instance.encode()) == digest
    assert ids.worker_partition(instance) == partition


# Execution ids.

execution_ids = st.builds(ExecutionId, st.integers(0, 255), st.uuids())


@given(execution_ids)
def test_an_execution_id_reads_back_as_it_was_written(execution_id: ExecutionId) -> None:
    assert ExecutionId.parse(str(execution_id)) == execution_id
    assert str(execution_id) == f"{{fp:{execution_id.partition_key}}}:{execution_id.uuid}"


@given(st.text(max_size=60))
def test_any_text_is_an_execution_id_or_refused_as_invalid_input(text: str) -> None:
    try:
        told = str(ExecutionId.parse(text)).partition("}")[2]
    except ValidationError as error:
        told = f"{error.code}: {error.detail[:13]}"

    assert told in (text.lower().partition("}")[2], "invalid_input: execution_id ")


@all_cases(
    ("text", "why"),
    [
        (A_UUID, "must look like"),
        (f"fp:7:{A_UUID}", "must look like"),
        (f"{{fp:7}}{A_UUID}", "must look like"),
        (f"{{b:7}}:{A_UUID}", "must look like"),
        (f"{{fp:}}:{A_UUID}", "must look like"),
        (f"{{fp:-1}}:{A_UUID}", "must look like"),
        (f"{{fp:x}}:{A_UUID}", "must look like"),
        (f"{{fp:\N{ARABIC-INDIC DIGIT SEVEN}}}:{A_UUID}", "must look like"),
        (f" {{fp:7}}:{A_UUID}", "must look like"),
        ("{fp:7}:", "must end in a uuid"),
        ("{fp:7}:not-a-uuid", "must end in a uuid"),
        (f"{{fp:7}}:{A_UUID}\n", "must end in a uuid"),
        (f"{{fp:7}}:{A_UUID.replace('-', '')}", "hyphens"),
        (f"{{fp:7}}:{{{A_UUID}}}", "hyphens"),
        (f"{{fp:7}}:urn:uuid:{A_UUID}", "hyphens"),
    ],
)
def test_a_malformed_execution_id_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(ValidationError) as error:
        ExecutionId.parse(text)

    assert refused(error, "execution_id", repr(text))
    assert why in str(error.value)


@all_cases(
    ("partition_key", "partitions"), [(256, 256), (32768, 256), (65536, 256), (99999, 256), (8, 8)]
)
def test_a_partition_that_does_not_exist_is_refused(partition_key: int, partitions: int) -> None:
    text = f"{{fp:{partition_key}}}:{A_UUID}"

    with pytest.raises(ValidationError) as error:
        ExecutionId.parse(text, partitions=partitions)

    assert refused(error, "execution_id", text)
    assert f"below {partitions}" in str(error.value)


def test_the_last_partition_and_upper_case_are_accepted() -> None:
    assert ExecutionId.parse(f"{{fp:255}}:{A_UUID.upper()}") == ExecutionId(255, UUID(A_UUID))
    assert ExecutionId.parse(f"{{fp:1023}}:{A_UUID}", partitions=1024).partition_key == 1023


def test_a_solo_execution_is_minted_in_the_partition_of_its_uuid() -> None:
    minted = ExecutionId.mint()

    assert minted.partition_key == ids.uuid_partition(minted.uuid)
    assert ExecutionId.mint() != minted


def test_an_execution_with_a_key_is_minted_where_the_key_lives() -> None:
    minted = [ExecutionId.mint(namespace="shop", idempotency_key="order-7") for _ in range(3)]

    home = ids.key_partition("shop", "order-7")
    assert {execution_id.partition_key for execution_id in minted} == {home}
    assert len({execution_id.uuid for execution_id in minted}) == 3


@given(execution_ids, st.integers(0, 2**31 - 1))
def test_an_attempt_is_named_by_its_execution_and_index(
    execution_id: ExecutionId, attempt_index: int
) -> None:
    name = ids.attempt_id(execution_id, attempt_index)

    assert name == ids.attempt_id(execution_id, attempt_index)
    assert name != ids.attempt_id(execution_id, attempt_index + 1)
    assert name != ids.attempt_id(
        ExecutionId(0, UUID(int=execution_id.uuid.int ^ 1)), attempt_index
    )


# Children.


@given(execution_ids, st.integers(0, 2**31), st.integers(0, 2**31), st.text(max_size=20))
def test_a_child_is_named_by_its_place_and_lives_beside_its_parent(
    parent: ExecutionId, position: int, index: int, kind: str
) -> None:
    name = ids.child_id(parent, position, index, kind=kind)

    assert name == ids.child_id(parent, position, index, kind=kind)
    assert name.partition_key == parent.partition_key
    others = {
        ids.child_id(parent, position + 1, index, kind=kind),
        ids.child_id(parent, position, index + 1, kind=kind),
        ids.child_id(parent, position, index, kind=kind + "x"),
        ids.child_id(name, position, index, kind=kind),
        parent,
        ExecutionId(parent.partition_key, ids.children_group_id(parent, position).uuid),
        ExecutionId(parent.partition_key, ids.children_group_id(parent, position + 1).uuid),
    }
    assert len(others) == 7
    assert name not in others


def test_the_ids_of_plain_calls_are_fixed_for_ever() -> None:
    """Parents that wait for their children must find them, whatever the version of the code."""
    parent = ExecutionId(7, UUID("018f0000-0000-7000-8000-0000000000aa"))

    assert {
        str(ids.child_id(parent, 0, 0, kind="job")),
        str(ids.child_id(parent, 3, 2, kind="näh.kind")),
        str(ids.children_group_id(parent, 0)),
        str(ids.children_group_id(parent, 3, 2)),
        str(ids.parent_flow_id(parent)),
    } == {
        "{fp:7}:08dee30d-0820-5c82-8c2f-866024de5036",
        "{fp:7}:2ceaf474-71dc-5491-9a17-d772e1027e58",
        "{fp:7}:5b934ec7-e0eb-5bf4-b142-4cfd5a18bb74",
        "{fp:7}:a5bf74b3-0aaa-5aee-9914-f8cabe6f1472",
        "44bbd4f1-256f-5441-a262-8a23d372fd29",
    }


def test_the_ids_of_other_generations_and_of_named_calls_are_their_own() -> None:
    parent = ExecutionId(7, UUID("018f0000-0000-7000-8000-0000000000aa"))
    calls: list[dict[str, Any]] = [
        {},
        {"generation": 1},
        {"generation": 2},
        {"name": "a"},
        {"name": "a", "generation": 1},
        {"name": "b"},
        {"name": "ab"},
    ]

    children = {
        ids.child_id(parent, position, 0, kind="job", **call)
        for call in calls
        for position in (0, 1)
    }
    joins = {
        ids.children_group_id(parent, position, index, **call)
        for call in calls
        for position in (0, 1)
        for index in (None, 0)
    }

    assert (len(children), len(joins)) == (2 * len(calls), 4 * len(calls))
    assert {each.partition_key for each in (*children, *joins)} == {7}
    assert ids.child_id(parent, 0, 0, kind="job", generation=0, name=None) in children


def test_a_compensation_is_named_by_its_execution_and_how_often_that_was_replayed() -> None:
    one, other = (ExecutionId(7, UUID(int=number)) for number in (1, 2))

    found = {ids.compensation_id(each, count) for each in (one, other) for count in (0, 1)}

    assert len(found) == 4
    assert {each.partition_key for each in found} == {7}
    assert ids.compensation_id(one, 0) == ids.compensation_id(one, 0)


@pytest.mark.parametrize("partitions", [1, 32, 256, 1024])
def test_the_flow_of_a_family_lives_beside_the_parent(partitions: int) -> None:
    for partition_key in {0, 1, partitions // 2, partitions - 1} & set(range(partitions)):
        parent = ExecutionId(partition_key, UUID(A_UUID))

        flow_id = ids.parent_flow_id(parent, partitions)

        assert flow_id == ids.parent_flow_id(parent, partitions)
        assert ids.uuid_partition(flow_id, partitions) == partition_key


# Partition keys.


@given(st.sampled_from(["fp", "b", "q"]), st.integers(0, 255))
def test_a_partition_key_reads_back_as_it_was_written(family: str, index: int) -> None:
    key = PartitionKey(family, index)

    assert PartitionKey.parse(str(key)) == key
    assert str(key) == f"{{{family}:{index}}}"


@all_cases(
    ("text", "why"),
    [
        ("", "braces"),
        ("{", "braces"),
        ("fp:7", "braces"),
        ("{fp:7", "braces"),
        ("fp:7}", "braces"),
        ("{}", "{family:index}"),
        ("{fp7}", "{family:index}"),
        ("{x:7}", "family"),
        ("{:7}", "family"),
        ("{FP:7}", "family"),
        ("{fp:}", "index"),
        ("{fp:-1}", "index"),
        ("{fp:1.0}", "index"),
        ("{fp:\N{ARABIC-INDIC DIGIT SEVEN}}", "index"),
        ("{fp:256}", "index"),
        ("{fp:65536}", "index"),
        ("{fp:" + "9" * 5000 + "}", "index"),
    ],
    ids=lambda value: value[:12],
)
def test_a_malformed_partition_key_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(ValidationError) as error:
        PartitionKey.parse(text)

    assert refused(error, "partition_key", repr(text))
    assert why in str(error.value).removesuffix(text)


# The same functions in SQL.

TEXTS = [
    "",
    "a",
    "shop",
    "order-7",
    "with space",
    "naïve",
    "\N{GRINNING FACE}",
    "'quote'",
    "back\\slash",
    "tab\tnewline\n",
    "%s",
    "x" * 1024,
]


async def test_a_key_lives_in_the_same_partition_in_python_and_in_sql(db: Connection) -> None:
    chance = random.Random(1)
    pairs = [(namespace, key) for namespace in TEXTS for key in TEXTS]
    pairs += [(f"ns{chance.random()}", f"key{chance.random()}") for _ in range(200)]

    for partitions in (1, 7, 256, 1024, 32767):
        rows = await db.fetch(
            "SELECT ff.key_partition(namespace, key, $3) AS n"
            " FROM unnest($1::text[], $2::text[]) AS given (namespace, key)",
            *zip(*pairs, strict=True),
            partitions,
        )

        homes = [ids.key_partition(namespace, key, partitions) for namespace, key in pairs]
        assert [row["n"] for row in rows] == homes
        assert len(set(homes)) > min(partitions, 256) // 3


async def test_a_route_is_named_by_its_facts(db: Connection) -> None:
    facts = [
        (namespace, lane, kind, capabilities)
        for namespace in ("a", "b", "ab")
        for lane in ("a", "b", "ba")
        for kind in ("k", "ak", "bk")
        for capabilities in ([], ["a"], ["a", "b"], ["ab"])
    ]

    named = [await db.fetchval("SELECT ff.route_id($1, $2, $3, $4)", *each) for each in facts]
    again = [await db.fetchval("SELECT ff.route_id($1, $2, $3, $4)", *each) for each in facts]

    assert named == again
    assert len(set(named)) == len(facts)


async def test_a_separator_in_a_name_never_leads_work_into_another_namespace(
    db: Connection,
) -> None:
    work = [("a", "b", "c\x1fk"), ("a\x1fb", "c", "k")]
    for namespace, lane_id, kind in work:
        with contextlib.suppress(ValidationError):
            await existing.created(db, namespace=namespace, lane_id=lane_id, execution_kind=kind)

    for namespace, lane_id, kind in work:
        worker = Claimant(
            worker_id="w", worker_instance_id="w-1", lanes=(lane_id,), namespace=namespace
        )
        found = await claim(db, worker, ttl=30, limit=10)
        assert len(found) <= 1
        assert all((each.lane_id, each.execution_kind) == (lane_id, kind) for each in found)
    assert (
        await db.fetchval("SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'active'")
        == 0
    )
