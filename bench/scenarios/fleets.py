"""S6, S9, S10 and `completes`: crashes, idle workers, many workers, many writers."""

from typing import Final

from bench.scenarios.scenario import OURS_ALONE, Figure, Scenario, Size

CRASH: Final = (
    Figure("after_kill", "s after SIGKILL", lower=True),
    Figure("healthy", "s undisturbed", lower=True),
    Figure("lost", "lost", lower=True),
    Figure("completed_twice", "completed twice", lower=True),
    Figure("run_twice", "run twice", lower=True),
)
ERRORS: Final = (Figure("connections", "connections", lower=True), Figure("errors", "errors", True))
STATEMENTS: Final = Figure("statements", "statements/s", lower=True)
CPU: Final = (Figure("cpu", "% CPU of the workers", lower=True),)

FLEETS: Final = (
    Scenario(
        key="S6 TTL 5",
        title="crash, two workers, one killed half-way, lease TTL 5 s",
        command="crash",
        figure=Figure("beyond", "s beyond healthy", lower=True),
        extra=CRASH,
        full=Size(1_000),
        quick=Size(300),
        options=("--lease-ttl", "5"),
        systems=OURS_ALONE,
        every_round=False,
        timeout=20,
    ),
    Scenario(
        key="S6 TTL 30",
        title="crash, two workers, one killed half-way, lease TTL 30 s",
        command="crash",
        figure=Figure("beyond", "s beyond healthy", lower=True),
        extra=CRASH,
        full=Size(1_000),
        quick=Size(300),
        options=("--lease-ttl", "30"),
        systems=OURS_ALONE,
        every_round=False,
        timeout=50,
    ),
    Scenario(
        key="S9 one",
        title="idle, one worker process, all sweeps",
        command="idle",
        figure=STATEMENTS,
        extra=CPU,
        options=("--seconds", "30"),
        quick_options=("--seconds", "10"),
        systems=OURS_ALONE,
        every_round=False,
        without_autovacuum=True,
    ),
    Scenario(
        key="S9 sixteen",
        title="idle, 16 worker processes, all sweeps",
        command="idle",
        figure=STATEMENTS,
        extra=CPU,
        options=("--workers", "16", "--seconds", "30"),
        quick_options=("--seconds", "10"),
        systems=OURS_ALONE,
        every_round=False,
        without_autovacuum=True,
    ),
    Scenario(
        key="S10 n=20,000",
        title="fleet, 16 worker processes drain 20,000",
        command="fleet",
        extra=ERRORS,
        full=Size(20_000),
        quick=Size(5_000),
        queued=True,
        options=("--workers", "16"),
        systems=OURS_ALONE,
        timeout=60,
    ),
    Scenario(
        key="S10 n=100,000",
        title="fleet, 16 worker processes drain 100,000",
        command="fleet",
        extra=ERRORS,
        full=Size(100_000),
        quick=Size(20_000),
        queued=True,
        options=("--workers", "16"),
        systems=OURS_ALONE,
        timeout=120,
    ),
    Scenario(
        key="completes",
        title="one execution a call on 16 connections, and while a client waits for a result",
        command="completes",
        extra=(
            Figure("waited_rate", "/s, a client waits"),
            Figure("waited", "of the rate when none waits"),
        ),
        full=Size(1_000),
        quick=Size(400),
        options=("--repeats", "4"),
        quick_options=("--repeats", "2"),
        systems=OURS_ALONE,
    ),
)
