"""The table of scenarios; each one calls a `run_…` method or module of the adapters.

scenario     what a scenario is
throughput   S1 to S4, S11, S12: submits, drains, latency
flows        S5, S8: flows that run, and flows that are cancelled
fleets       S6, S9, S10 and `completes`: crashes, idle workers, many workers, many writers
durable      D1 to D11: steps, sleeps, signals and frames of durable handlers, schedules
growth       S7, `cost`, `routes`, `reads`: what an execution costs, and what many of them cost
"""

from typing import Final

from bench.scenarios.durable import DURABLE
from bench.scenarios.fleets import FLEETS
from bench.scenarios.flows import FLOWS
from bench.scenarios.growth import GROWTH
from bench.scenarios.scenario import Figure, Scenario, Size
from bench.scenarios.throughput import THROUGHPUT

__all__ = ["GROUPS", "SCENARIOS", "Figure", "Scenario", "Size"]


def _place(scenario: Scenario) -> tuple[int, int]:
    """S1 to S12 by number, D1 to D11, then the others in the order in which they are written."""
    letter, number = scenario.group[0], scenario.group[1:]
    return ("SD".index(letter), int(number)) if number.isdigit() else (2, 0)


SCENARIOS: Final = tuple(sorted((*THROUGHPUT, *FLOWS, *FLEETS, *DURABLE, *GROWTH), key=_place))

GROUPS: Final = tuple(dict.fromkeys(scenario.group for scenario in SCENARIOS))
