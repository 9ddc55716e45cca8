"""`ff migrate`: bring the schema of the database to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, console, print_json
from flowfabric.db.migrate import migrate as apply
from flowfabric.states import RoleAccess


def migrate(
    database_url: DatabaseUrl = None,
    runtime_role: Annotated[
        list[str] | None,
        typer.Option(help="A role that may do everything but change the schema; repeatable."),
    ] = None,
    read_role: Annotated[
        list[str] | None, typer.Option(help="A role that may only read; repeat for more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create or update the schema: apply missing migrations and changed functions.

    Roles that are named once get their rights again in every later run.
    """
    roles = dict.fromkeys(runtime_role or (), RoleAccess.RUNTIME)
    roles |= dict.fromkeys(read_role or (), RoleAccess.READ)
    done = run(apply(resolve(database_url), roles=roles))
    migrations = [f"{migration.version:04d}_{migration.name}" for migration in done.migrations]
    if as_json:
        print_json(
            {
                "applied": migrations,
                "functions": done.functions,
                "dropped": done.dropped,
                "version": done.version,
                "roles": done.roles,
            }
        )
        return
    for migration in migrations:
        console.print(f"applied [b]{migration}[/b]")
    for function in done.functions:
        console.print(f"applied function [b]{function}[/b]")
    for function in done.dropped:
        console.print(f"dropped function [b]{function}[/b]")
    for role in done.roles:
        console.print(f"granted [b]{role.access}[/b] rights to {role.name}", highlight=False)
    if not (migrations or done.functions or done.dropped):
        console.print("Up to date.")
    console.print(f"The schema is at version {done.version}.")
