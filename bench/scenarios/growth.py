"""S7, `cost`, `routes`, `reads`: what an execution costs, and what many of them cost."""

from typing import Final

from bench.scenarios.scenario import BESIDE_PGQUEUER, OURS_ALONE, Figure, Scenario, Size

READS: Final = {
    "search_waiting": "search, waiting",
    "search_active": "search, active",
    "search_completed": "search, completed",
    "search_lane": "search, one lane",
    "search_deep": "search, deep page",
    "count_by_lane": "count_by_lane",
    "list_flows": "list_flows",
    "read_history": "read_history",
    "read_long_history": "read_history, long",
}


def reads(rows: int, quick: int) -> Scenario:
    """The reads of the API and the dashboard on a database of `rows` executions."""
    return Scenario(
        key=f"reads {rows:,}",
        title=f"reads with {rows:,} executions (quick: {quick:,})",
        command="reads",
        figure=Figure("p95", "p95 ms, the slowest", lower=True),
        extra=(
            Figure("buffers", "buffers, the most", lower=True),
            *(Figure(f"{name}_p95", f"{title}: p95 ms", True) for name, title in READS.items()),
            *(
                Figure(f"{name}_buffers", f"{title}: buffers", True)
                for name, title in READS.items()
            ),
        ),
        full=Size(rows),
        quick=Size(quick),
        queued=True,
        fill="fill-reads",
        options=("--repeats", "20"),
        quick_options=("--repeats", "5"),
        systems=OURS_ALONE,
        every_round=False,
        without_autovacuum=True,
        timeout=240,
    )


GROWTH: Final = (
    Scenario(
        key="S7 alone",
        title="drain 20,000, nothing else queued, one worker process (quick: 2,000)",
        command="depth",
        full=Size(20_000, 20_000),
        quick=Size(2_000, 2_000),
        queued=True,
        systems=BESIDE_PGQUEUER,
        quick_systems=OURS_ALONE,
    ),
    Scenario(
        key="S7 depth",
        title="drain 20,000 of 1,000,000 queued, one worker process (quick: 2,000 of 100,000)",
        command="depth",
        full=Size(20_000, 20_000),
        behind=Size(980_000, 980_000),
        quick=Size(2_000, 2_000),
        quick_behind=Size(98_000, 98_000),
        queued=True,
        systems=BESIDE_PGQUEUER,
        quick_systems=OURS_ALONE,
    ),
    Scenario(
        key="S7 size",
        title="what is left after 20,000 are done",
        command="drain",
        figure=Figure("kilobytes_each", "kB each", lower=True),
        extra=(
            Figure("dead_rows_each", "dead rows each", lower=True),
            Figure("megabytes", "MB in all", lower=True),
        ),
        full=Size(20_000, 20_000),
        quick=Size(10_000, 10_000),
        queued=True,
        systems=BESIDE_PGQUEUER,
        every_round=False,
        without_autovacuum=True,
        footprint=True,
    ),
    Scenario(
        key="cost",
        title="create (1,000 a call), claim and complete (200 a call) on one connection",
        command="cost",
        figure=Figure("cpu", "server CPU, µs each", lower=True),
        extra=(
            Figure("cpu_create", "create, µs", lower=True),
            Figure("cpu_claim", "claim, µs", lower=True),
            Figure("cpu_complete", "complete, µs", lower=True),
            Figure("wal", "WAL, kB each", lower=True),
            Figure("wal_create", "create, kB", lower=True),
            Figure("wal_claim", "claim, kB", lower=True),
            Figure("wal_complete", "complete, kB", lower=True),
            Figure("heap", "heap, bytes each", lower=True),
            Figure("indexes", "indexes, bytes each", lower=True),
        ),
        full=Size(20_000),
        quick=Size(6_000),
        systems=OURS_ALONE,
        without_autovacuum=True,
    ),
    Scenario(
        key="routes",
        title="claim of 100, queued over 200 routes, against one route",
        command="routes",
        figure=Figure("ratio", "200 routes to one", lower=True),
        extra=(Figure("one", "p50 ms, one", lower=True), Figure("many", "p50 ms, 200", lower=True)),
        full=Size(20_000),
        quick=Size(6_000),
        options=("--routes", "200", "--repeats", "60"),
        quick_options=("--repeats", "20"),
        systems=OURS_ALONE,
    ),
    reads(100_000, quick=10_000),
    reads(1_000_000, quick=50_000),
)
