"""`ff explain`: why an execution does not run, and what to do about it."""

from __future__ import annotations

from flowfabric.cli.connection import ask
from flowfabric.cli.options import Id
from flowfabric.cli.output import (
    AsJson,
    DatabaseUrl,
    ago,
    coloured,
    console,
    escape,
    print_json,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState


def explain(execution_id: Id, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Say why an execution does not run or how it ended, and what to do about it."""
    wanted = ExecutionId.parse(execution_id)
    answer = ask(database_url, lambda engine: engine.explain_execution(wanted))
    if as_json:
        print_json(answer)
        return
    console.print(
        f"{coloured(answer.public_state)} since {answer.since:%Y-%m-%d %H:%M:%S} UTC "
        f"({ago(answer.since)}): {escape(answer.execution_kind)} on lane {escape(answer.lane_id)}",
        soft_wrap=True,
    )
    for reason in answer.reasons:
        console.print(f"  [b]{escape(reason.message)}[/b]", soft_wrap=True)
        console.print(f"    [dim]→[/dim] {escape(reason.remedy)}", soft_wrap=True)
    if answer.public_state is PublicState.FAILED:
        see = f"its traceback: ff executions show '{wanted}'"
        console.print(f"    [dim]→[/dim] {escape(see)}", soft_wrap=True)
