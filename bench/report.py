"""Prints figures and ratios as tables of at most 100 columns; writes all of them as JSON."""

import platform
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.results import Results, Spread
from bench.runner import Plan
from bench.scenarios import SCENARIOS, Figure, Scenario
from bench.systems import BASE, OURS, System
from bench.targets import TARGETS, Target

COLOURS: Final = {"goal": "green", "first bar": "yellow", "below": "red"}
WIDTH: Final = 100
ENOUGH_ROUNDS: Final = 3
"""Two rounds agree by chance every other time."""


def show(results: Results, plan: Plan, console: Console) -> None:
    """Print the figures, then the ratios with their verdicts, then the failures."""
    console.print(figures_table(results, plan))
    if base := _base(plan):
        console.print(comparison_table(results, plan, base))
        for scenario, why in results.not_on_base.items():
            text = f"[yellow]cannot run on the base[/yellow] {scenario}: {escape(why)}"
            console.print(text, highlight=False)
    ratios = ratios_table(results, plan)
    if ratios.row_count:
        console.print(ratios)
    for failure in results.failures:
        console.print(f"[red]failed[/red] {escape(failure)}", highlight=False)


def figures_table(results: Results, plan: Plan) -> Table:
    """Median and, below it, the extremes: a row per figure, a column per system."""
    table = _table("Figures: median, lowest to highest", "scenario")
    systems = [
        system
        for system in plan.systems
        if any(scenario.includes(system, quick=plan.quick) for scenario in plan.scenarios)
    ]
    for system in systems:
        table.add_column(system.title, justify="right")
    for scenario in plan.scenarios:
        for figure in scenario.figures:
            cells = [results.spread(scenario.key, s.name, figure.name) for s in systems]
            if figure is scenario.figure or any(cells):
                table.add_row(_named(scenario, figure), *map(_cell, cells))
        table.add_section()
    return table


def comparison_table(results: Results, plan: Plan, base: System) -> Table:
    """Our figures divided by those of the base commit, round by round."""
    head = next(system for system in plan.systems if system.name == OURS)
    table = _table(f"{head.title} divided by {base.title}", "scenario")
    for column in ("base", "head", "head/base", "spread"):
        table.add_column(column, justify="right")
    table.add_column("")
    for scenario, figure, ratio in _comparisons(results, plan):
        before = results.spread(scenario.key, BASE, figure.name)
        after = results.spread(scenario.key, OURS, figure.name)
        table.add_row(
            _named(scenario, figure),
            _number(before.median) if before else "-",
            _number(after.median) if after else "-",
            f"{ratio.median:.2f}",
            _extremes(ratio),
            _direction(ratio, figure) if plan.rounds >= ENOUGH_ROUNDS else "",
            end_section=figure is scenario.figures[-1],
        )
    return table


def ratios_table(results: Results, plan: Plan) -> Table:
    """Our figures beside the first bar and the goal, divided by the peer's where there is one."""
    table = _table("Targets: our figure, or ours divided by the other", "scenario")
    table.add_column("against")
    for column in ("measured", "spread", "first bar", "goal"):
        table.add_column(column, justify="right")
    table.add_column("verdict", no_wrap=True)
    for target in TARGETS:
        spread = target.measured(results)
        if spread is None:
            continue
        verdict = target.verdict(spread.median)
        table.add_row(
            f"{target.scenario} {target.label}".strip(),
            _against(target, plan),
            _number(spread.median),
            _extremes(spread),
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
        "systems": {system.name: system.title for system in plan.systems},
        "scenarios": {scenario.key: scenario.title for scenario in SCENARIOS},
        "figures": results.as_json(),
        "targets": [_target(target, results, plan) for target in TARGETS],
        "failures": results.failures,
    }
    if _base(plan):
        document["head_to_base"] = [
            {"scenario": scenario.key, "figure": figure.name, "lower": figure.lower, "ratio": ratio}
            for scenario, figure, ratio in _comparisons(results, plan)
        ]
        document["not_on_base"] = results.not_on_base
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def _target(target: Target, results: Results, plan: Plan) -> dict[str, Any]:
    spread = target.measured(results)
    return {
        "scenario": target.scenario,
        "figure": target.figure,
        "against": _against(target, plan),
        "measured": spread,
        "first_bar": target.threshold(target.first),
        "goal": target.threshold(target.goal),
        "verdict": target.verdict(spread.median) if spread else None,
    }


def _comparisons(results: Results, plan: Plan) -> list[tuple[Scenario, Figure, Spread]]:
    """Every figure that both commits have, with the ratio of ours to that of the base."""
    return [
        (scenario, figure, ratio)
        for scenario in plan.scenarios
        for figure in scenario.figures
        if (ratio := results.ratio(scenario.key, figure.name, against=scenario.key, system=BASE))
    ]


def _base(plan: Plan) -> System | None:
    return next((system for system in plan.systems if system.name == BASE), None)


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column(first)
    return table


def _named(scenario: Scenario, figure: Figure) -> str:
    """The scenario at its first figure; the others are indented below it."""
    if figure is scenario.figure:
        return f"{scenario.key}, {figure.unit}"
    return f"  [dim]{figure.unit}[/dim]"


def _against(target: Target, plan: Plan) -> str:
    if target.system is None:
        return ""
    if target.system == OURS:
        return f"own {target.against}"
    return next((s.title for s in plan.systems if s.name == target.system), target.system)


def _direction(ratio: Spread, figure: Figure) -> str:
    """Whether every round moved one way, and which; a spread on both sides of 1 says nothing."""
    if round(ratio.low, 2) <= 1 <= round(ratio.high, 2):
        return ""
    better = (ratio.median < 1) == figure.lower
    return "[green]better[/green]" if better else "[red]worse[/red]"


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "[dim]-[/dim]"
    if spread.low == spread.high:
        return _number(spread.median)
    return f"{_number(spread.median)}\n[dim]{_extremes(spread)}[/dim]"


def _extremes(spread: Spread) -> str:
    if spread.low == spread.high:
        return ""
    return f"{_number(spread.low)}-{_number(spread.high)}"


def _number(value: float) -> str:
    """Three digits or more, short enough for seven of them in a line."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"
