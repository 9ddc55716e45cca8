"""An execution can be named by its uuid alone."""

from __future__ import annotations

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.ids import ExecutionId
from tests import given
from tests.cli.conftest import Inside, usage_error
from tests.engine.flows.graphs import submitted


async def test_a_uuid_alone_is_found_in_whatever_partition_it_is(
    ff: Inside, db: Connection, ff_engine: Engine
) -> None:
    solo = await given.created(db)
    keyed = (await ff("submit", "job", "--key", "k", "--json")).json["execution_id"]
    [member] = (await submitted(ff_engine, "a")).ids.values()

    for each in (solo, ExecutionId.parse(keyed), member):
        shown = await ff("executions", "show", str(each.uuid).upper(), "--json")
        assert shown.json["execution_id"] == str(each)
    explained = await ff("explain", str(solo.uuid), "--json")
    cancelled = await ff("executions", "cancel", str(solo.uuid), str(member), "--json")

    assert explained.code == 0
    assert [each["execution_id"] for each in cancelled.json["executions"]] == [
        str(solo),
        str(member),
    ]


async def test_a_uuid_of_two_executions_names_both(ff: Inside, db: Connection) -> None:
    one = await given.created(db)
    two = msgspec.structs.replace(one, partition_key=(one.partition_key + 1) % 256)
    await given.created(db, execution_id=two)

    said = usage_error(await ff("executions", "cancel", str(one.uuid)))

    assert str(one) in said
    assert str(two) in said
    assert await given.public_state(db, one) == "waiting"
