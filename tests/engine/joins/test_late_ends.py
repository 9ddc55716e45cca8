"""An end that comes after its group was decided is counted, and moves nobody any more."""

from flowfabric.engine.engine import Engine
from flowfabric.joins import AnyOf
from tests.engine.flows.graphs import fan_in, submitted
from tests.engine.joins.parents import Family


async def test_a_late_success_does_not_wake_a_downstream_that_waits_for_its_children(
    ff_engine: Engine,
) -> None:
    flow = await submitted(ff_engine, fan_in(2), policies={"d": AnyOf("let_run")})
    await flow.complete("u1")
    await flow.carry_all()
    [lease] = await flow.claim("d")
    family = Family(ff_engine, lease)
    await family.spawn("ab")
    await family.put_down()

    await flow.complete("u2")
    await flow.carry_all()

    assert await flow.group("d") == "2/0/0/0 satisfied"
    assert await flow.state("d") == "waiting_children"
    await family.complete("a", "b")
    await family.carry_all()
    assert await flow.state("d") == "waiting"
