"""Full ids from uuids alone."""

from uuid import uuid4

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.find_execution import find_execution
from flowfabric.engine.executions.locate_executions import locate_executions
from tests import given


async def test_executions_are_found_by_uuid_in_all_partitions_or_in_one_namespace(
    db: Connection,
) -> None:
    one = await given.created(db)
    twin = msgspec.structs.replace(one, partition_key=(one.partition_key + 9) % 256)
    await given.created(db, execution_id=twin, namespace="acme")
    other = await given.created(db)

    found = await locate_executions(db, [one.uuid, other.uuid, uuid4()])
    theirs = await locate_executions(db, [one.uuid, other.uuid], namespace="acme")

    assert found == {one.uuid: sorted([one, twin]), other.uuid: [other]}
    assert theirs == {one.uuid: [twin]}
    assert await locate_executions(db, []) == {}
    assert await find_execution(db, other.uuid) == other
    assert await find_execution(db, one.uuid, namespace="acme") == twin
    assert await find_execution(db, uuid4()) is None
