"""What is given to the engine with a wrong type or out of range is refused by name."""

import inspect
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.app.app import App
from flowfabric.client.client import Client
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandle
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import ConfigError, FlowFabricError, NotFound, StaleLease, ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.worker.settings import WorkerSettings
from tests import given
from tests.all_cases import all_cases

NOWHERE = [300, 256, -1, 70_000, True, 3.0, "3"]
BY_ID = [
    "describe_execution",
    "read_execution_state",
    "read_execution_info",
    "read_execution_context",
    "get_execution_result",
    "list_attempts",
    "explain_execution",
    "read_current_attempt_index",
    "read_total_attempt_count",
    "get_execution_namespace",
    "resolve_execution_flow_id",
    "read_history",
    "evaluate_flow_eligibility",
    "mark_lease_expired_if_due",
    "cancel_execution",
    "replay_execution",
    "revoke_lease",
]
BY_IDS = ["read_outcomes", "cancel_executions", "replay_executions", "unblock_executions"]
MORE: dict[str, dict[str, Any]] = {
    "cancel_execution": {"reason": "r"},
    "cancel_executions": {"reason": "r"},
}


@pytest.mark.parametrize("partition", NOWHERE)
async def test_every_operation_refuses_an_id_in_a_partition_that_does_not_exist(
    ff_engine: Engine, partition: Any
) -> None:
    nowhere = ExecutionId(partition, uuid4())
    calls = [(name, nowhere) for name in BY_ID] + [(name, [nowhere]) for name in BY_IDS]

    for name, argument in calls:
        with pytest.raises(ValidationError, match="partition must be below 256"):
            await getattr(ff_engine, name)(argument, **MORE.get(name, {}))


@pytest.mark.parametrize("index", NOWHERE)
async def test_every_list_refuses_a_partition_that_does_not_exist(
    ff_engine: Engine, index: Any
) -> None:
    nowhere = PartitionKey("fp", index)

    for call in (
        lambda: ff_engine.list_executions(nowhere),
        lambda: ff_engine.list_flows(nowhere),
        lambda: ff_engine.trim_retention(Trim(lane_id="a", retention=1, partition=nowhere)),
        lambda: ff_engine.count_trimmable(Trim(lane_id="a", retention=1, partition=nowhere)),
    ):
        with pytest.raises(ValidationError, match="index must be below 256"):
            await call()


def test_the_names_above_are_operations_of_the_engine() -> None:
    for name in [*BY_ID, *BY_IDS]:
        first = list(inspect.signature(getattr(Engine, name)).parameters)[1]
        assert first in ("execution_id", "executions"), name


def spoiled(lease: Lease) -> list[Lease]:
    """The lease with each of its numbers beyond what its column can store."""
    home, uuid = lease.execution_id.partition_key, lease.execution_id.uuid
    return [
        *(
            msgspec.structs.replace(lease, execution_id=ExecutionId(number, uuid))
            for number in (home + 256, 2**15, -(2**15) - 1, 2**70)
        ),
        *(msgspec.structs.replace(lease, attempt_index=n) for n in (2**31, -(2**31) - 1, 2**70)),
        *(msgspec.structs.replace(lease, lease_epoch=n) for n in (2**63, -(2**63) - 1, 2**70)),
    ]


@pytest.mark.parametrize("operation", ["renew", "complete", "fail", "delay", "release", "cancel"])
async def test_a_lease_with_numbers_out_of_range_is_refused_alone(
    ff_engine: Engine, db: Connection, operation: str
) -> None:
    lease = await given.claimed(db)
    wrong = spoiled(await given.claimed(db))
    request: dict[str, Any] = {
        "complete": Completion,
        "fail": lambda lease: Failure(lease=lease, reason="no"),
        "delay": lambda lease: DelayRequest(lease=lease, delay=1),
        "cancel": lambda lease: Cancellation(lease, "no"),
    }
    made = [request.get(operation, lambda lease: lease)(each) for each in [*wrong, lease]]

    options = {"ttl": 30} if operation == "renew" else {}
    *refused, answered = await getattr(ff_engine, operation)(made, **options)

    assert all(isinstance(each, NotFound | StaleLease) for each in refused), refused
    assert not isinstance(answered, Exception)
    if operation in ("complete", "delay", "release"):
        assert isinstance(answered, Completed | Delayed | Released)


@pytest.mark.parametrize(
    "place", [{"attempt_index": 2**31}, {"lease_epoch": 2**63}, {"lease_epoch": 2**64 - 1}]
)
async def test_a_handle_with_numbers_out_of_range_is_corrupt(
    db: Connection, place: dict[str, int]
) -> None:
    lease = await given.claimed(db)
    handle = LeaseHandle(
        lease=msgspec.structs.replace(lease, **place),
        attempt_id=lease.attempt_id,
        lease_ttl=30,
        lane_id="default",
        worker_instance_id="w-1",
    )

    with pytest.raises(ValidationError, match="out of range") as raised:
        LeaseHandle.decode(handle.encode())
    assert raised.value.code == "corruption"


@all_cases("priority", ["5", 5.0, True, None, [5]])
def test_a_priority_is_a_whole_number(priority: Any) -> None:
    with pytest.raises(ValidationError, match="priority"):
        given.new(priority=priority)
    with pytest.raises(ConfigError, match="priority"):
        App().task("t", priority=priority)


@pytest.mark.parametrize("payload", ["text", None, 5, {"a": 1}])
def test_a_payload_is_bytes(payload: Any) -> None:
    with pytest.raises(ValidationError, match="input_payload"):
        given.new(input_payload=payload)


async def test_what_a_worker_reports_has_its_type(ff_engine: Engine, db: Connection) -> None:
    lease, wrong = await given.claimed(db), [5, 5.0, ["x"], object()]

    for value in [*wrong, "x"]:
        strange: Any = value
        with pytest.raises(ValidationError, match="result"):
            Completion(lease, strange)
    for value in wrong:
        strange = value
        with pytest.raises(ValidationError, match="reason"):
            Failure(lease=lease, reason=strange)
        with pytest.raises(ValidationError, match="category"):
            Failure(lease=lease, reason="no", category=strange)
        with pytest.raises(ValidationError, match="reason"):
            Cancellation(lease, strange)
    for percent in ("5", 5.5, True, float("nan"), 101):
        strange = percent
        with pytest.raises(ValidationError, match="percent"):
            await ff_engine.progress(lease, percent=strange)


@pytest.mark.parametrize("limit", ["5", 5.0, True, None])
async def test_a_limit_is_a_whole_number(ff_engine: Engine, limit: Any) -> None:
    for call in (
        lambda: ff_engine.claim(given.WORKER, ttl=30, limit=limit),
        lambda: ff_engine.list_flows(limit=limit),
        lambda: ff_engine.list_lanes(limit=limit),
        lambda: ff_engine.list_workers("default", limit=limit),
        lambda: ff_engine.list_executions(PartitionKey("fp", 0), limit=limit),
    ):
        with pytest.raises(ValidationError, match="limit"):
            await call()


@pytest.mark.parametrize("ttl", ["5", None, True, float("nan"), float("inf"), 1e30])
async def test_a_lease_has_a_duration(ff_engine: Engine, ttl: Any) -> None:
    with pytest.raises(ValidationError):
        await ff_engine.claim(given.WORKER, ttl=ttl)
    for setting in ("lease_ttl", "drain"):
        with pytest.raises(ConfigError, match=setting):
            WorkerSettings(**{setting: ttl})


@all_cases("name", ["a\x1b[31m", "a\nb", "a\x00", "a\x9bb", "a\u202eb", 5, None])
def test_names_are_printable_texts(name: Any) -> None:
    for field in ("namespace", "execution_kind", "lane_id"):
        with pytest.raises(ValidationError, match=field):
            given.new(**{field: name})
    with pytest.raises(FlowFabricError, match="kind"):
        App().task(name)
    with pytest.raises(FlowFabricError, match="namespace"):
        App(name)


@pytest.mark.parametrize("argument", ["kind", "namespace"])
@pytest.mark.parametrize("code", [0x1B, 0x0A, 0x7F, 0x9B, 0x202E])
async def test_sql_is_held_to_the_same_names(db: Connection, argument: str, code: int) -> None:
    kind = "" if argument == "kind" else "kind => 'job', "
    with pytest.raises(Exception, match=f"invalid_input: {argument}"):
        await db.execute(f"SELECT ff.submit({kind}{argument} => 'a' || chr({code}))")


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "5"},
        {"delay": "5"},
        {"deadline": float("nan")},
        {"delay_until": 5},
        {"tags": {5: "x"}},
        {"tags": {"a.b": 5}},
        {"idempotency_key": 5},
        {"lane": 5},
    ],
)
async def test_a_submit_with_a_wrong_option_is_refused_by_its_name(
    ff_engine: Engine, options: dict[str, Any]
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Any) -> None: ...

    client = Client(ff_engine)
    [name] = options
    with pytest.raises(ValidationError, match="tag" if name == "tags" else name):
        await client.submit(job.call(), **options)
    await client.outcomes.close()
