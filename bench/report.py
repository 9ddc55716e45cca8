"""Prints figures and ratios as tables; writes all of them as JSON."""

import platform
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.results import Results, Spread
from bench.runner import Plan
from bench.scenarios import SCENARIOS, Scenario
from bench.systems import OURS, SYSTEMS
from bench.targets import TARGETS, Target

COLOURS: Final = {"goal": "green", "first bar": "yellow", "below": "red"}

FLOW_LATENCY: Final = (("p50", "p50 ms, together"), ("p50_alone", "p50 ms, alone"))

EXTRA: Final = {
    "S4": (("p95", "p95 ms"), ("p99", "p99 ms")),
    "S5 fan": FLOW_LATENCY,
    "S5 chain": FLOW_LATENCY,
    "S6": (
        ("healthy", "s undisturbed"),
        ("lost", "lost"),
        ("completed_twice", "completed twice"),
        ("run_twice", "run twice"),
    ),
    "S7 size": (("dead_rows_each", "dead rows each"), ("megabytes", "MB in all")),
    "S8 n=100": (("p99", "p99 ms"),),
    "S8 n=1,000": (("p99", "p99 ms"),),
    "S9": (("cpu", "% CPU of the worker"),),
    "S10": (("connections", "connections"), ("errors", "errors")),
}


def show(results: Results, plan: Plan, console: Console) -> None:
    """Print the figures, then the ratios with their verdicts, then the failures."""
    console.print(figures_table(results, plan))
    ratios = ratios_table(results)
    if ratios.row_count:
        console.print(ratios)
    for failure in results.failures:
        console.print(f"[red]failed[/red] {failure}", highlight=False)


def figures_table(results: Results, plan: Plan) -> Table:
    """Median and, below it, the extremes: a row per figure, a column per system."""
    table = Table(title="Figures: median (lowest to highest)", title_justify="left")
    table.add_column("scenario")
    table.add_column("unit")
    names = [name for name in plan.systems if any(name in s.systems for s in plan.scenarios)]
    for name in names:
        table.add_column(SYSTEMS[name].title, justify="right")
    for scenario in plan.scenarios:
        for figure, unit in _figures(scenario):
            first = figure == scenario.figure
            cells = [_cell(results.spread(scenario.key, name, figure)) for name in names]
            table.add_row(scenario.key if first else "", unit, *cells)
        table.add_section()
    return table


def ratios_table(results: Results) -> Table:
    """Our figures divided by the peer's, beside the first bar and the goal."""
    table = Table(title="Ratios: ours divided by the peer", title_justify="left")
    for column in ("scenario", "against"):
        table.add_column(column)
    for column in ("measured", "spread", "first bar", "goal"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for target in TARGETS:
        spread = target.measured(results)
        if spread is None:
            continue
        verdict = target.verdict(spread.median)
        table.add_row(
            f"{target.scenario} {target.label}".strip(),
            _against(target),
            f"{spread.median:.2f}",
            f"{spread.low:.2f} to {spread.high:.2f}" if spread.low < spread.high else "",
            target.threshold(target.first),
            target.threshold(target.goal),
            f"[{COLOURS[verdict]}]{verdict}[/]",
        )
    return table


def write_json(path: Path, results: Results, plan: Plan, server: str) -> None:
    """Write every figure of every round, the ratios and the circumstances to `path`."""
    document: dict[str, Any] = {
        "server": server,
        "python": platform.python_version(),
        "rounds": plan.rounds,
        "quick": plan.quick,
        "scenarios": {scenario.key: scenario.title for scenario in SCENARIOS},
        "figures": results.as_json(),
        "ratios": [_ratio(target, results) for target in TARGETS],
        "failures": results.failures,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def _ratio(target: Target, results: Results) -> dict[str, Any]:
    spread = target.measured(results)
    return {
        "scenario": target.scenario,
        "figure": target.figure,
        "against": _against(target),
        "measured": spread,
        "first_bar": target.threshold(target.first),
        "goal": target.threshold(target.goal),
        "verdict": target.verdict(spread.median) if spread else None,
    }


def _figures(scenario: Scenario) -> list[tuple[str, str]]:
    """The figures of a scenario with their units, the main figure first."""
    return [(scenario.figure, scenario.unit), *EXTRA.get(scenario.key, ())]


def _against(target: Target) -> str:
    if target.system is None:
        return ""
    if target.system == OURS:
        return f"own {target.against}"
    return SYSTEMS[target.system].title


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "[dim]-[/dim]"
    digits = 0 if spread.median >= 100 else 1 if spread.median >= 10 else 2
    if spread.low == spread.high:
        return f"{spread.median:,.{digits}f}"
    extremes = f"{spread.low:,.{digits}f} to {spread.high:,.{digits}f}"
    return f"{spread.median:,.{digits}f}\n[dim]{extremes}[/dim]"
