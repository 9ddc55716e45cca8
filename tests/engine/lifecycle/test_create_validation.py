"""What cannot be honoured is refused by name, and nothing of its batch is written."""

from datetime import datetime
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    RetryPolicy,
    TimeoutPolicy,
)
from tests import given

FRESH = ExecutionId.mint().uuid
NUL, SURROGATE = "a\x00b", "a\ud800b"


async def refused(db: Connection, *, code: str, naming: str, **fields: Any) -> None:
    """Alone, and as the last of a batch whose others are good: refused, and nothing is written."""
    before = await given.everything(db)

    for others in ([], [given.new(lane_id="fine", tags={"a.b": "c"}, idempotency_key="k")]):
        with pytest.raises(ValidationError) as raised:
            await create_execution(db, [*others, given.new(**fields)])
        assert raised.value.code == code
        assert naming in raised.value.detail
        assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("lane_id", "why"),
    [
        ("", "must not be empty"),
        ("x" * 65, "at most 64"),
        ("größe", "printable"),
        ("a\tb", "printable"),
        ("a\x7f", "printable"),
        (NUL, "printable"),
        (SURROGATE, "printable"),
    ],
)
async def test_a_lane_is_1_to_64_printable_bytes(db: Connection, lane_id: str, why: str) -> None:
    await refused(db, code="invalid_input", naming="lane_id", lane_id=lane_id)
    await refused(db, code="invalid_input", naming=why, lane_id=lane_id)


@pytest.mark.parametrize("lane_id", [" ", "x" * 64, "~!@#$%^&*()"])
async def test_any_printable_lane_is_fine(db: Connection, lane_id: str) -> None:
    await given.created(db, lane_id=lane_id)

    assert await db.fetchval("SELECT lane_id FROM ff.route") == lane_id


@pytest.mark.parametrize("field", ["namespace", "execution_kind", "payload_encoding"])
@pytest.mark.parametrize("value", ["", NUL, SURROGATE, "ä" * 129])
async def test_a_text_must_be_storable(db: Connection, field: str, value: str) -> None:
    await refused(db, code="invalid_input", naming=field, **{field: value})


@pytest.mark.parametrize("field", ["creator_identity", "idempotency_key"])
@pytest.mark.parametrize("value", ["", NUL, SURROGATE, "ä" * 513])
async def test_a_longer_text_must_be_storable(db: Connection, field: str, value: str) -> None:
    await refused(
        db,
        code="invalid_input",
        naming=field,
        execution_id=ExecutionId(7, FRESH),
        **{field: value},
    )


@pytest.mark.parametrize(
    "key",
    [
        "",
        "tenant",
        "Shop.tenant",
        "shop.Tenant",
        "1shop.tenant",
        "shop.",
        "shop..tenant",
        "shop .tenant",
        "shop-a.tenant",
        "shop.'tenant'",
        "shop.tenant\n",
        "shop.ten\x00ant",
        ".tenant",
        "shop." + "x" * 260,
    ],
)
async def test_a_tag_key_is_an_area_and_a_name(db: Connection, key: str) -> None:
    await refused(db, code="invalid_input", naming="tag key", tags={"good.key": "", key: "v"})


@pytest.mark.parametrize(
    "key", ["a.b", "shop.tenant_1", "a_1.2", "a.b.c", "a.b.", "cairn.instance_id"]
)
async def test_a_good_tag_key_is_stored(db: Connection, key: str) -> None:
    await given.created(db, tags={key: "any 'text' → at all"})

    [tag] = await db.fetch("SELECT tag_key, tag_value FROM ff.exec_tag")
    assert tuple(tag) == (key, "any 'text' → at all")


@pytest.mark.parametrize("value", [NUL, SURROGATE])
async def test_a_tag_value_must_be_storable(db: Connection, value: str) -> None:
    await refused(db, code="invalid_input", naming="tag shop.tenant", tags={"shop.tenant": value})


@pytest.mark.parametrize(
    ("capabilities", "why"),
    [
        ("gpu", "not_array"),
        ((7,), "non_string_token"),
        (("",), "empty_token"),
        (("a,b",), "comma_in_token"),
        (("a b",), "control_or_whitespace"),
        (("a\x7f",), "control_or_whitespace"),
        ((NUL,), "control_or_whitespace"),
        ((SURROGATE,), "control_or_whitespace"),
        (tuple(f"c{n}" for n in range(257)), "too_many_tokens"),
        (("x" * 2048, "y" * 2048), "too_many_bytes"),
    ],
)
async def test_capabilities_are_tokens(db: Connection, capabilities: Any, why: str) -> None:
    await refused(
        db,
        code="invalid_capabilities",
        naming=f"required:{why}",
        required_capabilities=capabilities,
    )


async def test_256_capabilities_of_4096_bytes_are_just_allowed(db: Connection) -> None:
    tokens = [f"{n:03}" + "x" * 12 for n in range(256)]
    tokens[0] += "x"  # 256 tokens of 15, one more, 255 commas: 4096

    await given.created(db, required_capabilities=tuple(tokens))

    assert await db.fetchval("SELECT required_capabilities FROM ff.route") == sorted(tokens)


@pytest.mark.parametrize("partition", [-1, 256, 32768, 65535])
async def test_a_partition_that_is_not_there_is_refused(db: Connection, partition: int) -> None:
    await refused(
        db,
        code="invalid_input",
        naming="execution_id",
        execution_id=ExecutionId(partition, FRESH),
    )


async def test_the_configured_count_of_partitions_decides(db: Connection) -> None:
    new = given.new(execution_id=ExecutionId(8, FRESH))

    with pytest.raises(ValidationError, match="partition must be below 8"):
        await create_execution(db, [new], partitions=8)

    assert len(await create_execution(db, [new], partitions=9)) == 1


BAD_POLICIES: list[tuple[str, Any]] = [
    ("max_retries", lambda: ExecutionPolicy(retry_policy=RetryPolicy(max_retries=-1))),
    ("max_retries", lambda: ExecutionPolicy(retry_policy=RetryPolicy(max_retries=2**31))),
    ("delay -1", lambda: given.retrying(backoff=FixedBackoff(delay=-1))),
    ("initial_delay", lambda: given.retrying(backoff=ExponentialBackoff(initial_delay=-1))),
    ("max_delay", lambda: given.retrying(backoff=ExponentialBackoff(max_delay=10**12))),
    ("multiplier", lambda: given.retrying(backoff=ExponentialBackoff(multiplier=0.5))),
    ("multiplier", lambda: given.retrying(backoff=ExponentialBackoff(multiplier=float("nan")))),
    ("multiplier", lambda: given.retrying(backoff=ExponentialBackoff(multiplier=float("inf")))),
    (
        "attempt_timeout",
        lambda: ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=-1)),
    ),
    (
        "execution_deadline",
        lambda: ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=-1)),
    ),
    ("max_reclaim_count", lambda: ExecutionPolicy(max_reclaim_count=-1)),
    ("dedup_window", lambda: ExecutionPolicy(dedup_window=-1)),
    ("", lambda: ExecutionPolicy.parse([])),
    ("retry_policy", lambda: ExecutionPolicy.parse({"retry_policy": "often"})),
    ("max_retries", lambda: ExecutionPolicy.parse({"retry_policy": {"max_retries": "3"}})),
    (
        "retryable_categories",
        lambda: ExecutionPolicy.parse({"retry_policy": {"retryable_categories": "a"}}),
    ),
    ("backoff", lambda: ExecutionPolicy.parse({"retry_policy": {"backoff": {"type": "magic"}}})),
    ("timeout_policy", lambda: ExecutionPolicy.parse({"timeout_policy": 5})),
]


@pytest.mark.parametrize(("field", "policy"), BAD_POLICIES)
async def test_a_policy_that_cannot_be_honoured_is_refused(
    db: Connection, field: str, policy: Any
) -> None:
    before = await given.everything(db)

    with pytest.raises(ValidationError) as raised:
        await create_execution(db, [given.new(), given.new(policy=policy())])

    assert raised.value.code == "invalid_policy_json"
    assert field in raised.value.detail
    assert await given.everything(db) == before


@pytest.mark.parametrize("text", [NUL, SURROGATE])
async def test_a_policys_texts_must_be_storable(db: Connection, text: str) -> None:
    before = await given.everything(db)

    with pytest.raises(ValidationError):
        await create_execution(
            db, [given.new(), given.new(policy=given.retrying(retryable_categories=(text,)))]
        )

    assert await given.everything(db) == before


@pytest.mark.parametrize("field", ["delay_until", "execution_deadline_at"])
async def test_a_moment_must_carry_a_time_zone(db: Connection, field: str) -> None:
    await refused(db, code="invalid_input", naming=field, **{field: datetime(2030, 1, 1)})


@pytest.mark.parametrize("field", ["delay", "deadline"])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e17, 1e12])
async def test_a_duration_must_lead_to_a_moment_of_the_calendar(
    db: Connection, field: str, seconds: float
) -> None:
    await refused(db, code="invalid_input", naming=field, **{field: seconds})


async def test_a_payload_over_64_mib_is_refused(db: Connection) -> None:
    await refused(
        db,
        code="payload_too_large",
        naming="input_payload",
        input_payload=bytes(64 * 1024 * 1024 + 1),
    )
