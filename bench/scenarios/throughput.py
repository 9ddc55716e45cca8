"""S1 to S4, S11, S12: submits, drains, end to end, latency."""

from typing import Final

from bench.scenarios.scenario import BESIDE_PGQUEUER, WITH_BULK, Figure, Scenario, Size
from bench.systems import FLOOR, OURS, PEERS

DRAINED: Final = Size(20_000, 20_000, 1_500)
DRAINED_QUICK: Final = Size(10_000, 10_000, 500)
EVERYBODY: Final = (OURS, *PEERS, FLOOR)

THROUGHPUT: Final = (
    Scenario(
        key="S1 single",
        title="submit, one call each, 32 in flight",
        command="submit",
        full=Size(10_000, 4_000, 1_000),
        quick=Size(5_000, 2_000, 500),
        systems=EVERYBODY,
        quick_systems=(*BESIDE_PGQUEUER, FLOOR),
    ),
    Scenario(
        key="S1 bulk",
        title="submit, bulk call",
        command="bulk",
        full=Size(20_000, 20_000, 10_000),
        quick=Size(10_000, 10_000, 5_000),
        systems=(*WITH_BULK, FLOOR),
        quick_systems=(*BESIDE_PGQUEUER, FLOOR),
    ),
    Scenario(
        key="S2 one",
        title="drain, one worker process",
        command="drain",
        full=DRAINED,
        quick=DRAINED_QUICK,
        queued=True,
        systems=EVERYBODY,
    ),
    Scenario(
        key="S2 one, batches of 100",
        title="drain, one connection, batches of 100",
        command="drain",
        full=DRAINED,
        quick=DRAINED_QUICK,
        queued=True,
        options=("--batch", "100"),
        systems=(FLOOR,),
    ),
    Scenario(
        key="S2 two",
        title="drain, two worker processes",
        command="drain",
        full=DRAINED,
        quick=DRAINED_QUICK,
        queued=True,
        options=("--workers", "2"),
        systems=EVERYBODY,
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S3",
        title="end to end, 32 in flight, one worker",
        command="end-to-end",
        full=Size(10_000, 3_000, 800),
        quick=Size(5_000, 1_500, 400),
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S4",
        title="latency, submit call to handler start",
        command="latency",
        figure=Figure("p50", "p50 ms", lower=True),
        extra=(Figure("p95", "p95 ms", lower=True), Figure("p99", "p99 ms", lower=True)),
        options=("--seconds", "5"),
        quick_options=("--seconds", "2"),
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S11",
        title="drain, 1 kB payload, handler of 10 ms, concurrency 200, one worker process",
        command="drain",
        full=Size(20_000, 20_000),
        quick=Size(5_000, 5_000),
        queued=True,
        fill_options=("--payload", "1000"),
        options=("--handler-ms", "10", "--concurrency", "200"),
        systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S12",
        title="submit at 100/s, call to acknowledgement",
        command="submit-paced",
        figure=Figure("p50", "p50 ms", lower=True),
        extra=(Figure("p99", "p99 ms", lower=True),),
        options=("--seconds", "10", "--every", "0.01"),
        quick_options=("--seconds", "3"),
        systems=BESIDE_PGQUEUER,
    ),
)
