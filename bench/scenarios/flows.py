"""S5, S8: flows that run, and flows that are cancelled."""

from typing import Final

from bench.scenarios.scenario import OURS_ALONE, WITH_FLOWS, Figure, Scenario, Size

FLOW_LATENCY: Final = (
    Figure("p50", "p50 ms, together", lower=True),
    Figure("p50_alone", "p50 ms, alone", lower=True),
)
P50: Final = Figure("p50", "p50 ms", lower=True)
P99: Final = Figure("p99", "p99 ms", lower=True)

FLOWS: Final = (
    Scenario(
        key="S5 fan",
        title="flows of 1 → 10 → 1, 32 starts in flight, one worker",
        command="flows",
        figure=Figure("rate", "flows/s"),
        extra=FLOW_LATENCY,
        full=Size(200, 0, 60),
        quick=Size(100, 0, 10),
        options=("--shape", "fan", "--alone", "10"),
        quick_options=("--alone", "5"),
        systems=WITH_FLOWS,
    ),
    Scenario(
        key="S5 chain",
        title="flows that are a chain of 10, 32 starts in flight, one worker",
        command="flows",
        figure=Figure("rate", "flows/s"),
        extra=FLOW_LATENCY,
        full=Size(500, 0, 80),
        quick=Size(200, 0, 15),
        options=("--shape", "chain", "--alone", "10"),
        quick_options=("--alone", "5"),
        systems=WITH_FLOWS,
    ),
    Scenario(
        key="S5 10,000 nodes",
        title="a flow of 10,000 members, started in one call",
        command="submit-flow",
        figure=Figure("seconds", "s", lower=True),
        full=Size(10_000),
        quick=Size(10_000),
        systems=OURS_ALONE,
    ),
    Scenario(
        key="S8 n=100",
        title="cancel of a flow of 100 pending members",
        command="cancel",
        figure=P50,
        extra=(P99,),
        full=Size(100),
        quick=Size(100),
        options=("--cancels", "20"),
        systems=OURS_ALONE,
    ),
    Scenario(
        key="S8 n=1,000",
        title="cancel of a flow of 1,000 pending members",
        command="cancel",
        figure=P50,
        extra=(P99,),
        full=Size(1_000),
        quick=Size(1_000),
        options=("--cancels", "20"),
        quick_options=("--cancels", "10"),
        systems=OURS_ALONE,
    ),
)
