"""`ff migrate`: bring the schema of the database to this version."""

from __future__ import annotations

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, console, print_json
from flowfabric.db.migrate import migrate as apply


def migrate(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Create or update the schema: apply missing migrations and changed functions."""
    done = run(apply(resolve(database_url)))
    migrations = [f"{migration.version:04d}_{migration.name}" for migration in done.migrations]
    if as_json:
        print_json(
            {
                "applied": migrations,
                "functions": done.functions,
                "dropped": done.dropped,
                "version": done.version,
            }
        )
        return
    for migration in migrations:
        console.print(f"applied [b]{migration}[/b]")
    for function in done.functions:
        console.print(f"applied function [b]{function}[/b]")
    for function in done.dropped:
        console.print(f"dropped function [b]{function}[/b]")
    if not (migrations or done.functions or done.dropped):
        console.print("Up to date.")
    console.print(f"The schema is at version {done.version}.")
