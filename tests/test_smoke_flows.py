from uuid import uuid4
from flowfabric.engine.facade import Engine
from flowfabric.engine.flows.submit_flow import NewFlow, NewEdge
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.ids import ExecutionId, uuid_partition, new_uuid
from flowfabric.joins import AnyOf, Quorum
from tests import given

W = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))


def member(flow, name):
    return given.new(execution_id=ExecutionId(uuid_partition(flow), new_uuid()), member_name=name)


async def test_flow(ff_engine: Engine):
    e = ff_engine
    flow = uuid4()
    a, b, c, d = (member(flow, n) for n in "abcd")
    ids = {m.execution_id: m.member_name for m in (a, b, c, d)}
    edge = lambda u, v, ref=None: NewEdge(
        upstream=u.execution_id, downstream=v.execution_id, data_passing_ref=ref
    )
    print(
        await e.submit_flow(
            NewFlow(
                flow_id=flow,
                flow_kind="k",
                members=[a, b, c, d],
                edges=[edge(a, b, "x"), edge(a, c), edge(b, d), edge(c, d)],
                policies={d.execution_id: AnyOf()},
            )
        )
    )

    async def show():
        s = await e.describe_flow(flow)
        print(
            s.derived_state,
            [(m.name, m.public_state.value) for m in (await e.list_flow_members(flow)).members],
            [
                (
                    ids[g.downstream_execution_id],
                    g.satisfied_count,
                    g.failed_count,
                    g.skipped_count,
                    g.running_count,
                    g.group_state.value,
                )
                for g in s.edge_groups
            ],
        )

    await show()
    [t] = await e.claim(W, ttl=30, limit=10)
    await e.complete([Completion(lease=t.lease, result=b'"R"')])
    print(await e.dispatch())
    await show()
    got = await e.claim(W, ttl=30, limit=10)
    print([(ids[t.lease.execution_id], t.input_payload) for t in got])
    tb = next(t for t in got if ids[t.lease.execution_id] == "b")
    await e.fail([Failure(lease=tb.lease, reason="no", category="permanent")])
    print(await e.dispatch())
    await show()
    tc = next(t for t in got if ids[t.lease.execution_id] == "c")
    await e.complete([Completion(lease=tc.lease)])
    print(await e.dispatch())
    await show()
    [td] = await e.claim(W, ttl=30, limit=10)
    await e.complete([Completion(lease=td.lease)])
    print(await e.dispatch())
    await show()
    print(await e.list_flows())
    print(await e.list_edges(flow))
    f2 = uuid4()
    ms = [member(f2, f"m{i}") for i in range(5)]
    await e.submit_flow(
        NewFlow(
            flow_id=f2,
            flow_kind="k",
            members=ms,
            edges=[NewEdge(upstream=ms[0].execution_id, downstream=m.execution_id) for m in ms[1:]],
        )
    )
    print(await e.cancel_flow(f2, reason="stop"))
    flow = f2
    ids = {m.execution_id: m.member_name for m in ms}
    await show()
